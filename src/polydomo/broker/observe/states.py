"""The states of workers, services and clients: registering, ready, busy, late, lost or left, with time and cause.

States that change with every request are derived: a worker is busy while it holds a request, a client while it has an open request.
Infrequent changes (registered, late, heard again, lost, left) are stored by ``monitor`` when they happen.
"""

from typing import NamedTuple

from polydomo.broker.state import State
from polydomo.broker.workers import silence
from polydomo.model.records import BUSY, DRAINED, LATE, PAUSED, READY, Service, Session, Worker


class PeerState(NamedTuple):
    state: str
    since: float  # the broker's clock
    cause: str


def of_worker(state: State, worker: Worker) -> PeerState:
    if not worker.alive:
        return PeerState(worker.state, worker.state_since, worker.state_cause)
    if worker.state == LATE:
        if silence.is_late(state, worker):
            return PeerState(LATE, worker.state_since, worker.state_cause)
        return PeerState(BUSY if worker.held else READY, worker.last_heard, "heard again")
    if worker.held:
        first = min(request.dispatched for request in worker.held.values())
        count = len(worker.held)
        return PeerState(BUSY, first, "holds a request" if count == 1 else f"holds {count} requests")
    return PeerState(READY, worker.state_since, worker.state_cause)


def of_service(state: State, service: Service) -> PeerState:
    """The state of a service is that of its best worker. Without workers, it is the state in which the last one left; registering if it
    never had one. A service of another broker is ready, because only that broker knows how busy its workers are. A service that was paused
    or drained is in that state until it is resumed."""
    if service.paused:
        return PeerState(PAUSED, state.since.get(service.name, 0.0), "its requests are queued until it is resumed")
    if service.drained:
        return PeerState(DRAINED, state.since.get(service.name, 0.0), "it rejects requests until it is resumed")
    if not service.workers:
        if service.remote:
            return PeerState(READY, service.no_worker_since, "another broker offers it")
        return PeerState(service.state, service.state_since, service.state_cause)
    if service.idle:
        return PeerState(READY, service.state_since, service.state_cause)
    states = [of_worker(state, worker) for worker in service.workers]
    for kind in (READY, BUSY):
        since = [known.since for known in states if known.state == kind]
        if since and kind == READY:
            return PeerState(READY, service.state_since, service.state_cause)
        if since:
            return PeerState(BUSY, max(since), "every worker holds a request")
    return PeerState(LATE, max(known.since for known in states), "every worker is late")


def of_client(session: Session) -> PeerState:
    first = next(iter(session.requests), None)
    if first is None:
        return PeerState(READY, session.since, "connected")
    count = len(session.requests)
    paused = ", and is paused because of a limit" if session.link.pauses else ""
    return PeerState(BUSY, first.accepted, f"waits for {'a reply' if count == 1 else f'{count} replies'}{paused}")
