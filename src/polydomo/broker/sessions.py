"""Sessions: opening and closing of connections, and reports of protocol violations."""

from polydomo.broker.requests import dispatch, outcomes
from polydomo.broker.requests.acceptance_times import AcceptanceTimes
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_VIOLATIONS, WORK_VIOLATION
from polydomo.model.records import Departure, Session
from polydomo.model.registration import Refusal
from polydomo.wire.close_reason import CloseReason


def opened(state: State, session: Session) -> None:
    state.newest_session += 1
    session.number = state.newest_session
    if state.draining or (state.rights.in_force and not session.is_sibling):
        session.may_request = False  # each of its requests goes to ``admission.resolve``
    state.sessions[session] = None
    if session.publishes and state.acceptance_times is None:
        state.acceptance_times = AcceptanceTimes()
    for listener in state.listeners:
        listener.opened(session)
    state.recorder.opened(session)


def internal(state: State, session: Session) -> None:
    """A client inside the broker, without a connection: it has a number, so that the journal can name it."""
    state.newest_session += 1
    session.number = state.newest_session
    state.sessions[session] = None
    state.recorder.internal(session)


def closed(state: State, session: Session, reason: CloseReason) -> None:
    if session.disconnected:
        return
    session.disconnected = True
    state.paused_clients.pop(session, None)
    for listener in state.listeners:
        listener.closed(session, reason)
    state.recorder.closed(session, str(reason))
    _cancel_or_keep(state, session)
    if not session.requests:
        state.sessions.pop(session, None)
    carried = list(state.session_workers.get(session, ()))
    for worker in carried:
        dispatch.clear_credit(worker)  # remove all of them first, so that a request of one is not dispatched to another
    for worker in carried:
        registration.lose(state, worker, Departure.LOST, str(reason))


def _cancel_or_keep(state: State, session: Session) -> None:
    """Cancels the requests of a closed session that need a reply, and keeps the others."""
    for request in list(session.requests):
        # A request that is parked for the job store is a job there, which continues without its client.
        jobs = state.durable_requests
        if jobs is not None and jobs.parks(request) and jobs.goes_on(request):
            outcomes.cancel(state, request, "the client disconnected; a stored job continues")
        elif session.awaits_reply(request):
            outcomes.cancel(state, request, "the client disconnected")
        elif not state.unattended.keep(request, state.policy):
            outcomes.cancel(state, request, "the client disconnected, and too many requests have no client")


def refused(state: State, session: Session, what: str, refusal: Refusal) -> None:
    if refusal.denied:
        session.link.charge(WORK_VIOLATION)
    else:
        violated(state, session, f"{what} refused: {refusal.text}")


def violated(state: State, session: Session, what: str) -> None:
    state.counters.violations += 1
    state.recorder.violated(session, what)
    session.violations += 1
    session.link.charge(WORK_VIOLATION)
    if session.violations >= MAX_VIOLATIONS:
        session.link.violation(ProtocolViolation(f"{session.violations} protocol violations"))
