"""The state of the broker: tables and counters. It imports no rule; the rules are functions and classes that take it."""

from polydomo.broker.builtin.service import BuiltinServices
from polydomo.broker.entropy import Entropy
from polydomo.broker.interfaces import DurableRequests, Limits, Observer, Rights, Routes, SessionListener
from polydomo.broker.observe.error_groups import ErrorGroups
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.observe.tallies import Counters, Tallies
from polydomo.broker.policy import Policy
from polydomo.broker.requests.acceptance_times import AcceptanceTimes
from polydomo.broker.requests.affinity import Affinity
from polydomo.broker.requests.tokens import Tokens
from polydomo.broker.requests.unattended import Unattended
from polydomo.broker.timers import Timers
from polydomo.model.records import Request, Service, Session, Worker
from polydomo.model.tuning import Tuning


class Process:
    """Which process of the broker this is, and the bridges to the others."""

    __slots__ = ("bridges", "count", "index", "pid")

    def __init__(self) -> None:
        self.index = 0  # of this process
        self.count = 1  # of all
        self.pid = 0  # of this process, for status
        # Bridges to the others, and which process is behind each; -1: not known yet.
        self.bridges: dict[Worker, int] = {}


class State:
    # Slots, because instances with this many attributes are slow to read without them, and the hot path reads them constantly.
    __slots__ = (
        "acceptance_times", "address", "affinity", "builtin", "counters", "drained", "draining", "durable_requests", "entropy", "errors",
        "freed", "held_bytes", "limits", "listeners", "max_held_bytes", "max_outstanding", "max_queue", "memo_workers", "newest_request",
        "newest_session", "newest_worker", "now", "observer", "offered", "own_identity", "paused", "paused_clients", "policy", "process",
        "recorder", "records_bodies", "records_messages", "records_requests", "registrations", "revoking", "rights", "routes",
        "schedulers", "services", "session_workers", "sessions", "since", "started", "tallies", "timers", "tokens", "tuning",
        "unattended", "wall", "workers",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        entropy: Entropy,
        policy: Policy,
        tuning: Tuning,
        recorder: Recorder,
        wall: float = 0.0,
        address: str = "",
    ) -> None:
        self.now = now
        self.wall = wall
        self.started = now
        self.address = address  # the broker's address, which the catalog lists for services of other protocols
        self.policy = policy
        self.tuning = tuning
        self.entropy = entropy
        self.own_identity = b""  # see ``identity``
        self.record_to(recorder)

        # --- peers and services
        self.services: dict[bytes, Service] = {}
        self.workers: dict[Worker, None] = {}
        self.sessions: dict[Session, None] = {}
        self.session_workers: dict[Session, dict[Worker, None]] = {}  # workers of each connection that has any
        self.memo_workers: dict[bytes, Worker] = {}  # memo01's workers by id; an id may continue on any connection
        self.schedulers: dict[Session, None] = {}  # eMQP's connected schedulers, the longest connected first
        self.registrations = 0  # one per worker and service
        self.process = Process()

        # --- requests
        self.held_bytes = 0  # bytes of bodies of open requests, and of partial replies held for their clients
        self.newest_request = 0  # numbers count up from 1
        self.newest_worker = 0
        self.newest_session = 0
        self.tokens = Tokens()
        self.timers = Timers()
        self.acceptance_times: AcceptanceTimes | None = None  # of ended requests, once a publisher may send log records
        self.revoking: dict[Request, None] = {}  # requests that workers were asked to release (``dispatch.rebalance``)
        self.unattended = Unattended(self.sessions)
        self.affinity = Affinity()

        # --- limits, pauses and shutdown
        # Copies of the policy's numbers, which never change: the hot path reads them.
        self.max_queue = self.policy.max_queue
        self.max_outstanding = self.policy.max_outstanding
        self.max_held_bytes = self.policy.max_held_bytes
        self.paused_clients: dict[Session, Service] = {}  # clients at a limit, and the service whose queue they filled
        self.paused: dict[bytes, dict[Request, None]] = {}  # service name -> requests that wait until it is resumed
        self.drained: set[bytes] = set()  # names of services that reject requests
        self.since: dict[bytes, float] = {}  # service name -> time of the last pause or drain
        self.draining = False  # the broker is shutting down
        self.offered: dict[bytes, None] | None = (
            None  # services that a worker began to offer in this turn; None: without jobs
        )

        # --- the services that the broker answers itself
        self.builtin = BuiltinServices([])

        # --- counters
        self.counters = Counters()
        self.tallies = Tallies()
        self.errors = ErrorGroups()

        # --- parts of the broker above these tables
        self.rights = Rights()
        self.routes = Routes()
        self.limits = Limits()
        self.freed: dict[bytes, None] = {}  # services whose requests were over a limit, and may start now
        self.observer = Observer()
        self.listeners: list[SessionListener] = []
        self.durable_requests: DurableRequests | None = None  # None if no process can make requests durable

    def record_to(self, recorder: Recorder) -> None:
        """Sets the recorder that receives the broker's events."""
        self.recorder = recorder
        self.records_requests = recorder.wants_requests
        self.records_messages = recorder.wants_messages
        self.records_bodies = recorder.wants_bodies
