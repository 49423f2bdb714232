"""The operations of a job store. Each operation is an object; the store fills in the answer and returns it.

``Store.put`` takes an operation. Later, in the broker's thread and in any order, the store's owner calls ``op.finish()``. A write is
finished only once it is on disk. A failed write has ``error`` set. All writes of a group are one transaction, and each carries the leader's
epoch: a store that has seen a newer epoch rejects the whole group.
"""

from collections.abc import Callable

from polydomo.broker.flows.flow import FlowRow, Settled
from polydomo.broker.flows.growth import Growth
from polydomo.broker.jobs.job import Job, story_text
from polydomo.broker.jobs.part import Position, StoredPart
from polydomo.model.service_limits import ServiceLimits
from polydomo.native import mypyc_attr

# Failure codes of operations.
FULL = "store-full"  # the disk is full, or too many writes are pending
UNAVAILABLE = "store-unavailable"  # the store cannot be reached or written to; a write may or may not have happened
NOT_LEADER = "not-leader"  # another broker is the leader
DAMAGED = "store-damaged"  # this part of the store cannot be read: the file is damaged

# When an operation that failed alone is put again (``broker.jobs.failed_ops``).
NEVER = "never"
IN_DOUBT = "in doubt"  # only if it may have been written before: its caller must not be told that it was not
ALWAYS = "always"  # no caller repeats it, and it must not be lost


class StoreError(Exception):
    """A store operation failed. ``code`` is one of the codes above."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Op:
    """One operation. ``then`` is called with it when it has finished."""

    writes = True
    retained = True  # retried while the store cannot be written to; otherwise it fails
    can_wait = False  # no caller waits for it: it needs no sync of its own, and is written with the next group, or a second later
    repeat = IN_DOUBT  # NEVER for one that another may have overtaken by then, or whose loss has no effect

    def __init__(self) -> None:
        self.in_doubt = False  # it was attempted and may have been written, so it is retried until the result is known
        self.epoch = 0  # epoch of the leader; the store rejects writes of any other epoch
        self.error: StoreError | None = None
        self.failures = 0  # how often it failed alone
        self.put_again: Callable[[Op], bool] | None = None  # asked when it has failed alone
        self.wanted: Callable[[], bool] | None = None  # asked before it is put again
        self.then: Callable[[Op], None] | None = None

    def size(self) -> int:
        """Memory it uses while it waits."""
        return 0

    def forget(self) -> None:
        """Drops the answer, before each transaction that has this operation: an earlier one may have been rolled back."""

    def renew(self, now: float) -> None:
        """It is put again."""
        self.error = None

    def finish(self) -> None:
        if self.error is not None and self.error.code == UNAVAILABLE and self.put_again is not None:
            if self.put_again(self):
                return
        then, self.then = self.then, None
        if then is not None:
            then(self)


class Insert(Op):
    """Stores a new job. If its id or key already exists, ``existing`` is that job and nothing is stored."""

    retained = False

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.existing: Job | None = None

    def forget(self) -> None:
        self.existing = None

    def size(self) -> int:
        return len(self.job.body)


class Fire(Op):
    """Stores a run of a schedule: its job or its flow, and the time of the next run, in one transaction. ``done`` is false if that run
    already happened."""

    repeat = ALWAYS

    def __init__(self, row: "ScheduleRow", fired: float, following: float, job: Job | None) -> None:
        super().__init__()
        self.row = row
        self.name = row.name
        self.fired = fired
        self.following = following  # 0: there is none
        self.job = job  # None: the run is skipped, or starts a flow
        self.flow: FlowRow | None = None  # the flow that it starts
        self.growth: Growth | None = None  # its nodes
        self.done = False

    def size(self) -> int:
        return len(self.job.body) if self.job is not None else 0


class Progress(Op):
    """Updates an open job that was started or waits for its next attempt."""

    repeat = NEVER

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.id = job.id
        self.attempts = job.attempts  # these may have changed when it is written
        self.due = job.due
        self.story = story_text(job.story)


class Finish(Op):
    """Stores the outcome of a job. ``done`` is false if it already had one. If the job is a node of a flow, the same transaction releases
    the nodes that waited only for it; one operation of the group gets what changed in flows."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.done = False
        self.settled: Settled | None = None

    def forget(self) -> None:
        self.done = False
        self.settled = None

    def size(self) -> int:
        return len(self.job.result)


class PutParts(Op):
    """Stores partial replies of jobs. The first one of an attempt replaces those of earlier attempts."""

    repeat = NEVER

    def __init__(self, parts: list[StoredPart]) -> None:
        super().__init__()
        self.parts = parts

    def size(self) -> int:
        return sum([len(part.body) for part in self.parts])


class GetParts(Op):
    """Reads partial replies of a job after a position: at most ``most``, and of ``most_bytes``, but at least one. ``last`` is the last one
    that is stored, without its body."""

    writes = False

    def __init__(self, job: str, after: Position, most: int, most_bytes: int) -> None:
        super().__init__()
        self.job = job
        self.after = after
        self.most = most
        self.most_bytes = most_bytes
        self.parts: list[StoredPart] = []
        self.last: StoredPart | None = None


class Replace(Op):
    """Replaces the damaged record of a job, by a dead job without body and result, or by the outcome of a job that was in memory."""

    repeat = ALWAYS

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.settled: Settled | None = None  # if it was a node of a flow

    def forget(self) -> None:
        self.settled = None


class Reopen(Op):
    """Reopens a dead job, starting at the first attempt. ``job`` is None if there is no such dead job, its data is damaged, or it is a
    node of a flow, which is retried as a whole. A job without a principal gets that of the operator who reopens it."""

    def __init__(self, id: str, due: float, principal: str = "") -> None:
        super().__init__()
        self.principal = principal
        self.id = id
        self.due = due
        self.job: Job | None = None

    def forget(self) -> None:
        self.job = None


class Remove(Op):
    """Removes a finished job, only in the given state if one is set. ``done`` is false if there is none. The node of a flow is removed with
    its flow."""

    def __init__(self, id: str, state: str = "") -> None:
        super().__init__()
        self.id = id
        self.state = state
        self.done = False


class Collected(Op):
    """Marks the result of an ordinary request as sent, so that a repetition is a new request. No client waits for this write."""

    can_wait = True
    repeat = NEVER

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id


class Purge(Op):
    """Removes some expired jobs. ``count`` is the number of jobs removed."""

    retained = False
    repeat = NEVER

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self.count = 0

    def forget(self) -> None:
        self.count = 0


class ScheduleRow:
    """A schedule as stored."""

    __slots__ = (
        "body",
        "created",
        "damage",
        "missed",
        "name",
        "next",
        "priority",
        "service",
        "settings",
        "timing",
        "zone",
    )

    def __init__(self, name: str, service: bytes, body: bytes, timing: str, zone: str, created: float) -> None:
        self.name = name
        self.service = service
        self.body = body
        self.timing = timing  # a cron expression, or an interval such as "every 30s"
        self.zone = zone  # IANA name, such as Europe/Berlin
        self.missed = "once"  # missed runs: "once" runs one of them later, "skip" drops them
        self.priority = 0
        self.settings = ""  # settings of its jobs, from ``Job.settings``
        self.created = created
        self.next = 0.0  # 0: never again
        self.damage = ""  # why the stored schedule cannot be used

    def same(self, other: "ScheduleRow") -> bool:
        """Whether both would submit the same jobs at the same times."""
        return (
            self.service == other.service
            and self.body == other.body
            and self.timing == other.timing
            and self.zone == other.zone
            and self.missed == other.missed
            and self.priority == other.priority
            and self.settings == other.settings
        )


class PutSchedule(Op):
    """Stores a new schedule, or replaces the one of the same name."""

    retained = False

    def __init__(self, row: ScheduleRow) -> None:
        super().__init__()
        self.row = row

    def size(self) -> int:
        return len(self.row.body)


class DropSchedule(Op):
    """Removes a schedule. ``done`` is false if there is none."""

    retained = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.done = False


class PutPause(Op):
    """Stores whether a service is paused."""

    repeat = ALWAYS

    def __init__(self, service: bytes, paused: bool) -> None:
        super().__init__()
        self.service = service
        self.paused = paused


class PutLimits(Op):
    """Stores the limits that an operator has set for a service or pattern; None removes them."""

    repeat = ALWAYS

    def __init__(self, pattern: str, limits: ServiceLimits | None) -> None:
        super().__init__()
        self.pattern = pattern
        self.limits = limits


class Get(Op):
    """Reads one job, by its id or by its key. ``job`` is None if there is none."""

    writes = False

    def __init__(self, id: str, key: str = "") -> None:
        super().__init__()
        self.id = id
        self.key = key
        self.job: Job | None = None


class Select(Op):
    """Reads jobs without their bodies and results: the newest first, or in the order in which they ended, from a position on."""

    writes = False

    def __init__(self, state: str, service: bytes, most: int) -> None:
        super().__init__()
        self.by_end = False  # jobs with an outcome, those that ended first at the beginning ...
        self.after_time = 0.0  # ... after this position
        self.after_id = ""
        self.state = state  # "": any
        self.service = service  # b"": any
        self.most = most
        self.jobs: list[Job] = []
        self.counts: dict[str, int] = {}  # by state, of the whole store


class Loaded:
    """The initial data of a new leader."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []  # all open jobs
        self.uncollected: list[Job] = []  # finished ordinary requests whose result was not sent, without the results
        self.schedules: list[ScheduleRow] = []
        self.paused: list[bytes] = []
        self.limits: dict[str, ServiceLimits] = {}  # that operators have set, by pattern
        self.flows: list[FlowRow] = []  # that have not ended
        self.notes: list[str] = []  # damaged data that is left out, for the log


@mypyc_attr(allow_interpreted_subclasses=True)
class Store:
    """The interface of a store for the state machine."""

    def put(self, op: Op) -> None:
        raise NotImplementedError

    def refusal(self) -> StoreError | None:
        """Why no new job can be accepted now; None if one can."""
        return None

    def holds_lease(self) -> bool:
        """Whether no other broker can lead now. False if this process stood still until its lease ran out. When the lease is renewed,
        jobs are resumed."""
        return True
