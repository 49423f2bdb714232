"""Room in the table of services for names that workers and bridges offer."""

from polydomo.broker import service_table
from polydomo.broker.requests import outcomes, queues
from polydomo.broker.state import State
from polydomo.model.outcomes import NO_WORKER
from polydomo.model.records import Request, Session


def make_room(state: State, names: "list[bytes]", session: "Session | None" = None) -> bool:
    """Makes room for services that a worker or a bridge offers. If the table is full, services that only have queued requests are removed,
    so that clients which invent names cannot keep workers out: first those never offered, then those that have waited longest."""
    offered = set(names)
    wanted = len(offered - state.services.keys())
    missing = service_table.shortage(state, wanted) if wanted else 0
    if not missing:
        return True
    if session is not None:
        session.link.charge(len(state.services) >> 3)  # charged to the connection that caused the search
    kept = offered | service_table.uncounted(state)
    removable = [
        service
        for name, service in state.services.items()
        if not service.workers and not service.remote and name not in kept
    ]
    if len(removable) < missing:
        return False
    removable.sort(key=lambda service: (service.answered > 0, service.no_worker_since))
    reason = "no worker offers the service, and the service table was full"
    for service in removable[:missing]:
        for request in queues.waiting(service):
            queues.remove(service, request)
            outcomes.fail(state, request, NO_WORKER, reason)
        service_table.forget_unused(state, service)
    return True


def restore(state: State, request: Request) -> None:
    """A bridge returned a request whose service may have been removed. Ends the request if there is no room for the service."""
    name = request.service.name
    if make_room(state, [name]):
        request.service = state.services.get(name) or service_table.add(state, request.service)
    else:
        outcomes.fail(state, request, NO_WORKER, f"no worker offers the service, and {service_table.full(state)}")
