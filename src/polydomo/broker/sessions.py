"""Sessions: opening and closing of connections, and reports of protocol violations."""

from typing import TYPE_CHECKING

from polydomo.broker.requests import dispatch
from polydomo.broker.requests.acceptance_times import AcceptanceTimes
from polydomo.broker.workers import registration
from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_VIOLATIONS, WORK_VIOLATION
from polydomo.model.service import Departure
from polydomo.model.session import Session
from polydomo.wire.close_reason import CloseReason

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def opened(broker: "Broker", session: Session) -> None:
    broker.newest_session += 1
    session.number = broker.newest_session
    if broker.draining or (broker.access.rules is not None and not session.is_sibling):
        session.may_request = False  # each of its requests goes to ``admission.resolve``
    broker.sessions[session] = None
    if session.publishes and broker.acceptance_times is None:
        broker.acceptance_times = AcceptanceTimes()
    broker.monitor.opened(session)
    broker.recorder.opened(session)


def internal(broker: "Broker", session: Session) -> None:
    """A client inside the broker, without a connection: it has a number, so that the journal can name it."""
    broker.newest_session += 1
    session.number = broker.newest_session
    broker.sessions[session] = None
    broker.recorder.internal(session)


def closed(broker: "Broker", session: Session, reason: CloseReason) -> None:
    if session.disconnected:
        return
    session.disconnected = True
    broker.backpressure.forget(session)
    broker.memory.forget(session.link)
    broker.publishing.forget(session)
    broker.monitor.closed(session, reason)
    broker.recorder.closed(session, str(reason))
    broker.unattended.client_closed(session)
    if not session.requests:
        broker.sessions.pop(session, None)
    carried = list(broker.session_workers.get(session, ()))
    for worker in carried:
        dispatch.clear_credit(worker)  # remove all of them first, so that a request of one is not dispatched to another
    for worker in carried:
        registration.lose(broker, worker, Departure.LOST, str(reason))


def refused(broker: "Broker", session: Session, what: str) -> None:
    if broker.denied:
        session.link.charge(WORK_VIOLATION)
    else:
        violated(broker, session, f"{what} refused: {broker.refusal}")


def violated(broker: "Broker", session: Session, what: str) -> None:
    broker.monitor.violations += 1
    broker.recorder.violated(session, what)
    session.violations += 1
    session.link.charge(WORK_VIOLATION)
    if session.violations >= MAX_VIOLATIONS:
        session.link.violation(ProtocolViolation(f"{session.violations} protocol violations"))
