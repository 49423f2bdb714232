"""The state of everything that is watched: registering, ready, busy, late, lost or left, since when, and why.

What changes with every request is not kept but read off: a worker is busy while it holds a request, a client while one of its requests is
open. What changes rarely (it registered, is late, is heard again, was lost, left) is written down when it happens, by ``monitor``.
"""

from typing import TYPE_CHECKING, NamedTuple

from polydomo.broker import liveness
from polydomo.protocols.model import BUSY, LATE, READY, Service, Worker
from polydomo.protocols.session import Session

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
    """As good as its best worker. Without one it is as the last one left it; registering, if it never had one but is asked for. Where
    another broker offers it, it is ready: how busy its workers are is known only there."""
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
    paused = ", and is not read because of a bound" if session.link.pauses else ""
    return State(BUSY, first.accepted, f"waits for {'a reply' if count == 1 else f'{count} replies'}{paused}")
