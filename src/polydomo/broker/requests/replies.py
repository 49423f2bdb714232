"""Replies of workers for the requests they hold. A reply with a token that the worker does not hold is stale and dropped."""

from polydomo import limits
from polydomo.broker import service_table
from polydomo.broker.guard import backpressure
from polydomo.broker.guard.rules import CALL
from polydomo.broker.requests import deadlines, dispatch, outcomes, progress, queues, transitions
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.model.outcomes import DENIED, FAILED, OK, REFUSED, TOO_LARGE
from polydomo.model.records import DONE, NOT_ASKED, HeldPartials, Request, Worker
from polydomo.model.registration import Refusal
from polydomo.wire.frames import Body, chain, count


def partial(state: State, worker: Worker, token: bytes, body: Body) -> bool:
    request = worker.held.get(token)
    if request is None:
        stale(state, worker, token, "partial", len(body))
        return False
    worker.last_heard = state.now
    worker.session.link.charge(limits.WORK_REQUEST)
    if request.state == DONE:
        return True  # the client is no longer waiting
    history = request.own_history()
    if not history.first_partial:
        history.first_partial = state.now
    if state.records_messages:
        if state.records_bodies:
            state.recorder.reply_body(request, body)
        state.recorder.partial(request, worker, len(body))
    session = request.session
    if session.takes_partials:
        history.partials += 1
        request.reply_size += len(body)
        session.send_partial(request, body)
        return True
    parts = history.held_partials
    if parts is None:
        parts = history.held_partials = HeldPartials()
    if fits(state, parts, body):
        parts.bodies.append(body)
        parts.size += len(body)
        parts.held_for = worker.session
        worker.session.partial_bytes += len(body)
        parts.frames += max(1, count(body))
        state.held_bytes += len(body)
        if session.keeps_parts:
            session.send_partial(request, body)
    else:
        too_large(state, request)
    return True


def report_progress(state: State, worker: Worker, token: bytes, share: float, text: str) -> bool:
    """How far the request is. Nothing of it is in the reply."""
    request = worker.held.get(token)
    if request is None:
        stale(state, worker, token, "progress", len(text))
        return False
    worker.last_heard = state.now
    worker.session.link.charge(limits.WORK_REQUEST)
    if request.state != DONE:
        progress.take(state, request, worker.session, share, text)
    return True


def count_reply(worker: Worker, request: Request, now: float) -> None:
    """The worker has answered the request. ``Broker.final`` does the same inline."""
    worker.last_heard = now
    worker.done += 1
    took = now - request.dispatched
    worker.busy_time += took
    if took > worker.slowest:
        worker.slowest = took


def final_with_history(state: State, request: Request, worker: Worker, body: Body) -> None:
    """A final reply to a request that has ended, was dispatched before, or had partial replies."""
    progress.pass_last(state, request)
    parts = request.history.held_partials
    if request.state == DONE:
        if state.records_messages:
            state.recorder.reply_ignored(request, worker)
    elif parts is not None:
        final_after_partials(state, request, parts, body)
    else:
        reply_with(state, request, body)


def reply_with(state: State, request: Request, body: Body) -> None:
    """Ends an open request with this reply."""
    request.reply_size += len(body)
    if state.records_bodies:
        state.recorder.reply_body(request, body)
    outcomes.end(state, request, OK, "")
    request.session.send_final(request, body)


def final_after_partials(state: State, request: Request, parts: HeldPartials, body: Body) -> None:
    """The final reply of a request whose partials were held for its client: they are sent as one."""
    if not fits(state, parts, body):
        too_large(state, request)
        return
    reply_with(state, request, chain([*parts.bodies, body]))


def fail(state: State, worker: Worker, token: bytes, code: str, text: str) -> bool:
    request = worker.held.pop(token, None)
    if request is None:
        stale(state, worker, token, "failure", len(text))
        return False
    dispatch.put_down(state, request)
    count_reply(worker, request, state.now)
    progress.pass_last(state, request)
    worker.failures += 1
    if request.state != DONE:
        failed(state, request, code, text)
    elif state.records_messages:
        state.recorder.reply_ignored(request, worker)
    dispatch.request_released(state, worker)
    return True


def failed(state: State, request: Request, code: str, text: str) -> None:
    """The client gets the worker's failure code; the outcome is FAILED."""
    outcomes.end(state, request, FAILED, f"{code}: {text}")
    request.session.send_failure(request, code, text)


def forward(state: State, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
    request = worker.held.get(token)
    if request is None:
        stale(state, worker, token, "forward", len(body))
        return False
    worker.last_heard = state.now
    refusal = _refusal_to_forward(state, request, service) if request.state != DONE else None
    del worker.held[token]
    dispatch.put_down(state, request)
    if refusal is not None:
        outcomes.fail(state, request, DENIED if refusal.denied else REFUSED, refusal.text)
    else:
        worker.done += 1
        if worker.credit > 0:
            dispatch.mark_available(worker)  # it may be idle now, and may offer that service too
        if request.state != DONE:
            target = state.services.get(service)
            length, offering = (target.queue_length, len(target.workers)) if target is not None else (0, 0)
            state.recorder.forwarded(request, worker, service, length, offering)
            _move_to(state, request, service, body, ref)
        elif state.records_messages:
            state.recorder.reply_ignored(request, worker)
    dispatch.request_released(state, worker)
    return True


def _refusal_to_forward(state: State, request: Request, name: bytes) -> Refusal | None:
    """Why a held request may not be forwarded to this service; None if it may."""
    if request.history.forwards >= limits.MAX_CHAIN:
        return Refusal(f"the request has already been forwarded {request.history.forwards} times")
    target = state.services.get(name)
    session = request.session
    if is_reserved(name):  # denied: no other process or broker would allow it
        shown = name.decode(errors="replace")
        return Refusal(f"{shown!r} is a built-in service; a request cannot be forwarded to it", denied=True)
    why = state.rights.denial_of(request, CALL, name)
    if why:
        return Refusal(why, denied=True)
    if target is not None:
        full = target.queue_length >= state.max_queue
        if full and session.worker_count and not session.windowed:
            return Refusal("the queue of the service is full, and a connection with workers cannot be paused")
        return None
    why = registration.name_refusal(state, name)
    if not why and service_table.shortage(state, 1):
        why = service_table.full(state)
    return Refusal(why) if why else None


def _move_to(state: State, request: Request, name: bytes, body: Body, ref: object) -> None:
    """Queues the request for another service, with a new body."""
    state.held_bytes += len(body) - len(request.body)
    request.session.held_bytes += outcomes.large(body) - outcomes.large(request.body)
    before = request.service
    service = service_table.find_or_add(state, name)
    request.service = service
    request.body = body
    request.ref = ref
    transitions.requeue(request)
    progress.drop(request)
    history = request.own_history()
    history.forwards += 1
    history.attempts_before_forward = request.attempts
    if request.max_attempts and request.session.is_internal:
        request.max_attempts = (
            1  # an attempt of a durable job: the job counts attempts, and decides whether there is another one
        )
    history.releases = 0
    history.revoked = NOT_ASKED
    queues.push(service, request)
    if request.time_limits is not None:
        deadlines.start_waiting(state, request, request.time_limits)
    if not service.workers and not service.remote:
        deadlines.watch_service(state, service, request)
    dispatch.serve_queue(state, service)
    # The client whose request fills this queue is paused, although it called another service.
    if service.queue_length >= state.max_queue and request.session not in state.paused_clients:
        backpressure.pause(state, request.session, service)
    service_table.forget_unused(state, before)


def stale(state: State, worker: Worker, token: bytes, what: str, size: int) -> None:
    state.counters.stale += 1
    state.recorder.stale(worker, token, what, size)


def fits(state: State, parts: HeldPartials, body: Body) -> bool:
    """Whether one more part keeps the joined reply within the limits of a message, in bytes and in frames."""
    size = parts.size + len(body)
    return size <= state.policy.max_message and parts.frames + count(body) <= limits.MAX_BODY_FRAMES


def too_large(state: State, request: Request) -> None:
    bound = f"{state.policy.max_message} bytes or {limits.MAX_BODY_FRAMES} frames"
    outcomes.fail(state, request, TOO_LARGE, f"the partial replies exceed {bound} in total")
