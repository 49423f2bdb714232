"""Two recorders as one: the journal, and whoever watches beside it."""

from polydomo.broker.log_records import LogRecord
from polydomo.broker.recorder import Recorder
from polydomo.protocols.model import Worker
from polydomo.protocols.request import Request
from polydomo.protocols.session import Session
from polydomo.wire.frames import Body


class Tee(Recorder):
    """Tells ``first`` what it wants and ``second`` everything."""

    wants_requests = True
    wants_messages = True

    def __init__(self, first: Recorder, second: Recorder) -> None:
        self.first = first
        self.second = second
        self.wants_bodies = first.wants_bodies or second.wants_bodies

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        if self.first.wants_messages:
            self.first.accepted(request, queued, queue_length)
        self.second.accepted(request, queued, queue_length)

    def dispatched(self, request: Request, worker: Worker) -> None:
        if self.first.wants_messages:
            self.first.dispatched(request, worker)
        self.second.dispatched(request, worker)

    def partial(self, request: Request, worker: Worker, size: int) -> None:
        if self.first.wants_messages:
            self.first.partial(request, worker, size)
        self.second.partial(request, worker, size)

    def reply_body(self, request: Request, body: Body) -> None:
        if self.first.wants_bodies:
            self.first.reply_body(request, body)
        if self.second.wants_bodies:
            self.second.reply_body(request, body)

    def reply_ignored(self, request: Request, worker: Worker) -> None:
        if self.first.wants_messages:
            self.first.reply_ignored(request, worker)
        self.second.reply_ignored(request, worker)

    def credit_added(self, worker: Worker, count: int) -> None:
        if self.first.wants_messages:
            self.first.credit_added(worker, count)
        self.second.credit_added(worker, count)

    def published(self, session: Session, topic: bytes, body: Body) -> None:
        if self.first.wants_messages:
            self.first.published(session, topic, body)
        self.second.published(session, topic, body)

    def ended(self, request: Request) -> None:
        if self.first.wants_requests:
            self.first.ended(request)
        self.second.ended(request)

    def request_id(self, number: int, accepted: float) -> str:
        return self.first.request_id(number, accepted)

    def figures(self) -> dict[str, float]:
        return self.first.figures()

    def journal(self, flush: bool) -> dict[str, object]:
        return self.first.journal(flush)

    def opened(self, session: Session) -> None:
        self.first.opened(session)
        self.second.opened(session)

    def closed(self, session: Session, why: str) -> None:
        self.first.closed(session, why)
        self.second.closed(session, why)

    def registered(self, worker: Worker) -> None:
        self.first.registered(worker)
        self.second.registered(worker)

    def late(self, worker: Worker) -> None:
        self.first.late(worker)
        self.second.late(worker)

    def left(self, worker: Worker, state: str, why: str) -> None:
        self.first.left(worker, state, why)
        self.second.left(worker, state, why)

    def requeued(self, request: Request, worker: Worker, why: str) -> None:
        self.first.requeued(request, worker, why)
        self.second.requeued(request, worker, why)

    def forwarded(self, request: Request, worker: Worker, service: bytes) -> None:
        self.first.forwarded(request, worker, service)
        self.second.forwarded(request, worker, service)

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.first.stale(worker, token, what, size)
        self.second.stale(worker, token, what, size)

    def refused(self, session: Session, what: str) -> None:
        self.first.refused(session, what)
        self.second.refused(session, what)

    def violated(self, session: Session, what: str) -> None:
        self.first.violated(session, what)
        self.second.violated(session, what)

    def slow_subscriber(self, session: Session, what: str) -> None:
        self.first.slow_subscriber(session, what)
        self.second.slow_subscriber(session, what)

    def routed(self, request: Request, route: "list[str]") -> None:
        self.first.routed(request, route)
        self.second.routed(request, route)

    def log_record(self, session: Session, record: LogRecord) -> None:
        self.first.log_record(session, record)
        self.second.log_record(session, record)
