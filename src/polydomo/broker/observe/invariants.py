"""Invariants that hold between any two calls of the broker. For tests: checks all collections against each other.

Each message names the service, the worker or the request.
"""

from polydomo import limits
from polydomo.broker import service_table
from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.requests import queues
from polydomo.broker.requests.outcomes import large
from polydomo.broker.sharing.shared_runs import SharedRuns
from polydomo.broker.state import State
from polydomo.model.outcomes import OUTCOMES
from polydomo.model.records import (
    DONE,
    HELD,
    NO_HISTORY,
    PARKED,
    QUEUED,
    HeldPartials,
    Request,
    Service,
    Session,
    Worker,
)
from polydomo.wire.link import PAUSE_AT_LIMIT, PAUSE_SHARE_USED, Hub


def check(state: State, bridging: Bridging, shares: "list[SharedRuns]", hub: Hub | None) -> None:
    """Raises AssertionError if the broker's state is inconsistent."""
    for service in state.services.values():
        _service(state, bridging, service)
    for worker in state.workers:
        _worker(state, bridging, shares, worker)
    for session in state.sessions:
        _session(state, session)
    _crews(state)
    _places(state)
    _totals(state, shares)
    _timers(state)
    _stalled(state, hub)
    _plain()
    _missed(bridging)
    _paused(state)
    state.unattended.check_invariants()
    if state.durable_requests is not None:
        state.durable_requests.check_invariants()
    for runs in shares:
        runs.check_invariants()


def _paused(state: State) -> None:
    for name, held in state.paused.items():
        for request in held:
            assert request.state == PARKED and request.service.name == name, (
                f"request {request.number} does not wait for a paused service"
            )
            assert request in request.session.requests, (
                f"request {request.number} waits for a paused service and is not open"
            )


def _service(state: State, bridging: Bridging, service: Service) -> None:
    who = f"service {service.name!r}"
    assert state.services.get(service.name) is service, f"{who} is registered under another name"
    line = queues.waiting(service)
    assert service.queue_length == len(line), f"{who} counts {service.queue_length} queued requests but has {len(line)}"
    assert len(set(line)) == len(line), f"{who} has a request in its queue twice"
    turns = [id(queue) for queue in service.round_robin]
    assert len(turns) == len(set(turns)), f"{who} lists a client twice in its round robin"
    assert set(turns) == {id(queue) for queue in service.client_queues.values()}, (
        f"{who}: the clients in the round robin differ from those with queues"
    )
    for session, queue in service.client_queues.items():
        assert queue, f"{who} keeps an empty queue for client {session.number}"
        for request in queue:
            assert request.session is session, f"request {request.number} waits in another client's queue"
    for request in line:
        assert request.state == QUEUED, f"request {request.number} waits in {who} but is not QUEUED"
        assert request.service is service, (
            f"request {request.number} waits in {who} but is for {request.service.name!r}"
        )
    for request in service.retries:
        assert request.attempts, f"request {request.number} was requeued without an attempt"
    for worker, weight in service.workers.items():
        assert worker in state.workers, f"{who} has a worker {worker.number} that the broker does not know"
        assert worker.services.get(service) == weight, f"{who} and worker {worker.number} disagree about its weight"
        assert not weight or service.weighted, f"{who} has weighted workers but is not marked as weighted"
    for worker in service.remote:
        assert bridging.learned[worker].get(service.name) is service, (
            f"{who} is offered by a bridge that does not list it"
        )
    pools = (("idle", service.idle), ("spare", service.partly_busy), ("prefetching", service.prefetching))
    for name, pool in (*pools, ("backlogged", service.backlogged)):
        for worker in pool:
            assert worker in service.workers, f"{who} has a {name} worker {worker.number} that does not offer it"
    if queues.startable(service):
        assert not any(pool for _, pool in pools), f"requests wait in {who} while workers are free"
    known = service.workers or service.queue_length or service.remote
    assert known, f"{who} has neither workers nor requests but was not removed"
    if queues.startable(service) and not service.workers and service.remote:
        assert service in bridging.blocked, f"requests wait in {who}, and no bridge will take them"
    if service.queue_length and not service.workers and not service.remote:
        assert service.timer, f"requests wait in {who}, no worker offers it, and no timer expires them"
    else:
        assert not service.timer, f"{who} has a timer without a reason"


def _worker(state: State, bridging: Bridging, shares: "list[SharedRuns]", worker: Worker) -> None:
    who = f"worker {worker.number}"
    assert worker.alive, f"{who} is listed but not alive"
    assert worker.credit >= 0, f"{who} has a credit of {worker.credit}"
    only = next(iter(worker.services), None) if len(worker.services) == 1 else None
    assert worker.only_service is only, f"{who} has the wrong home"
    for service in worker.services:
        assert state.services.get(service.name) is service, f"{who} offers {service.name!r}, which was removed"
        assert worker in service.workers, f"{who} offers {service.name!r}, which does not list it"
        assert (worker in service.idle) == bool(worker.credit and not worker.held), f"{who} is wrongly (not) idle"
        later = bool(worker.runs) and len(worker.held) >= worker.runs
        busy = bool(worker.credit and worker.held)
        assert (worker in service.partly_busy) == (busy and not later), f"{who} is wrongly (not) spare"
        assert (worker in service.prefetching) == (busy and later), f"{who} is wrongly (not) prefetching"
        if worker.runs and len(worker.held) > worker.runs:
            assert worker in service.backlogged, f"{who} has requests that it has not started, and nothing moves them"
    if worker.auto_credit > 1:
        room = max(0, worker.auto_credit - len(worker.held))
        assert worker.credit == room, f"{who} has room for {room} requests and a credit of {worker.credit}"
    for token, request in worker.held.items():
        assert request.token == token, f"{who} holds request {request.number} under an old token"
        if request.state != DONE:
            assert request.state == HELD, f"{who} holds request {request.number}, which is queued"
            assert request.worker is worker, f"{who} holds request {request.number}, which another worker has"
            offers = (
                request.service in worker.services
                or worker in bridging.learned
                or any(runs.worker is worker for runs in shares)
            )
            assert offers, f"{who} holds a request for a service it does not offer"
    if worker.orphaned_until:
        assert not worker.credit, f"{who} has lost its connection but still gets requests"
        assert worker not in state.session_workers.get(worker.session, {}), (
            f"{who} has lost its connection but is still listed there"
        )
    else:
        assert worker in state.session_workers.get(worker.session, {}), f"{who} is on no connection's list"
        assert worker.session in state.sessions, f"{who} is on a connection that is gone"
    if worker.max_silence or worker.orphaned_until:
        assert worker.timer, f"{who} has no timer for its silence"


def _session(state: State, session: Session) -> None:
    who = f"connection {session.number}"
    assert not session.disconnected or session.requests, f"{who} is listed but closed"
    for request in session.requests:
        assert request.session is session, f"{who} lists another's request {request.number}"
        _open(state, request)


def _open(state: State, request: Request) -> None:
    who = f"request {request.number}"
    worker = request.worker
    assert request.state in (QUEUED, HELD, PARKED), f"{who} is listed as open but has ended"
    assert not request.outcome, f"{who} is open but has an outcome"
    if request.state == HELD:
        assert worker is not None and worker.held.get(request.token) is request, f"{who} is held, but by no worker"
        assert worker in state.workers, f"{who} is held by a worker that is gone"
        bound = request.deadline or request.max_run
    elif request.state == PARKED:
        waits = request in state.paused.get(request.service.name, {})
        waits = waits or (state.durable_requests is not None and state.durable_requests.parks(request))
        assert waits and worker is None, f"{who} is parked, but nothing will resume it"
        bound = request.deadline
    else:
        assert worker is None, f"{who} is queued but still has a worker"
        assert state.services.get(request.service.name) is request.service, f"{who} waits in a removed service"
        bound = request.deadline or request.queue_deadline
    assert bool(request.timer) == bool(bound), f"{who} has a time limit but no timer, or a timer but no time limit"
    course = request.history
    parts = course.held_partials if course.held_partials is not None else HeldPartials()
    held = sum(map(len, parts.bodies))
    assert held == parts.size, f"{who} counts {parts.size} bytes of partial replies but holds {held}"
    assert held <= state.policy.max_message, f"{who} holds more partials than a message may have bytes"
    assert len(parts.bodies) <= limits.MAX_BODY_FRAMES + 1, f"{who} holds more partials than a body may have frames"
    assert not (parts.bodies and course.partials), f"{who} holds partials of a client that takes them"
    allowed = course.attempts_before_forward + (request.max_attempts or state.policy.attempts) + course.releases
    assert request.attempts <= allowed, f"{who} has too many attempts"


def _crews(state: State) -> None:
    for session, crew in state.session_workers.items():
        who = f"connection {session.number}"
        assert crew, f"{who} has an empty list of workers"
        assert session.worker_count == len(crew), f"{who} counts {session.worker_count} workers and has {len(crew)}"
        for worker in crew:
            assert worker.session is session, f"worker {worker.number} is listed at another connection"
            assert worker in state.workers, f"{who} lists worker {worker.number}, which is gone"
    for session in state.sessions:
        assert session in state.session_workers or not session.worker_count, (
            f"connection {session.number} counts workers it does not have"
        )


def _places(state: State) -> None:
    """Every open request is in exactly one place, and every request in a place is open or has ended while its worker still runs it."""
    places: dict[Request, int] = {}
    for service in state.services.values():
        for request in queues.waiting(service):
            places[request] = places.get(request, 0) + 1
    for worker in state.workers:
        for request in worker.held.values():
            places[request] = places.get(request, 0) + 1
            if request.state == DONE:
                assert request.outcome in OUTCOMES, f"request {request.number} ended without an outcome"
                assert not request.body and request.history.held_partials is None, (
                    f"request {request.number} ended and still has its body"
                )
                assert request not in request.session.requests, f"request {request.number} ended and is still open"
    for request, count in places.items():
        assert count == 1, f"request {request.number} is in {count} places"
        if request.state != DONE:
            assert request.state != PARKED, f"request {request.number} is parked and in a queue or with a worker"
            assert request in request.session.requests, (
                f"request {request.number} is open but its client does not list it"
            )
            assert request.session in state.sessions, f"request {request.number} is open but its client is gone"
    for session in state.sessions:
        for request in session.requests:
            nowhere = request not in places and request.state != PARKED
            assert not nowhere, f"request {request.number} is open but in no place"


def _missed(bridging: Bridging) -> None:
    for worker, name in bridging.missed:
        assert worker in bridging.learned, f"{name!r} has a pending offer of a bridge that is gone"


def _plain() -> None:
    assert NO_HISTORY.is_empty(), "the shared history of simple requests was modified"


def _totals(state: State, shares: "list[SharedRuns]") -> None:
    found = [request for session in state.sessions for request in session.requests]
    parts = [request.history.held_partials for request in found]
    size = sum(len(request.body) for request in found) + sum(part.size for part in parts if part is not None)
    size += sum(runs.parts_bytes for runs in shares)
    assert state.held_bytes == size, f"the broker counts {state.held_bytes} held bytes but holds {size}"
    for session in state.sessions:
        size = sum(large(request.body) for request in session.requests)
        assert session.held_bytes == size, f"a client counts {session.held_bytes} held bytes but has {size}"
    assert service_table.count(state) <= state.policy.max_services, f"{len(state.services)} services"


def _timers(state: State) -> None:
    """No timer remains for something that has ended, and every timer is stored under its key."""
    for key, item in state.timers.items():
        if isinstance(item, Request):
            assert item.state != DONE, f"a timer is kept for request {item.number}, which has ended"
            assert item.timer == key, f"request {item.number} is kept under a timer it does not know"
        elif isinstance(item, Worker):
            assert item.alive, f"a timer is kept for worker {item.number}, which is gone"
            assert item.timer == key, f"worker {item.number} is kept under a timer it does not know"
        elif isinstance(item, Service):
            assert item.timer == key, f"service {item.name!r} is kept under a timer it does not know"
    kept = dict.fromkeys(item for _, item in state.timers.items())
    for worker in state.workers:
        assert not worker.timer or worker in kept, f"the timer of worker {worker.number} is not kept"
    for service in state.services.values():
        assert not service.timer or service in kept, f"the timer of service {service.name!r} is not kept"
    for session in state.sessions:
        for request in session.requests:
            assert not request.timer or request in kept, f"the timer of request {request.number} is not kept"


def _stalled(state: State, hub: Hub | None) -> None:
    for session in state.paused_clients:
        assert session in state.sessions, f"connection {session.number} is stalled and gone"
        assert not session.worker_count, f"connection {session.number} carries a worker and is stalled"
        assert session.link.pauses & PAUSE_AT_LIMIT, f"connection {session.number} is stalled and still read"
    turns = hub.turns if hub is not None else None
    if turns is not None:
        turns.check_invariants()
    for session in state.sessions:
        if session.disconnected:
            continue
        if session.link.pauses & PAUSE_SHARE_USED:
            assert turns is not None and session.link in turns, (
                f"connection {session.number} is paused for its turn but is not waiting for one"
            )
        if session.link.pauses & PAUSE_AT_LIMIT:
            assert session in state.paused_clients, f"connection {session.number} is paused and nothing will wake it"
        elif not session.worker_count and not session.is_internal:
            room = state.policy.max_outstanding - len(session.requests)
            assert room > 0, f"connection {session.number} has {len(session.requests)} open requests and is still read"
