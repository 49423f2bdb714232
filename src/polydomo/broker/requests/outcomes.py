"""Outcomes: how requests end. Every accepted request ends in ``end``, except those to built-in services."""

from polydomo.broker import service_table
from polydomo.broker.observe.tallies import STANDING_IN
from polydomo.broker.requests import deadlines, dispatch, pausing, progress, queues, transitions
from polydomo.broker.state import State
from polydomo.limits import SMALL_BODY
from polydomo.model.outcomes import CANCELLED, DENIED, OK, OUTCOMES, REFUSED
from polydomo.model.records import NO_HISTORY, PARKED, QUEUED, Request, Worker
from polydomo.wire.frames import Body

KNOWN = frozenset(OUTCOMES)


def large(body: Body) -> int:
    """The size that counts against a client's limit of bytes."""
    size = len(body)
    return size if size > SMALL_BODY else 0


def end(state: State, request: Request, outcome: str, reason: str) -> None:
    """Ends an accepted request. Called exactly once for every accepted request, before anything final is sent to its client."""
    transitions.end(state, request, outcome, reason)
    if request.time_limits is not None:
        deadlines.disarm(state, request)
    session = request.session
    if session.disconnected:
        state.unattended.ended(request)
    service = request.service
    if outcome == OK:
        service.answered += 1
        try:
            service.new_durations[session.counted_as].append(state.now - request.accepted)
        except KeyError:
            state.tallies.tally(service, session.counts_as(request)).fresh.append(state.now - request.accepted)
    else:
        service.failed += 1
        protocol = session.counts_as(request)
        state.tallies.tally(service, protocol).fail(outcome)
        if protocol not in STANDING_IN:
            state.errors.add(request, request.worker, outcome, reason, state.now)
    if state.records_requests:
        state.recorder.ended(request)
    if state.acceptance_times is not None:
        state.acceptance_times.add(request)
    request.body = b""
    if request.history is not NO_HISTORY:
        progress.drop(request)
        drop_held_partials(state, request)
    if not service.workers and not service.queue_length:
        service_table.forget_unused(state, service)


def fail(state: State, request: Request, outcome: str, reason: str) -> None:
    """Ends a request without a reply, and sends its client a failure if the protocol has one."""
    end(state, request, outcome, reason)
    request.session.send_failure(request, outcome, reason)


def refuse(state: State, request: Request, text: str, outcome: str = REFUSED) -> None:
    """Rejects a request. It was never open, so ``end`` is not called."""
    count_refusal(state, request, outcome, text)
    request.session.send_failure(request, outcome, text)


def count_refusal(state: State, request: Request, outcome: str, text: str) -> None:
    transitions.refuse(request, outcome, text)
    state.counters.refused += 1
    state.recorder.refused(request.session, text)


def deny(request: Request, why: str) -> None:
    """Rejects a request because its client lacks the right. ``broker.guard.access`` has recorded the denial."""
    transitions.refuse(request, DENIED, why)
    request.session.send_failure(request, DENIED, why)


def cancel(state: State, request: Request, why: str, outcome: str = CANCELLED) -> None:
    """The client no longer waits. The worker that holds the request gets a cancellation, if its protocol has one; it may finish the request
    otherwise, and its reply is dropped."""
    worker = request.worker
    if request.state == QUEUED:
        queues.remove(request.service, request)
    elif request.state == PARKED:
        if unpark(state, request):
            return
    elif worker is not None and taken_back(worker, request):
        del worker.held[request.token]
        dispatch.put_down(state, request)
        end(state, request, outcome, why)
        dispatch.request_released(state, worker)
        return
    end(state, request, outcome, why)


def taken_back(worker: Worker, request: Request) -> bool:
    """Cancels the request at its worker. Returns True if the worker does not hold it any more."""
    if worker.orphaned_until or worker.session.disconnected:
        return False
    return worker.session.cancel_request(worker, request)


def cancel_and_tell(state: State, request: Request, why: str, outcome: str = CANCELLED) -> None:
    """Somebody else than the client cancels the request. The client gets a failure if the protocol has one."""
    cancel(state, request, why, outcome)
    request.session.send_failure(request, outcome, why)


def unpark(state: State, request: Request) -> bool:
    """Stops the request's wait for the job store or a paused service. Returns True if that ended the request."""
    if pausing.release(state, request) or state.durable_requests is None:
        return False
    return state.durable_requests.abandoned(request)


def drop_held_partials(state: State, request: Request) -> None:
    """Discards partial replies that were held for the client."""
    parts = request.history.held_partials
    if parts is not None:
        state.held_bytes -= parts.size
        if parts.held_for is not None:
            parts.held_for.partial_bytes -= parts.size
        request.history.held_partials = None
