"""Workers: registration, services, departure and loss. The requests of a lost worker are requeued."""

from polydomo import limits
from polydomo.broker import service_room, service_table
from polydomo.broker.guard import backpressure
from polydomo.broker.guard.rules import OFFER
from polydomo.broker.requests import deadlines, dispatch, outcomes, pausing, progress, queues, transitions
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.broker.workers import silence
from polydomo.model.outcomes import GAVE_UP, INTERRUPTED, NO_WORKER, SHUTDOWN
from polydomo.model.records import DONE, NOT_ASKED, Departure, Request, Service, Session, Worker
from polydomo.model.registration import Refusal, WorkerTerms

SHUTTING_DOWN = "the broker is shutting down"
TOO_MANY = f"the workers of one connection offer more than {limits.MAX_REGISTRATIONS} services in total"


def register(
    state: State,
    session: Session,
    services: "list[bytes]",
    ref: object,
    terms: WorkerTerms,
    weights: "list[int] | None",
) -> Worker | Refusal:
    if services and not session.role.allows_workers:
        return Refusal(f"the listener {session.role.name} does not accept workers")
    for name in services:
        refusal = _offer_refusal(state, session, name)
        if refusal is not None:
            return refusal
    if len(services) > limits.MAX_SERVICES_PER_WORKER:
        return Refusal(f"a worker offers {len(services)} services; the limit is {limits.MAX_SERVICES_PER_WORKER}")
    if session.registrations + len(services) > limits.MAX_REGISTRATIONS:
        return Refusal(TOO_MANY)
    session.link.charge(limits.WORK_REGISTER * (4 + len(services)))
    if not service_room.make_room(state, services, session):
        return Refusal(service_table.full(state))
    worker = Worker(session, ref, terms.credit, terms.auto_credit, terms.heartbeat_interval, terms.max_silence)
    state.newest_worker += 1
    worker.number = state.newest_worker
    worker.last_heard = worker.last_sent = worker.registered_at = worker.state_since = state.now
    worker.polling = session.polls
    worker.beats_while_busy = terms.strict
    worker.name = session.peer_name
    state.workers[worker] = None
    _join_session(state, worker, session)
    for i, name in enumerate(services):
        _enroll(state, worker, name, weights[i] if weights is not None else 0)
    silence.schedule(state, worker)
    state.observer.registered(worker)
    state.recorder.registered(worker)
    if worker.credit > 0:
        dispatch.serve_worker(state, worker)
    return worker


def _offer_refusal(state: State, session: Session, name: bytes) -> Refusal | None:
    """Why this peer may not offer a service of this name; None if it may."""
    why = name_refusal(state, name)
    if why:
        return Refusal(why)
    why = state.rights.denial(session, OFFER, name)
    return Refusal(why, denied=True) if why else None


def name_refusal(state: State, name: bytes) -> str:
    """Why no peer may offer a service of this name; "" if peers may."""
    if is_reserved(name):
        return f"the name {name.decode(errors='replace')!r} is reserved"
    if len(name) > limits.MAX_SERVICE_NAME:
        return f"service name of {len(name)} bytes"
    return SHUTTING_DOWN if state.draining else ""


def _enroll(state: State, worker: Worker, name: bytes, weight: int) -> None:
    service = service_table.find_or_add(state, name)
    worker.services[service] = weight
    worker.session.registrations += 1
    state.registrations += 1
    worker.only_service = service if len(worker.services) == 1 else None
    service.workers[worker] = weight
    if len(service.workers) == 1:
        state.routes.offer_changed(service)
    if weight:
        service.weighted = True
    deadlines.unwatch_service(state, service)
    if worker.runs:
        dispatch.note_backlog(worker)
    if state.offered is not None:
        state.offered[name] = None


def add_service(state: State, worker: Worker, name: bytes, weight: int) -> Refusal | None:
    if not worker.alive:
        return Refusal("the worker has left")
    refusal = _offer_refusal(state, worker.session, name)
    if refusal is not None:
        return refusal
    if len(worker.services) >= limits.MAX_SERVICES_PER_WORKER:
        return Refusal(f"a worker offers more than {limits.MAX_SERVICES_PER_WORKER} services")
    if name in state.services and state.services[name] in worker.services:
        return None
    if worker.session.registrations >= limits.MAX_REGISTRATIONS:
        return Refusal(TOO_MANY)
    worker.session.link.charge(limits.WORK_REGISTER)
    if not service_room.make_room(state, [name], worker.session):
        return Refusal(service_table.full(state))
    _enroll(state, worker, name, weight)
    state.observer.offered(worker, state.services[name])
    state.recorder.registered(worker)
    if worker.credit > 0:
        dispatch.serve_worker(state, worker)
        # Requests for the new service may have used up the credit available to its other services.
        if not worker.credit:
            dispatch.mark_unavailable(worker)
    return None


def lose(state: State, worker: Worker, departure: Departure, why: str) -> None:
    """Removes a worker. Its requests are requeued at the head of their queues."""
    if not worker.alive:
        return
    silent, allowed = silence.measure(state, worker)
    worker.alive = False
    worker.state = departure.state
    worker.state_since = state.now
    worker.state_cause = why
    worker.credit = 0
    dispatch.mark_unavailable(worker)
    if worker.timer:
        state.timers.remove(worker.timer, worker)
    del state.workers[worker]
    state.affinity.left(worker)
    state.registrations -= len(worker.services)
    _leave_session(state, worker)
    held = list(worker.held.values())
    state.recorder.left(worker, departure, why, held, silent, allowed)
    worker.held.clear()
    is_bridge = worker.session.is_bridge
    # Before it is removed from its services, because a request that ends here must not remove its service.
    for request in reversed(held):
        dispatch.put_down(state, request)
        if is_bridge and request.state != DONE:
            service_room.restore(state, request)
        requeue(state, request, worker, why)
    for service in worker.services:
        del service.workers[worker]
        service.backlogged.pop(worker, None)
        if not service.workers:
            service.no_worker_since = state.now
            service.weighted = False
            state.routes.offer_changed(service)
    state.observer.left(worker)
    for service in list(worker.services):
        if service.backlogged:
            dispatch.rebalance(state, service)
        if state.draining:
            end_unserved(state, service)
        if service.queue_length:
            if not service.workers and not service.remote and not service.timer:
                deadlines.watch_service(state, service)
            dispatch.serve_queue(state, service)
        else:
            service_table.forget_unused(state, service)
    if is_bridge:
        state.routes.bridge_lost(worker, held)
    if state.freed:
        dispatch.serve_freed(state)
    worker.session.on_worker_gone(worker)


def requeue(state: State, request: Request, worker: Worker, why: str) -> None:
    """The worker no longer holds the request: requeues it at the head of its queue, or ends it."""
    worker.failures += 1
    if request.state == DONE:
        request.worker = None
        return
    _requeue(state, request, worker, why)


def take_back(state: State, request: Request, worker: Worker) -> None:
    """The worker released the request without having started it, which does not count as an attempt."""
    history = request.own_history()
    started = history.partials > history.partials_before or history.held_partials is not None
    # A worker that releases everything must not keep a request for ever.
    counts = started or history.releases >= limits.MAX_RELEASES
    if not counts:
        history.releases += 1
    _requeue(state, request, worker, "it had not been started", moved=not counts)


def _requeue(state: State, request: Request, worker: Worker, why: str, moved: bool = False) -> None:
    if not worker.alive:
        request.worker = None  # otherwise its end frees the worker, and is recorded as such
    progress.drop(request)
    outcomes.drop_held_partials(state, request)  # they belong to the lost attempt
    policy = state.policy
    history = request.own_history()
    history.revoked = NOT_ASKED
    allowed = (request.max_attempts or policy.attempts) + history.releases
    tried = request.attempts - history.attempts_before_forward
    if history.partials and not policy.requeue_after_partial:
        parts = "1 partial reply" if history.partials == 1 else f"{history.partials} partial replies"
        text = f"the worker was lost after {parts} ({why})"
        outcomes.fail(state, request, INTERRUPTED, text)
    elif state.draining and not moved:  # before the next case: it uses up no attempt of a durable job
        outcomes.fail(state, request, SHUTDOWN, SHUTTING_DOWN)
    elif tried >= allowed:
        count = tried - history.releases
        ended = (
            f"the attempt ended without a reply: {why}"
            if count == 1
            else f"{count} attempts ended without a reply; the last one: {why}"
        )
        outcomes.fail(state, request, GAVE_UP, ended)
    elif request.service.limits is not None and request.session.is_sibling:
        # Another start needs another permit. The process that sent it has, or asks for, the next one.
        outcomes.fail(state, request, NO_WORKER, f"it has to start again ({why})")
    else:
        history.partials_before = history.partials
        service = request.service
        others = len(service.workers) - (worker in service.workers)
        history.lost_by = worker.session
        if not moved:
            service.requeued += 1
        if service.paused:
            pausing.hold(state, request)
        else:
            transitions.requeue(request)
            queues.push_front(service, request)
            if request.time_limits is not None:
                deadlines.start_waiting(state, request, request.time_limits)
        if moved:
            state.recorder.released(request, worker, why, service.queue_length, others)
        else:
            state.recorder.requeued(request, worker, why, service.queue_length, others)


def end_unserved(state: State, service: Service) -> None:
    """At shutdown: ends the requests that wait for a service without workers."""
    if not service.workers and not service.remote:
        for request in queues.waiting(service):
            queues.remove(service, request)
            outcomes.fail(state, request, SHUTDOWN, SHUTTING_DOWN)


def orphan(state: State, worker: Worker, seconds: float) -> None:
    if worker.alive:
        dispatch.clear_credit(worker)
        worker.polling = False
        worker.orphaned_until = state.now + seconds
        _leave_session(state, worker)
        silence.reschedule(state, worker)


def adopt(state: State, worker: Worker, session: Session) -> None:
    if worker.alive:
        _leave_session(state, worker)
        worker.session = session
        worker.orphaned_until = 0.0
        worker.last_heard = state.now
        _join_session(state, worker, session)
        silence.reschedule(state, worker)


def _join_session(state: State, worker: Worker, session: Session) -> None:
    state.session_workers.setdefault(session, {})[worker] = None
    session.worker_count += 1
    session.registrations += len(worker.services)
    backpressure.first_worker(state, session)


def _leave_session(state: State, worker: Worker) -> None:
    session = worker.session
    others = state.session_workers.get(session)
    if others is not None and worker in others:
        del others[worker]
        session.worker_count -= 1
        session.registrations -= len(worker.services)
        if not others:
            del state.session_workers[session]
            backpressure.no_worker_left(state, session)
