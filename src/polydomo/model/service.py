"""The records that the broker and the sessions share: services, workers and publications. Requests are in ``request.py``.

A comment names the writer of a field if it is not the broker.
"""

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from polydomo.model.request import Request

if TYPE_CHECKING:
    from polydomo.model.session import Session

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


class Service:
    """One service by name. Sessions may read ``name``; everything else belongs to the broker."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.special = False  # its requests pass ``admission.resolve``: it is durable, paused or drained
        self.paused = False
        self.drained = False
        self.queue_length = 0
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
        self.beats_while_busy = False  # it sent a heartbeat while it held a request: from then on it must keep doing so
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
