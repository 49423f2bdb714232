"""The states of workers, services and clients: registering, ready, busy, late, lost or left, with time and cause.

States that change with every request are derived: a worker is busy while it holds a request, a client while it has an open request.
Infrequent changes (registered, late, heard again, lost, left) are stored by ``monitor`` when they happen.
"""

from typing import TYPE_CHECKING, NamedTuple

from polydomo.broker.workers import liveness
from polydomo.model.service import BUSY, DRAINED, LATE, PAUSED, READY, Service, Worker
from polydomo.model.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


class State(NamedTuple):
    state: str
    since: float  # the broker's clock
    cause: str


def of_worker(broker: "Broker", worker: Worker) -> State:
    if not worker.alive:
        return State(worker.state, worker.state_since, worker.state_cause)
    if worker.state == LATE:
        if liveness.is_late(broker, worker):
            return State(LATE, worker.state_since, worker.state_cause)
        return State(BUSY if worker.held else READY, worker.last_heard, "heard again")
    if worker.held:
        first = min(request.dispatched for request in worker.held.values())
        count = len(worker.held)
        return State(BUSY, first, "holds a request" if count == 1 else f"holds {count} requests")
    return State(READY, worker.state_since, worker.state_cause)


def of_service(broker: "Broker", service: Service) -> State:
    """The state of a service is that of its best worker. Without workers, it is the state in which the last one left; registering if it
    never had one. A service of another broker is ready, because only that broker knows how busy its workers are. A service that was paused
    or drained is in that state until it is resumed."""
    if service.paused:
        return State(PAUSED, broker.control.since.get(service.name, 0.0), "its requests are queued until it is resumed")
    if service.drained:
        return State(DRAINED, broker.control.since.get(service.name, 0.0), "it rejects requests until it is resumed")
    if not service.workers:
        if service.remote:
            return State(READY, service.no_worker_since, "another broker offers it")
        return State(service.state, service.state_since, service.state_cause)
    if service.idle:
        return State(READY, service.state_since, service.state_cause)
    states = [of_worker(broker, worker) for worker in service.workers]
    for state in (READY, BUSY):
        since = [known.since for known in states if known.state == state]
        if since and state == READY:
            return State(READY, service.state_since, service.state_cause)
        if since:
            return State(BUSY, max(since), "every worker holds a request")
    return State(LATE, max(known.since for known in states), "every worker is late")


def of_client(session: Session) -> State:
    first = next(iter(session.requests), None)
    if first is None:
        return State(READY, session.since, "connected")
    count = len(session.requests)
    paused = ", and is paused because of a limit" if session.link.pauses else ""
    return State(BUSY, first.accepted, f"waits for {'a reply' if count == 1 else f'{count} replies'}{paused}")
