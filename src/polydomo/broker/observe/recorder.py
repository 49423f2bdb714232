"""The recorder interface: receives every outcome, every infrequent event and, on request, every message.

The base class ignores everything; the server's log and the journal are subclasses. ``wants_requests``, ``wants_messages`` and
``wants_bodies`` are read once, by ``Broker.record_to``, so events that the recorder does not want cost nothing. A recorder gets facts as
arguments and does not read the broker's state, because events are often reported in the middle of a change.
"""

from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.topics.logs import LogRecord
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.native import mypyc_attr
from polydomo.wire.frames import Body


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    wants_requests = False  # call ``ended`` for every request
    wants_messages = False  # call ``accepted``, ``dispatched`` and the other methods of the first group
    wants_bodies = False  # also call ``reply_body``

    # --- every message

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        """``queued``: no worker takes it at once; ``queue_length`` requests were queued before it."""

    def dispatched(self, request: Request, worker: Worker) -> None: ...
    def partial(self, request: Request, worker: Worker, size: int) -> None: ...
    def reply_body(self, request: Request, body: Body) -> None:
        """Called just before ``partial`` or ``ended``."""

    def reply_ignored(self, request: Request, worker: Worker) -> None:
        """The worker has finished a request that already had its outcome."""

    def memoised(self, request: Request, how: str) -> None:
        """A request for a memoised service: ``how`` is a ``hit``, a ``miss``, or ``joined`` to an identical request that runs."""

    def keyed(self, request: Request, how: str, key: bytes, run: int) -> None:
        """A request with an idempotency key: ``how`` is ``first`` or ``joined``, ``run`` the number of the internal request that runs."""

    def credit_added(self, worker: Worker, count: int) -> None: ...
    def window_set(self, worker: Worker, change: int, runs: int) -> None:
        """The worker may hold ``change`` requests more than before (fewer, if negative), and runs ``runs`` at once."""

    def published(self, session: Session, topic: bytes, body: Body) -> None: ...

    # --- every request

    def ended(self, request: Request) -> None: ...

    # --- infrequent events

    # bytes that are recorded but not written yet
    def memory(self) -> int:
        return 0

    def opened(self, session: Session) -> None: ...
    def closed(self, session: Session, why: str) -> None: ...
    def registered(self, worker: Worker) -> None: ...
    def late(self, worker: Worker, silence: float, allowed: float) -> None:
        """It has been silent for ``silence`` of the ``allowed`` seconds; 0 is unlimited."""

    def left(
        self, worker: Worker, departure: Departure, why: str, held: "list[Request]", silence: float, allowed: float
    ) -> None:
        """``held`` are its requests, which are requeued or ended after this call."""

    def requeued(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        """The queue now has ``queue_length`` requests and the service ``workers`` workers other than this one."""

    def released(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        """The worker released a request that it had not started: it is at the head of its queue."""

    def forwarded(self, request: Request, worker: Worker, service: bytes, queue_length: int, workers: int) -> None:
        """The other service has ``queue_length`` requests before this one, and ``workers`` workers."""

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None: ...
    def refused(self, session: Session, what: str) -> None: ...
    def denied(self, session: Session, principal: str, right: str, name: str, what: str) -> None:
        """Denied by the access rules. ``principal`` is the origin of what the session asked for."""

    def access(self, principal: str, right: str, name: str, allowed: bool) -> None:
        """Called on the first use of a right, and when the decision changes."""

    def internal(self, session: Session) -> None:
        """A client inside the broker exists: the one that runs the attempts of durable jobs. It is never opened or closed."""

    def job(self, event: JobEvent) -> None:
        """Something happened to a durable job or a schedule, or this broker began or ceased to lead."""

    def flow(self, event: FlowEvent) -> None:
        """A flow started or ended, or its state changed."""

    def node_ended(self, end: NodeEnd) -> None:
        """A node of a flow ended without an attempt."""

    def joined(self, request: Request, job: str) -> None:
        """A client's request waits for the outcome of this job."""

    def violated(self, session: Session, what: str) -> None: ...
    def slow_subscriber(self, session: Session, what: str) -> None: ...
    def routed(self, request: Request, route: "list[str]") -> None:
        """A reply came over a bridge. ``route`` has the brokers that the request passed, each with the request's name there."""

    def log_record(self, session: Session, record: LogRecord) -> None: ...

    # --- queries

    def request_id(self, number: int, accepted: float) -> str:
        """The id of a request, which is unique across brokers; "" if the recorder gives none."""
        return ""

    def figures(self) -> dict[str, float]:
        """Metrics for ``polydomo.figures``, by name."""
        return {}

    def journal(self, flush: bool) -> dict[str, object]:
        """The state of the journal, for ``polydomo.journal``; ``flush`` requests that all rows are written to disk soon."""
        return {"level": "off"}
