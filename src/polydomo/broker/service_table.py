"""The table of services: a name is added when it is offered or requested, and removed when it is neither."""

from typing import TYPE_CHECKING

from polydomo.broker.requests import deadlines, outcomes, queues
from polydomo.model.request import NO_WORKER, Request
from polydomo.model.service import Service
from polydomo.model.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def find_or_add(broker: "Broker", name: bytes) -> Service:
    """Returns the service, adding it if needed. There must be room for the name."""
    service = broker.services.get(name)
    if service is None:
        service = add(broker, Service(name))
    return service


def add(broker: "Broker", service: Service) -> Service:
    """Adds a service to the table."""
    broker.services[service.name] = service
    service.no_worker_since = broker.now
    broker.control.mark(service)
    return service


def forget_unused(broker: "Broker", service: Service) -> None:
    """Removes a service without workers, bridges and queued requests."""
    if (
        not service.workers
        and not service.queue_length
        and not service.remote
        and broker.services.get(service.name) is service
    ):
        deadlines.unwatch_service(broker, service)
        del broker.services[service.name]
        broker.siblings.forget(service)
        broker.monitor.service_forgotten(service)


def uncounted(broker: "Broker") -> "frozenset[bytes]":
    """Names that need no room in the table: what process 0 of the broker offers to its siblings."""
    return broker.builtin.offered if broker.siblings.count != 1 else frozenset()


def count(broker: "Broker") -> int:
    """Services of peers."""
    return len(broker.services) - sum(name in broker.services for name in uncounted(broker))


def shortage(broker: "Broker", wanted: int) -> int:
    """The number of ``wanted`` new names that do not fit into the table; sets ``refusal`` if any."""
    missing = max(0, count(broker) + wanted - broker.policy.max_services)
    if missing:
        broker.refusal = f"there are already {len(broker.services)} services"
    return missing


def make_room(broker: "Broker", names: "list[bytes]", session: "Session | None" = None) -> bool:
    """Makes room for services that a worker or a bridge offers. If the table is full, services that only have queued requests are removed,
    so that clients which invent names cannot keep workers out: first those never offered, then those that have waited longest."""
    offered = set(names)
    wanted = len(offered - broker.services.keys())
    missing = shortage(broker, wanted) if wanted else 0
    if not missing:
        return True
    if session is not None:
        session.link.charge(len(broker.services) >> 3)  # charged to the connection that caused the search
    kept = offered | uncounted(broker)
    removable = [
        service
        for name, service in broker.services.items()
        if not service.workers and not service.remote and name not in kept
    ]
    if len(removable) < missing:
        return False
    removable.sort(key=lambda service: (service.answered > 0, service.no_worker_since))
    reason = "no worker offers the service, and the service table was full"
    for service in removable[:missing]:
        for request in queues.waiting(service):
            queues.remove(service, request)
            outcomes.fail(broker, request, NO_WORKER, reason)
        forget_unused(broker, service)
    return True


def restore(broker: "Broker", request: Request) -> None:
    """A bridge returned a request whose service may have been removed. Ends the request if there is no room for the service."""
    name = request.service.name
    if make_room(broker, [name]):
        request.service = broker.services.get(name) or add(broker, request.service)
    else:
        outcomes.fail(broker, request, NO_WORKER, f"no worker offers the service, and {broker.refusal}")
