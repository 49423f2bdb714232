"""A request, its time limits, and its possible outcomes."""

from typing import TYPE_CHECKING, Any, Final

from polydomo.limits import MAX_FAILURE_CODE, MAX_FAILURE_TEXT
from polydomo.wire.frames import Body

if TYPE_CHECKING:
    from polydomo.model.service import Service, Worker
    from polydomo.model.session import Session

# --- outcomes ----------------------------------------------------------------------------------------------------------

OK = "ok"  # a final reply
NO_WORKER = "no-worker"  # waited too long for a service without workers
TIMEOUT = "timeout"  # the deadline passed
GAVE_UP = "gave-up"  # lost with its worker ``attempts`` times
INTERRUPTED = "interrupted"  # the worker was lost after a partial reply had reached the client
FAILED = "failed"  # the worker reported a failure
TOO_LARGE = "too-large"  # held partial replies exceeded the message limit
CANCELLED = "cancelled"  # the client disconnected or cancelled it
REFUSED = "refused"  # a limit was reached, or the name is not allowed
SHUTDOWN = "shutdown"  # the broker is shutting down

DENIED = "denied"  # the client's principal lacks the right

OUTCOMES = (OK, NO_WORKER, TIMEOUT, GAVE_UP, INTERRUPTED, FAILED, TOO_LARGE, CANCELLED, REFUSED, SHUTDOWN, DENIED)

KEY_REUSED = "key-reused"  # code of a failure: an open request has this key and another body

CLIENT_CANCELLED = "cancelled by the client"  # reasons
CLIENT_TIMEOUT = "the client's timeout passed"

ABANDON = b"polydomo.abandon"  # the service by which clients of protocols without a message for it cancel a request
ABANDON_MARK = b" "  # in its body, between the id and "timeout"

FAILURE_MARK = b"polydomo-failure"  # second frame of a failure where a protocol can carry one: "" mark code text

# Request.state; ``broker.requests.transitions`` has the events that change it
NEW: Final = 0  # being checked, and not open yet
QUEUED: Final = 1  # waits for a worker
HELD: Final = 2  # a worker has it
PARKED: Final = 3  # waits for the job store, or for a paused service
DONE: Final = 4  # has its outcome

# History.revoked
NOT_ASKED: Final = 0
ASKED: Final = 1
KEPT: Final = 2  # the worker has started it


class Request:
    """One request of one client, from acceptance to its outcome. Written by the broker, read by sessions.

    ``transitions.new_request`` sets every field: a field that is set later, or only on the class, is slower to read, and this is the
    hot path.
    """

    __slots__ = (
        "__weakref__",
        "accepted",
        "attempts",
        "body",
        "dispatched",
        "history",
        "max_attempts",
        "number",
        "outcome",
        "ref",
        "reply_size",
        "service",
        "session",
        "state",
        "time_limits",
        "token",
        "worker",
    )

    number: int  # counts up per broker run
    session: "Session"  # the client
    service: "Service"
    body: Body
    ref: Any  # data of the client's session for the reply; a worker's session of the same protocol may read it
    accepted: float
    state: int
    worker: "Worker | None"  # the worker that holds it
    token: bytes  # identifies this attempt to the worker: 12 printable ASCII bytes, see ``broker.requests.tokens``
    attempts: int  # number of dispatches
    dispatched: float  # when the current attempt began
    time_limits: "TimeLimits | None"
    max_attempts: int  # 0: the default of the broker's policy
    history: "History"  # NO_HISTORY as long as it is dispatched once and answered once
    reply_size: int
    outcome: str

    @property
    def origin(self) -> str:
        """The principal that caused it; empty without access control."""
        return self.session.origin_of(self)

    def own_history(self) -> "History":
        """The history of this request alone, which may be written to."""
        if self.history is NO_HISTORY:
            self.history = History()
        return self.history

    @property
    def deadline(self) -> float:
        return self.time_limits.deadline if self.time_limits is not None else 0.0

    def time_left(self, now: float) -> float:
        """Seconds until the deadline or the limit of this attempt, whichever comes first; 0: it has neither."""
        limits = self.time_limits
        if limits is None:
            return 0.0
        if not limits.deadline:
            return limits.max_run
        # The deadline may have passed a moment ago, and its timer not be due yet.
        left = max(0.001, limits.deadline - now)
        return min(left, limits.max_run) if limits.max_run else left

    @property
    def max_run(self) -> float:
        return self.time_limits.max_run if self.time_limits is not None else 0.0

    @property
    def queue_deadline(self) -> float:
        return self.time_limits.queue_deadline if self.time_limits is not None else 0.0

    @property
    def timer(self) -> int:
        return self.time_limits.timer if self.time_limits is not None else 0


class TimeLimits:
    """The time limits of a request that has any."""

    __slots__ = ("deadline", "max_run", "max_wait", "queue_deadline", "timer")

    deadline: float  # absolute; 0 is none. When it passes, the request ends as TIMEOUT.
    max_wait: float  # seconds in the queue, each time it is queued; 0: the general expiry of the service
    queue_deadline: float  # absolute; 0 is none. If it passes while the request is queued: NO_WORKER.
    max_run: float  # seconds from dispatch (memo01's job timeout); 0 is none. When it passes: TIMEOUT.
    timer: int  # the broker's


def new_time_limits(deadline: float, max_wait: float, max_run: float) -> TimeLimits:
    limits = TimeLimits()
    limits.deadline = deadline
    limits.max_wait = max_wait
    limits.queue_deadline = 0.0
    limits.max_run = max_run
    limits.timer = 0
    return limits


class HeldPartials:
    """Partial replies that are held until the final reply, for a client whose protocol has no partials."""

    __slots__ = ("bodies", "frames", "held_for", "size")

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        self.held_for: Session | None = None  # the worker's, which they are counted for
        self.size = 0  # bytes
        self.frames = 0


class History:
    """Events of a request beyond one dispatch and one reply."""

    __slots__ = (
        "attempts_before_forward",
        "first_dispatched",
        "first_partial",
        "forwards",
        "held_partials",
        "lost_by",
        "partials",
        "partials_before",
        "reason",
        "releases",
        "revoked",
    )

    def is_empty(self) -> bool:
        """Whether nothing was recorded: every value is the initial one."""
        return not (
            self.attempts_before_forward
            or self.first_dispatched
            or self.first_partial
            or self.forwards
            or self.held_partials
            or self.lost_by
            or self.partials
            or self.partials_before
            or self.reason
            or self.releases
            or self.revoked != NOT_ASKED
        )

    def __init__(self) -> None:
        self.first_dispatched = 0.0  # when the first attempt began, if there was a second one
        self.attempts_before_forward = 0  # these, and ``releases``, do not count against the limit of attempts
        self.releases = 0  # times that a worker released it without having started it
        self.revoked: int = NOT_ASKED  # whether its worker was asked to release it
        self.forwards = 0  # how often it was forwarded to another service (DCP chains)
        self.lost_by: Session | None = None  # the session that lost it last; another one is preferred
        self.first_partial = 0.0
        self.partials = 0  # partial replies that reached the client
        self.partials_before = 0  # those of earlier attempts
        self.held_partials: HeldPartials | None = None
        self.reason = ""  # why it failed


NO_HISTORY: Final = History()  # shared by all requests to which nothing else happened; never written to


def read_failure(code: bytes, text: bytes) -> "tuple[str, str]":
    """A failure that a worker reported, within the limits of both parts."""
    return code[:MAX_FAILURE_CODE].decode("utf-8", "replace"), text[:MAX_FAILURE_TEXT].decode("utf-8", "replace")
