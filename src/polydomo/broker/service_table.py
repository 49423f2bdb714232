"""The table of services: a name is added when it is offered or requested, and removed when it is neither."""

from polydomo.broker.requests import deadlines, pausing
from polydomo.broker.state import State
from polydomo.model.records import Service


def find_or_add(broker: State, name: bytes) -> Service:
    """Returns the service, adding it if needed. There must be room for the name."""
    service = broker.services.get(name)
    if service is None:
        service = add(broker, Service(name))
    return service


def add(broker: State, service: Service) -> Service:
    """Adds a service to the table."""
    broker.services[service.name] = service
    service.no_worker_since = broker.now
    pausing.mark(broker, service)
    return service


def forget_unused(broker: State, service: Service) -> None:
    """Removes a service without workers, bridges and queued requests."""
    if (
        not service.workers
        and not service.queue_length
        and not service.remote
        and broker.services.get(service.name) is service
    ):
        deadlines.unwatch_service(broker, service)
        del broker.services[service.name]
        broker.routes.forget(service)
        broker.tallies.service_forgotten(service)


def uncounted(broker: State) -> "frozenset[bytes]":
    """Names that need no room in the table: what process 0 of the broker offers to its siblings."""
    return broker.builtin.offered if broker.process.count != 1 else frozenset()


def count(broker: State) -> int:
    """Services of peers."""
    return len(broker.services) - sum(name in broker.services for name in uncounted(broker))


def shortage(broker: State, wanted: int) -> int:
    """The number of ``wanted`` new names that do not fit into the table."""
    return max(0, count(broker) + wanted - broker.policy.max_services)


def full(broker: State) -> str:
    """Why a name was refused for which there is no room."""
    return f"there are already {len(broker.services)} services"


def has_worker(broker: State, name: bytes) -> bool:
    """Whether a worker of this or another broker offers the service."""
    known = broker.services.get(name)
    return known is not None and bool(known.workers or known.remote)
