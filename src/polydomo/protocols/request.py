"""A request: what the broker knows of it, what bounds it, and how it may end."""

from typing import TYPE_CHECKING, Any, Final

from polydomo.wire.frames import Body

if TYPE_CHECKING:
    from polydomo.protocols.verbs import Service, Session, Worker

# --- how a request ends ------------------------------------------------------------------------------------------------

OK = "ok"  # a final reply
NO_WORKER = "no-worker"  # waited too long for a service without workers
TIMEOUT = "timeout"  # its own deadline passed
GAVE_UP = "gave-up"  # lost with its worker ``attempts`` times
INTERRUPTED = "interrupted"  # its worker was lost after a partial had reached the client
FAILED = "failed"  # the worker said so
TOO_LARGE = "too-large"  # held partials passed the message bound
CANCELLED = "cancelled"  # the client has gone, or took it back
REFUSED = "refused"  # a bound was reached, or the name is not allowed
SHUTDOWN = "shutdown"  # the broker is leaving

OUTCOMES = (OK, NO_WORKER, TIMEOUT, GAVE_UP, INTERRUPTED, FAILED, TOO_LARGE, CANCELLED, REFUSED, SHUTDOWN)

FAILURE_MARK = b"polydomo-failure"  # second frame of a failure where a protocol can carry one: "" mark code text

QUEUED, HELD, DONE = 0, 1, 2  # Request.state


class Request:
    """One request of one client, from acceptance to its outcome. Written by the broker; codecs read it.

    Every field is set when it is made: a field that only some instances get later, or that only the class has, is slow to reach, and
    this is the hot path.
    """

    __slots__ = (
        "__weakref__", "accepted", "attempts", "body", "course", "dispatched", "max_attempts", "number", "outcome", "ref", "reply_size",
        "service", "session", "state", "terms", "token", "worker",
    )  # fmt: skip

    number: int  # counts up per broker run
    session: "Session"  # the client that asked
    service: "Service"
    body: Body
    ref: Any  # what the client's codec needs to answer, and nobody else looks into, but a worker's codec of the same protocol
    accepted: float
    state: int
    worker: "Worker | None"  # who holds it now
    token: bytes  # names this attempt towards the worker: 12 printable ASCII bytes, see ``broker.ledger``
    attempts: int  # times it was handed to a worker
    dispatched: float  # when the current attempt began
    terms: "Terms | None"  # what bounds it in time
    max_attempts: int  # 0: as many as the broker's policy says
    course: "Course"  # PLAIN, as long as it goes straight to its worker and back
    reply_size: int
    outcome: str

    def own_course(self) -> "Course":
        """To be written to: this one leaves the plain course."""
        if self.course is PLAIN:
            self.course = Course()
        return self.course

    @property
    def deadline(self) -> float:
        """See ``Terms``."""
        return self.terms.deadline if self.terms is not None else 0.0

    @property
    def run(self) -> float:
        """See ``Terms``."""
        return self.terms.run if self.terms is not None else 0.0

    @property
    def expiry(self) -> float:
        """See ``Terms``."""
        return self.terms.expiry if self.terms is not None else 0.0

    @property
    def timer(self) -> int:
        """See ``Terms``."""
        return self.terms.timer if self.terms is not None else 0


def new_request(number: int, session: "Session", service: "Service", body: Body, ref: object, now: float) -> Request:
    """A function, since a constructor costs twice as much."""
    request = Request()
    request.number = number
    request.session = session
    request.service = service
    request.body = body
    request.ref = ref
    request.accepted = now
    request.state = QUEUED
    request.worker = request.terms = None
    request.token = b""
    request.attempts = request.max_attempts = request.reply_size = 0
    request.dispatched = 0.0
    request.outcome = ""
    request.course = PLAIN
    return request


class Terms:
    """What bounds a request in time, if anything does."""

    __slots__ = ("deadline", "expiry", "run", "timer", "wait")

    deadline: float  # absolute; 0 is none. Passing it ends the request as TIMEOUT.
    wait: float  # seconds it may wait for a worker, each time it does; 0: the service's general expiry
    expiry: float  # absolute; 0 is none. Still queued then: NO_WORKER.
    run: float  # seconds from dispatch (memo01's job timeout); 0 is none. Passing it ends the request as TIMEOUT.
    timer: int  # the broker's


def new_terms(deadline: float, wait: float, run: float) -> Terms:
    terms = Terms()
    terms.deadline = deadline
    terms.wait = wait
    terms.expiry = 0.0
    terms.run = run
    terms.timer = 0
    return terms


class Parts:
    """Partials that are held until the final comes."""

    __slots__ = ("bodies", "frames", "size")

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        self.size = 0  # bytes
        self.frames = 0


class Course:
    """What becomes of a request, other than being handed to a worker once and answered once."""

    __slots__ = ("first_dispatched", "first_partial", "hops", "lost_by", "partials", "parts", "reason", "spent")

    def __init__(self) -> None:
        self.first_dispatched = 0.0  # when the first attempt began, if there was another after it
        self.spent = 0  # attempts before it was passed on the last time: they do not count against it
        self.hops = 0  # services it was passed on to (DCP chains)
        self.lost_by: Session | None = None  # the session that lost it last; another one is preferred
        self.first_partial = 0.0
        self.partials = 0  # partials that reached the client
        self.parts: Parts | None = None  # partials held for a client that cannot take them
        self.reason = ""  # why it failed


PLAIN: Final = Course()  # shared by all that have nothing to tell, and never written to
