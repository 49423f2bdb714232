"""Sessions: opening and closing of connections, and reports of protocol violations."""

from polydomo.broker.requests import dispatch, outcomes, pausing
from polydomo.broker.requests.acceptance_times import AcceptanceTimes
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_VIOLATIONS, WORK_VIOLATION
from polydomo.model.records import PARKED, Departure, Session
from polydomo.model.registration import Refusal
from polydomo.wire.close_reason import CloseReason


def opened(broker: State, session: Session) -> None:
    broker.newest_session += 1
    session.number = broker.newest_session
    if broker.draining or (broker.rights.in_force and not session.is_sibling):
        session.may_request = False  # each of its requests goes to ``admission.resolve``
    broker.sessions[session] = None
    if session.publishes and broker.acceptance_times is None:
        broker.acceptance_times = AcceptanceTimes()
    for listener in broker.listeners:
        listener.opened(session)
    broker.recorder.opened(session)


def internal(broker: State, session: Session) -> None:
    """A client inside the broker, without a connection: it has a number, so that the journal can name it."""
    broker.newest_session += 1
    session.number = broker.newest_session
    broker.sessions[session] = None
    broker.recorder.internal(session)


def closed(broker: State, session: Session, reason: CloseReason) -> None:
    if session.disconnected:
        return
    session.disconnected = True
    broker.paused_clients.pop(session, None)
    for listener in broker.listeners:
        listener.closed(session, reason)
    broker.recorder.closed(session, str(reason))
    _cancel_or_keep(broker, session)
    if not session.requests:
        broker.sessions.pop(session, None)
    carried = list(broker.session_workers.get(session, ()))
    for worker in carried:
        dispatch.clear_credit(worker)  # remove all of them first, so that a request of one is not dispatched to another
    for worker in carried:
        registration.lose(broker, worker, Departure.LOST, str(reason))


def _cancel_or_keep(broker: State, session: Session) -> None:
    """Cancels the requests of a closed session that need a reply, and keeps the others."""
    for request in list(session.requests):
        # A request that is parked for the job store is a job there, which continues without its client.
        stored = request.state == PARKED and not pausing.holds(broker, request)
        if stored or session.awaits_reply(request):
            outcomes.cancel(broker, request, "the client disconnected")
        elif not broker.unattended.keep(request, broker.policy):
            outcomes.cancel(broker, request, "the client disconnected, and too many requests have no client")


def refused(broker: State, session: Session, what: str, refusal: Refusal) -> None:
    if refusal.denied:
        session.link.charge(WORK_VIOLATION)
    else:
        violated(broker, session, f"{what} refused: {refusal.text}")


def violated(broker: State, session: Session, what: str) -> None:
    broker.counters.violations += 1
    broker.recorder.violated(session, what)
    session.violations += 1
    session.link.charge(WORK_VIOLATION)
    if session.violations >= MAX_VIOLATIONS:
        session.link.violation(ProtocolViolation(f"{session.violations} protocol violations"))
