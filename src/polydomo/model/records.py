"""The records that the broker and the protocols share: requests, services, workers, publications and sessions.

They refer to each other, so they are in one module. A comment names the writer of a field if it is not the broker.

A session is the protocol state of one connection. The wire passes complete messages to it, and it turns them into calls of ``BrokerApi``
(``model.session``). The broker answers by calling the methods below; no event object is created per message.
"""

from collections import deque
from enum import Enum
from typing import Any, Final

from polydomo.limits import COST_CONNECTION, COST_REGISTRATION, COST_REQUEST
from polydomo.model.jobs.facts import JobFacts
from polydomo.model.listener_roles import SHARED, Role
from polydomo.model.progress import progress_row
from polydomo.model.request_options import RequestOptions
from polydomo.native import mypyc_attr
from polydomo.wire.frames import Body, head
from polydomo.wire.link import Link, LinkHandler

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
        "options",
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
    options: RequestOptions  # as the client gave them; PLAIN for most
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


class RequestProgress:
    """The last report of how far a request is. ``broker.requests.progress`` passes reports on."""

    __slots__ = ("held_for", "next", "share", "text", "waits")

    def __init__(self, held_for: "Session") -> None:
        self.held_for = held_for  # the worker's session, which the text is counted for
        self.share = 0.0  # from 0 to 1
        self.text = ""
        self.next = 0.0  # when the next report may be passed on
        self.waits = False  # the last report has not been passed on yet

    def to_json(self) -> "dict[str, object]":
        return progress_row(self.share, self.text)


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
        "progress",
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
            or self.progress
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
        self.progress: RequestProgress | None = None  # as the worker reported it, of the current attempt
        self.reason = ""  # why it failed


NO_HISTORY: Final = History()  # shared by all requests to which nothing else happened; never written to
# The state of a service, a worker or a client; see ``broker.observe.states``.
REGISTERING: Final = "registering"
READY: Final = "ready"
BUSY: Final = "busy"
LATE: Final = "late"
PAUSED: Final = "paused"
DRAINED: Final = "drained"
LOST: Final = "lost"
LEFT: Final = "left"


class Departure(Enum):
    """How a worker ended. The value is the word that logs use."""

    LEFT = "left"  # it left, or the broker disconnected it
    LOST = "lost"  # its connection is gone, or it did not finish in time
    SILENT = "silent"  # it sent nothing for too long

    @property
    def state(self) -> str:
        return LEFT if self is Departure.LEFT else LOST


Path = tuple[bytes, ...]  # identities of brokers, in the order in which a request passes them


class Publication:
    """A message published under a topic. Sessions must not keep it, because the last value of a topic changes in place."""

    __slots__ = ("message", "number", "origin", "topic")

    def __init__(self, topic: bytes, message: bytes, origin: bytes = b"", number: int = 0) -> None:
        self.topic = topic
        self.message = message  # the topic frame and the body, framed for ZMTP
        self.origin = origin  # the broker where it was published; b"" is this one
        self.number = number  # counts up at that broker; 0: not sent to other brokers


class LimitedRequests:
    """The requests of a service with limits, waiting and running (``broker.limiting.limited_queue``)."""

    def __init__(self) -> None:
        self.ready = 0  # clients' queues whose first request may start now: 0 if all that wait are over their limit

    def push(self, request: Request) -> None:
        raise NotImplementedError

    def push_front(self, request: Request) -> None:
        raise NotImplementedError

    def starts_now(self, request: Request) -> bool:
        """Starts a new request without the queue, if nothing that waits comes before it. The caller dispatches it."""
        raise NotImplementedError

    def startable(self) -> bool:
        """Whether ``pop`` has a request."""
        return self.ready > 0

    def pop(self) -> Request:
        """Takes the next request, which starts. It must be ``startable``."""
        raise NotImplementedError

    def pop_across(self) -> Request:
        """The same for a request that goes to another process of this broker, which says when it starts."""
        raise NotImplementedError

    def first(self) -> Request:
        """The request that ``pop`` would return."""
        raise NotImplementedError

    def remove(self, request: Request) -> None:
        raise NotImplementedError

    def waiting(self) -> list[Request]:
        raise NotImplementedError

    def started(self, request: Request) -> None:
        """It has started there."""

    def runs(self, request: Request) -> bool:
        """Whether a worker holds the request."""
        raise NotImplementedError

    def returned(self, request: Request) -> None:
        """No worker holds the request any more."""

    def row(self) -> dict[str, object]:
        """The limits, as the row of the service has them."""
        raise NotImplementedError


class Service:
    """One service by name. Sessions may read ``name``; everything else belongs to the broker."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.special = False  # its requests pass ``admission.resolve``: it is durable, paused or drained
        self.paused = False
        self.drained = False
        self.queue_length = 0
        self.limits: LimitedRequests | None = None  # its requests wait there, and not in the queues below
        self.no_worker_since = 0.0
        self.timer = 0  # expires requests that wait while no worker offers the service
        self.weighted = False  # some worker has a weight: the highest weight is served first
        self.accepted = 0
        self.answered = 0
        self.failed = 0
        self.requeued = 0
        self.new_durations: dict[str, list[float]] = {}  # client's protocol -> durations not yet in the histograms
        self.state = REGISTERING  # the last recorded change; ``broker.observe.states`` computes the current state
        self.state_since = 0.0
        self.state_cause = ""
        self.workers: dict[Worker, int] = {}  # worker -> weight
        self.remote: dict[Worker, Path] = {}  # bridge -> the brokers on the route to a worker
        self.idle: dict[Worker, None] = {}  # workers with credit that hold nothing, least recently used first
        self.partly_busy: dict[Worker, None] = {}  # workers with credit that hold a request: second choice
        self.prefetching: dict[Worker, None] = {}  # workers with credit that start it only later: third choice
        self.backlogged: dict[Worker, None] = {}  # workers that may hold requests which they have not started
        self.client_queues: dict[Session, deque[Request]] = {}
        self.round_robin: deque[deque[Request]] = deque()  # the client queues, in the order they are served
        self.retries: deque[Request] = deque()  # requeued after their worker was lost: served before the client queues


class Worker:
    """One registered worker. Several may share a connection (memo01). The last group of fields belongs to the broker."""

    def __init__(
        self,
        session: "Session",
        ref: object,
        credit: int,
        auto_credit: int,
        heartbeat_interval: float,
        max_silence: float,
    ) -> None:
        self.session = session  # changes when a memo01 worker continues on a new connection
        self.ref = ref  # the session's own data
        self.credit = credit  # how many more requests it may get
        self.auto_credit = auto_credit  # implicit credit up to this many held requests; 0: only ``add_credit``
        self.runs = 0  # requests that it runs at once, if it accepts more than that; 0: it starts each at once
        self.heartbeat_interval = (
            heartbeat_interval  # the broker sends one after this much silence of its own; 0: never
        )
        self.max_silence = max_silence  # seconds without a message after which it is lost; 0: never
        self.polling = (
            False  # it waits for the broker (memo01's open poll): its silence is expected; set by the session
        )
        self.last_heard = 0.0  # when its last message came; set by sessions, or through ``BrokerApi.heartbeat``
        self.last_sent = 0.0  # when it was last sent a message; set by the broker and sessions
        # Its protocol demands heartbeats while it holds a request, or it sent one then: from then on it must keep doing so.
        self.beats_while_busy = False
        self.held: dict[bytes, Request] = {}  # token -> request
        self.services: dict[Service, int] = {}  # service -> weight; the highest is served first
        self.only_service: Service | None = None  # set if it offers exactly one
        self.alive = True
        self.orphaned_until = 0.0  # its connection is gone; it is lost at this time unless it continues on another one
        self.number = 0  # counts up per broker run
        self.name = ""  # name chosen by the worker; "" if none
        self.draining = False  # it gets no more requests; ``credit`` and ``auto_credit`` are saved in the meantime
        self.put_aside = 0
        self.drained_auto = 0
        self.failures = 0  # number of requests that it failed or lost
        self.busy_time = 0.0  # total seconds of the requests that it answered
        self.slowest = 0.0
        self.registered_at = 0.0
        self.done = 0  # requests it has ended
        self.timer = 0
        self.state = READY  # the last recorded change; ``broker.observe.states`` computes the current state
        self.state_since = 0.0
        self.state_cause = ""


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(LinkHandler):
    """A subclass is one protocol, or one of its dialects. The broker calls the methods below; each sends at most a message or two through
    ``self.link`` and must not call back into the broker."""

    protocol = ""  # "mdp1", "mdp2", "memo", "mdx", "dcp", "dbp", "emqp", ...
    dialect = ""  # the published variant, if a protocol has several
    takes_partials = (
        False  # as a client; otherwise the broker holds partial replies and joins them in front of the final reply
    )
    keeps_parts = (
        False  # held partial replies are passed to ``send_partial`` as well: those of a job are stored as they come
    )

    publishes = False  # a PUB socket: it may publish log records
    polls = False  # its workers ask for each request (memo01): one is delivered only while ``worker.polling``
    windowed = False  # it was granted a window of requests (a bridge): they are accepted even where a queue is full
    refuses_at_limit = (
        False  # a request at a limit is rejected, because the protocol can report it; other clients are paused
    )
    deadline_is_patience = False  # its deadlines are how long the client waits; a durable job continues without it
    has_client_ids = False  # its requests have ids that the client chose: ``client_id_of`` returns them
    may_withhold = False  # it does not send every reply to its client: ``withheld`` says why
    is_internal = False  # the broker's own client, which runs jobs
    runs_shared = (
        False  # of ``broker/sharing/shared_runs.py``: its requests are runs that several clients' requests share
    )
    is_bridge = False  # the peer is another broker: the methods of the last group are implemented
    is_sibling = False  # ... another process of this broker (``broker/cluster/siblings.py``)

    # The peer's principal (``principals``): empty without access control; with it, an empty one may do nothing.
    principal = ""
    origin_is_principal = True  # its requests are the peer's own; otherwise ``origin_of`` gives the origin of each
    charges_origin = False  # ... and each is charged to the quota of its origin

    def __init__(self, link: Link) -> None:
        self.link = link
        self.role: Role = SHARED  # of the listener that accepted the connection
        # the broker's own bookkeeping
        if link.principal:
            self.principal = link.principal
        self.may_request = (
            True  # False: each request takes the slow path (a listener for workers, access control, shutdown)
        )
        self.counted_as = self.protocol  # a copy on the instance, which is faster to read
        self.origin_is_principal = self.origin_is_principal  # likewise
        self.number = 0
        self.since = 0.0  # when it was opened
        self.disconnected = False
        self.worker_count = 0  # live workers on this connection; a connection with a worker is never paused
        self.requests: dict[Request, None] = {}  # open requests of this client, oldest first
        self.partial_bytes = 0  # partial replies of its workers that are held for clients
        self.kept_bytes = 0  # bytes of answers cached for resends, or of catalog entries that came over a bridge
        self.violations = 0  # number of protocol violations
        self.registrations = 0  # services that its workers offer, each counted for each worker
        self.held_bytes = 0  # bodies of the open requests, without small ones, which are limited by their number

    @property
    def peer_name(self) -> str:
        """The peer's name from its ZMTP identity; "" if it is not printable."""
        name = self.link.identity
        return name.decode() if name and name.isascii() and name.decode("ascii").isprintable() else ""

    def held(self) -> int:
        return (
            self.held_bytes
            + self.partial_bytes
            + self.kept_bytes
            + COST_CONNECTION
            + COST_REQUEST * len(self.requests)
            + COST_REGISTRATION * self.registrations
        )

    def origin_of(self, request: Request) -> str:
        """The principal that caused a request of this session."""
        return self.principal

    def counts_as(self, request: Request) -> str:
        """The protocol under which a request of this session is counted."""
        return self.counted_as

    def asked_by(self) -> "Session":
        """The session that caused its requests: another one if it sends runs that clients' requests wait for."""
        return self

    def has_queued_requests(self) -> bool:
        last = next(reversed(self.requests), None)
        return last is not None and last.state == QUEUED and not self.worker_count

    def request_name(self, request: Request) -> str:
        """The id of one of its requests, for logs."""
        return ""

    def client_id_of(self, request: Request) -> bytes:
        """The id that the client gave one of its requests, for the journal; called only if ``has_client_ids``."""
        return b""

    def find_request(self, identity: bytes) -> Request | None:
        """The open request of this client with this id, where ``polydomo.abandon`` may name one."""
        return None

    def awaits_reply(self, request: Request) -> bool:
        """Whether the client of this open request waits for a reply. If not, the request is run even if the client disconnects."""
        return True

    def withheld(self, request: Request) -> str:
        """Why the final reply of this request is not sent, for the journal; "" if it is. Called only if ``may_withhold``."""
        return ""

    # --- to a client

    def send_partial(self, request: Request, body: Body) -> None:
        """A partial reply; called only if ``takes_partials``."""
        raise NotImplementedError

    def send_progress(self, request: Request, share: float, text: str) -> None:
        """How far the request is: a share from 0 to 1, and a text. Protocols without a message for that send nothing."""

    def send_final(self, request: Request, body: Body) -> None:
        """The final reply, with held partial replies joined in front of it."""
        raise NotImplementedError

    def send_failure(self, request: Request, code: str, text: str) -> None:
        """The request ended without a reply. Most protocols have no message for that and send nothing."""

    # --- to a worker

    def deliver(self, worker: Worker, request: Request) -> None:
        """Sends a request. ``request.token`` names the attempt; a body without frames is b""."""
        raise NotImplementedError

    def send_heartbeat(self, worker: Worker) -> None:
        """Nothing was sent for ``worker.heartbeat_interval`` seconds."""

    def on_worker_expired(self, worker: Worker) -> None:
        """The worker was silent for too long and is lost. "it SHOULD stop sending it messages of any type": nothing is sent."""

    def dismiss(self, worker: Worker) -> None:
        """The broker shuts down or rejects the worker. Sends DISCONNECT, if the protocol has it, and nothing after it."""

    def on_worker_gone(self, worker: Worker) -> None:
        """The worker has ended, for any reason. The last call about this worker."""

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        """The client no longer waits for the reply. Returns True if the worker no longer holds the request. Returns False if the worker
        holds it until it answers, whether or not it was notified."""
        return False

    def has_begun(self, request: Request) -> bool:
        """Whether a request that one of its workers holds may have started. The run that it waits for may still be in the queue."""
        return True

    def revoke_request(self, worker: Worker, request: Request) -> None:
        """Another worker could start the request: asks this one to release it if it has not. Called only if ``worker.runs``."""

    # --- to a subscriber

    catching_up = False  # it is still being sent last values, and new publications wait; set by the broker

    def send_published(self, topic: bytes, body: Body) -> None:
        """A message of a subscribed topic; ``body`` is the frames after the topic."""
        self.send_publication(Publication(topic, head(len(topic), bool(body)) + topic + body))

    def send_publication(self, publication: Publication) -> None:
        """The same, already framed; one object shared by all subscribers."""

    def send_last_value(self, publication: Publication) -> None:
        """The last value of a topic, published before the session subscribed; sent even while ``catching_up``."""

    def can_send_values(self) -> bool:
        """Whether the peer reads fast enough; last values are sent only then."""
        return True

    def on_caught_up(self) -> None:
        """All last values were sent; queued messages follow."""

    # --- to a service of the catalog

    def probe(self, name: str) -> None:
        """The service missed a heartbeat, or a datagram announced that it leaves: probes it over this connection, where it registered."""

    def can_deliver(self) -> bool:
        """Whether requests can be sent to a service over this connection, where it registered."""
        return False

    def on_service_worker(self, worker: Worker) -> None:
        """The service takes requests over this connection: ``worker`` is registered for it, and has no credit yet."""

    def dismiss_service(self, name: str) -> None:
        """The broker shuts down: sends DISCONNECT to the service, which registered over this connection, and nothing after it."""

    def on_timer(self, key: object) -> None:
        """A timer set with ``BrokerApi.set_timer`` is due."""

    # --- durable jobs

    def send_started(self, request: Request) -> None:
        """A worker has got this request of another process of the broker, which counts it."""

    def send_ended(self, request: Request) -> None:
        """No worker holds it any more, and the other process waits to hear that, because it has cancelled the request."""

    def identity_of(self, ref: object) -> bytes:
        """The id of a request of this session, if its protocol has ids that are unique across clients. It identifies a repeated durable
        request."""
        return b""

    def facts_of(self, ref: object) -> "tuple[str, str]":
        """The headers and W3C trace context of a request of this session, to store with a durable job; "" if there are none."""
        return "", ""

    def job_of(self, request: Request) -> JobFacts | None:
        """The job that a request of the broker's own client (``is_internal``) is an attempt of; None for other requests."""
        return None

    # --- workers in another process of the broker

    def headers_of(self, request: Request) -> bytes:
        """What a worker of the same protocol gets with this session's request, besides the body; b"" for nothing."""
        return b""

    def headers_for(self, request: Request, protocol: str) -> bytes:
        """The same for a request that came from another process, if its client has this protocol."""
        return b""

    # --- to another broker, if ``is_bridge``

    peer_identity = b""  # the other broker's

    def offer_service(self, name: bytes, path: Path) -> None:
        """Offers a service of this broker, or of brokers behind it; ``path`` has the brokers on the route, this one first."""
        raise NotImplementedError

    def withdraw_service(self, name: bytes) -> None:
        """Withdraws the offer of a service."""
        raise NotImplementedError

    def carries_catalog(self) -> bool:
        """Whether the other broker understands entries of the catalog."""
        return False

    def can_announce(self) -> bool:
        """Whether the other broker reads fast enough to be told of entries now."""
        return True

    def announce_entry(self, name: bytes, path: Path, address: bytes, info: bytes) -> None:
        """A service is registered in the catalog of the last broker of ``path``, which has this address; ``info`` is JSON."""
        raise NotImplementedError

    def withdraw_entry(self, name: bytes) -> None:
        """The service is not in the catalog any more."""
        raise NotImplementedError

    def has_room(self) -> bool:
        """Whether the other broker accepts one more request."""
        raise NotImplementedError

    def send_to_sibling(self, word: bytes, rest: "list[bytes]") -> None:
        """A message of ``broker/cluster/siblings.py``, if ``is_sibling``."""
        raise NotImplementedError

    def path_of(self, request: Request) -> Path:
        """The brokers that a request of this session passed before this one."""
        return ()

    def trace_of(self, request: Request) -> "tuple[str, str]":
        """The trace context that a request of this session came with, and its name at the broker it came from; "" for none."""
        return "", ""

    # --- from the link
