"""eMQP's SCHEDULE and UNSCHEDULE: checks them, and applies them to a connected scheduler or to the broker's job store.

The frames are ``"" eMQP/1.0 COMMAND msgid queue headers interval message cron``.
"""

from polydomo.errors import ProtocolViolation
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Session
from polydomo.protocols.emqp import headers as emqp_headers
from polydomo.protocols.emqp.headers import DEFAULT_QUEUE

FRAMES = 9


def check(message: "list[bytes]") -> None:
    """Raises ProtocolViolation for a schedule that would crash EventMQ's scheduler."""
    for content in message[3:]:
        _check_text(content)
    try:
        interval = int(message[6])
    except ValueError:
        raise ProtocolViolation("an interval that is not a number") from None
    if interval < 0 and not message[8] and message[2] == b"SCHEDULE":
        raise ProtocolViolation("a schedule with neither interval nor cron")


def serve(broker: BrokerApi, session: Session, message: "list[bytes]", raw: bytes) -> None:
    """Handles a checked message of a client. A denial is recorded; eMQP has no answer to a schedule. Raises ProtocolViolation."""
    principal = session.principal
    if not allowed(broker, session, principal, message):
        return
    if not apply(broker, session, principal, message, raw) and not broker.pass_schedule(principal, raw):
        raise ProtocolViolation(f"{message[2].decode()} while no scheduler is connected and there is no job store")


def allowed(broker: BrokerApi, session: Session, principal: str, message: "list[bytes]") -> bool:
    """Whether the principal may schedule requests to this queue: it needs the right to call it. Each run needs the right again."""
    queue = message[4] or DEFAULT_QUEUE
    if broker.is_reserved(queue):
        raise ProtocolViolation("a schedule for a built-in service")
    return not broker.denial_as(principal, session, "call", queue.decode("utf-8", "backslashreplace"))


def apply(broker: BrokerApi, session: Session, principal: str, message: "list[bytes]", raw: bytes) -> bool:
    """Forwards an allowed message to a connected scheduler unchanged, or applies it to the job store; False if there is neither."""
    add = message[2] == b"SCHEDULE"
    # A closing link sends nothing.
    schedulers = [scheduler for scheduler in broker.schedulers if not scheduler.link.state]
    for scheduler in schedulers:
        scheduler.link.send(raw)
        if add:
            break  # always the same scheduler, so that a repeated schedule replaces the first; UNSCHEDULE goes to all
    if schedulers:
        return True
    when = message[8].decode() if message[8] else f"every {int(message[6])}s"
    headers = emqp_headers.read(message[5]).text
    return broker.schedule(session, principal, message[4] or DEFAULT_QUEUE, message[7], when, headers, add)


def _check_text(content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("text that is not UTF-8") from None
