"""What the broker tells of itself: every outcome and every rare event, and, if wanted, every message.

The base class ignores everything; the server's logs and the journal are subclasses. ``wants_requests`` and ``wants_messages`` are read
once, when the broker is made, so that what nobody wants costs nothing.
"""

from polydomo.broker.log_records import LogRecord
from polydomo.protocols.model import Worker
from polydomo.protocols.request import Request
from polydomo.protocols.session import Session
from polydomo.wire.frames import Body


class Recorder:
    wants_requests = False  # call ``ended`` for every request
    wants_messages = False  # call ``accepted``, ``dispatched``, ``partial`` and their like as well
    wants_bodies = False  # ... and ``replied``

    def request_id(self, number: int, accepted: float) -> str:
        """The id of a request, which is unique across brokers; "" if the recorder gives none."""
        return ""

    # every message
    def accepted(self, request: Request, queued: bool, queue_length: int) -> None: ...
    def dispatched(self, request: Request, worker: Worker) -> None: ...
    def partial(self, request: Request, worker: Worker, size: int) -> None: ...
    def reply_body(self, request: Request, body: Body) -> None: ...  # just before ``partial`` or ``ended``
    def reply_ignored(
        self, request: Request, worker: Worker
    ) -> None: ...  # its worker ends a request that has its outcome already
    def credit_added(self, worker: Worker, count: int) -> None: ...
    def published(self, session: Session, topic: bytes, body: Body) -> None: ...

    # every request
    def ended(self, request: Request) -> None: ...

    # asked when figures are wanted: name -> number
    def figures(self) -> dict[str, float]:
        return {}

    # asked by ``polydomo.journal``: how the journal is; ``flush`` puts everything to the disk soon
    def journal(self, flush: bool) -> dict[str, object]:
        return {"level": "off"}

    # rare events
    def opened(self, session: Session) -> None: ...
    def closed(self, session: Session, why: str) -> None: ...
    def registered(self, worker: Worker) -> None: ...
    def late(self, worker: Worker) -> None: ...
    def left(self, worker: Worker, state: str, why: str) -> None: ...
    def requeued(self, request: Request, worker: Worker, why: str) -> None: ...
    def forwarded(self, request: Request, worker: Worker, service: bytes) -> None: ...
    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None: ...
    def refused(self, session: Session, what: str) -> None: ...
    def denied(self, session: Session, right: str, name: str, what: str) -> None: ...  # by the access rules
    def access(
        self, principal: str, right: str, name: str, allowed: bool
    ) -> None: ...  # on first use, and when it changes
    def violated(self, session: Session, what: str) -> None: ...
    def slow_subscriber(self, session: Session, what: str) -> None: ...
    def routed(
        self, request: Request, route: "list[str]"
    ) -> None: ...  # it was at other brokers: their identities, its name at each
    def log_record(self, session: Session, record: LogRecord) -> None: ...
