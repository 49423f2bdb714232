"""The table of services: a name is added when it is offered or requested, and removed when it is neither."""

from polydomo.broker.requests import deadlines, pausing
from polydomo.broker.state import State
from polydomo.model.records import Service


def find_or_add(state: State, name: bytes) -> Service:
    """Returns the service, adding it if needed. There must be room for the name."""
    service = state.services.get(name)
    if service is None:
        service = add(state, Service(name))
    return service


def add(state: State, service: Service) -> Service:
    """Adds a service to the table."""
    state.services[service.name] = service
    service.no_worker_since = state.now
    pausing.mark(state, service)
    return service


def forget_unused(state: State, service: Service) -> None:
    """Removes a service without workers, bridges and queued requests."""
    if (
        not service.workers
        and not service.queue_length
        and not service.remote
        and state.services.get(service.name) is service
    ):
        deadlines.unwatch_service(state, service)
        del state.services[service.name]
        state.routes.forget(service)
        state.tallies.service_forgotten(service)
        if service.limits is not None:
            state.limits.forget(service.name)


def uncounted(state: State) -> "frozenset[bytes]":
    """Names that need no room in the table: what process 0 of the broker offers to its siblings."""
    return state.builtin.offered if state.process.count != 1 else frozenset()


def count(state: State) -> int:
    """Services of peers."""
    return len(state.services) - sum(name in state.services for name in uncounted(state))


def shortage(state: State, wanted: int) -> int:
    """The number of ``wanted`` new names that do not fit into the table."""
    return max(0, count(state) + wanted - state.policy.max_services)


def full(state: State) -> str:
    """Why a name was refused for which there is no room."""
    return f"there are already {len(state.services)} services"


def has_worker(state: State, name: bytes) -> bool:
    """Whether a worker of this or another broker offers the service."""
    known = state.services.get(name)
    return known is not None and bool(known.workers or known.remote)
