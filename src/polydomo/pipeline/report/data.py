"""The content of the report as plain records. ``load.py`` fills them from the tables, ``page.py`` renders them."""

from dataclasses import dataclass, field


@dataclass
class BrokenRule:
    """A rule that was broken."""

    rule: str
    says: str
    count: int
    example: str  # the first breach, as text


@dataclass
class Audit:
    checked: int = 0
    breaches: list[BrokenRule] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # rules that the journal's level did not allow to check


@dataclass
class ServiceView:
    """One service over time; every list has one value for each of ``times``."""

    name: str
    times: list[float]  # seconds since the epoch, the beginning of each window
    step: float
    outcomes: dict[str, list[float]]
    latency: dict[str, list[float]]  # "p50" ... -> microseconds; 0 without replies
    waits: dict[str, list[float]]
    heat: dict[tuple[int, int], float]  # (index of the time, bucket) -> count
    requests: int = 0
    failed: int = 0  # without requests that clients cancelled
    retries: int = 0
    p50: float = 0.0
    p99: float = 0.0
    capacity: str = ""  # its capacity and objective, as text
    # Requests for a memoised service: `hit`, `miss`, `joined` -> count.
    memo: dict[str, int] = field(default_factory=dict)


@dataclass
class WorkerView:
    name: str
    service: str
    protocol: str
    answered: int
    utilisation: float  # share of the time it was present
    p50: float
    fellows_p50: float
    lost: int
    stale: int
    outlier: str  # the reason; empty if it is not an outlier


@dataclass
class Edge:
    """An edge of the topology: a client ``asks`` a service; a worker ``serves`` it or ``passes`` requests on; ``bridges`` join brokers."""

    kind: str
    source: str
    target: str
    count: int
    failed: int
    p50: float


@dataclass
class Reason:
    """Requests that failed, or jobs that died, for one reason."""

    outcome: str
    service: str
    reason: str
    count: int
    example: str  # the id of one of them


@dataclass
class FailureView:
    reason: Reason
    story: list[str]  # of the example, one line per step


@dataclass
class Slow:
    """One slow request as a waterfall: (kind, from, to, label), in microseconds from acceptance. Kinds: wait, run, lost."""

    request: str
    service: str
    total: float
    outcome: str
    parts: list[tuple[str, float, float, str]]


@dataclass
class JobView:
    """The durable jobs of one service."""

    service: str
    accepted: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    reopened: int = 0
    retries: int = 0
    backoff: float = 0.0  # microseconds between attempts, of all jobs together
    p50: float = 0.0  # from submission to outcome, microseconds
    p99: float = 0.0

    @property
    def open(self) -> int:
        """Jobs without an outcome at the end of the journal."""
        return max(0, self.accepted + self.reopened - self.done - self.dead - self.cancelled)


@dataclass
class ScheduleView:
    name: str
    fired: int = 0
    skipped: int = 0


@dataclass
class JobsView:
    count: int = 0  # accepted
    leaders: int = 0  # how often a broker began to lead
    services: list[JobView] = field(default_factory=list)
    dead: list[Reason] = field(default_factory=list)
    schedules: list[ScheduleView] = field(default_factory=list)


@dataclass
class FlowView:
    """The runs of the flows of one name."""

    name: str
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    nodes: int = 0  # of all runs
    p50: float = 0.0  # from start to end, microseconds
    p99: float = 0.0
    parts: list[tuple[str, float]] = field(default_factory=list)  # services, and their shares of the critical paths

    @property
    def runs(self) -> int:
        return self.done + self.failed + self.cancelled


@dataclass
class FlowRunView:
    flow: str
    name: str
    state: str
    nodes: int
    total: float  # microseconds
    open_at_once: float  # nodes, on average
    critical: int  # nodes on its critical path
    steps: list[tuple[str, str, float]]  # of them, those that took longest: node, service, microseconds


@dataclass
class FlowsView:
    count: int = 0  # runs that have ended
    flows: list[FlowView] = field(default_factory=list)
    slowest: list[FlowRunView] = field(default_factory=list)


@dataclass
class Report:
    since: float  # seconds since the epoch
    until: float
    brokers: list[str]
    requests: int
    outcomes: dict[str, int]
    audit: Audit
    services: list[ServiceView]
    workers: list[WorkerView]
    edges: list[Edge]
    failures: list[FailureView]
    slowest: list[Slow]
    jobs: JobsView = field(default_factory=JobsView)
    flows: FlowsView = field(default_factory=FlowsView)
    # Problems with the data: unreadable segments, holes, a low journal level.
    notes: list[str] = field(default_factory=list)
    service_count: int = 0  # all services, shown or not
    worker_count: int = 0
    # Tables of the user: name, rows, columns.
    own_tables: list[tuple[str, int, list[str]]] = field(default_factory=list)
