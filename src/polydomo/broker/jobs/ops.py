"""What the state machine asks of a store. Each operation is one object; the store fills in its answer and hands it back.

``Store.put`` takes an operation; later, on the broker's own thread and in any order, the store's owner calls ``op.finish()``. A write is
finished only once it is on disk. A write that failed has ``error`` set. All writes of one group are one transaction, and each carries
the epoch of the leader: a store that has seen a newer one refuses the whole group.
"""

from collections.abc import Callable

from polydomo.broker.jobs.job import Job

# Why an operation failed.
FULL = "store-full"  # the disk is full, or too much waits for it
UNAVAILABLE = "store-unavailable"  # the store cannot be reached or written; a write may or may not have happened
NOT_LEADER = "not-leader"  # another broker leads


class StoreError(Exception):
    """A store could not do what it was asked. ``code`` says what kind of failure it is."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Op:
    """One operation. ``then`` is called with it when it is finished."""

    writes = True
    retained = True  # kept and tried again while the store cannot be written; otherwise it fails

    def __init__(self) -> None:
        self.in_doubt = False  # it was tried and may have been written: it must be tried until that is known
        self.epoch = 0  # of the leader that asks for a write: a store refuses it under any other
        self.error: StoreError | None = None
        self.then: Callable[[Op], None] | None = None

    def size(self) -> int:
        """Bytes it holds in memory while it waits."""
        return 0

    def finish(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            then(self)


class Insert(Op):
    """A new job. If its id or its key is taken, ``existing`` is that job and nothing is stored."""

    retained = False

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.existing: Job | None = None

    def size(self) -> int:
        return len(self.job.body)


class Fire(Op):
    """A run of a schedule: its job, and when the next one is due, in one transaction. ``done`` is false if that run was made already."""

    def __init__(self, name: str, fired: float, following: float, job: Job | None) -> None:
        super().__init__()
        self.name = name
        self.fired = fired
        self.following = following  # 0: there is none
        self.job = job  # None: the run is skipped
        self.done = False

    def size(self) -> int:
        return len(self.job.body) if self.job is not None else 0


class Progress(Op):
    """An open job was started, or waits for its next attempt."""

    def __init__(self, id: str, attempts: int, due: float, story: str) -> None:
        super().__init__()
        self.id = id
        self.attempts = attempts
        self.due = due
        self.story = story


class Finish(Op):
    """The one outcome of a job. ``done`` is false if it had one already."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.done = False

    def size(self) -> int:
        return len(self.job.result)


class Reopen(Op):
    """A dead job is tried again, from its first attempt. ``job`` is None if there is no such dead job."""

    def __init__(self, id: str, due: float) -> None:
        super().__init__()
        self.id = id
        self.due = due
        self.job: Job | None = None


class Remove(Op):
    """Removes a job that has ended, in this state if one is named. ``done`` is false if there is none."""

    def __init__(self, id: str, state: str = "") -> None:
        super().__init__()
        self.id = id
        self.state = state
        self.done = False


class Collected(Op):
    """The result of a plain request was sent to its client: a repeat of it is a new request. Nobody waits for this write."""

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id


class Purge(Op):
    """Removes what was kept long enough, some of it at a time. ``count`` says how many jobs were removed."""

    retained = False

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self.count = 0


class ScheduleRow:
    """A schedule as it is stored."""

    __slots__ = ("body", "created", "missed", "name", "next", "priority", "service", "settings", "timing", "zone")

    def __init__(self, name: str, service: bytes, body: bytes, timing: str, zone: str, created: float) -> None:
        self.name = name
        self.service = service
        self.body = body
        self.timing = timing  # a cron expression, or an interval such as "every 30s"
        self.zone = zone  # IANA name, such as Europe/Berlin
        self.missed = "once"  # a missed run is made up "once", or "skip"
        self.priority = 0
        self.settings = ""  # those of its jobs, as ``Job.settings`` writes them
        self.created = created
        self.next = 0.0  # 0: never again


class PutSchedule(Op):
    """A new schedule, or another under the same name."""

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
    """A service is paused, or no longer."""

    def __init__(self, service: bytes, paused: bool) -> None:
        super().__init__()
        self.service = service
        self.paused = paused


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
    """What a new leader reads first."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []  # all that are open
        self.uncollected: list[Job] = []  # ended plain requests whose result has not been sent, without their results
        self.schedules: list[ScheduleRow] = []
        self.paused: list[bytes] = []


class Store:
    """Where operations go. The state machine sees nothing else of a store."""

    def put(self, op: Op) -> None:
        raise NotImplementedError

    def refusal(self) -> StoreError | None:
        """Why no new job can be taken now; None if one can."""
        return None
