"""The state machine of jobs on a store in memory and a broker that the test plays."""

from datetime import UTC, tzinfo

from polydomo.broker.flows.flow import FlowRow
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.jobs.ops import NOT_LEADER, UNAVAILABLE, Loaded, Op, Store, StoreError
from polydomo.broker.jobs.policy import JobPolicy
from polydomo.broker.jobs.schedules import Schedules
from polydomo.model.outcomes import FAILED, OK
from polydomo.model.retry_policy import Backoff
from polydomo.stores.memory import MemoryBackend


class HeldStore(Store):
    """Keeps operations until ``sync``: nothing is on disk before."""

    def __init__(self, backend: MemoryBackend) -> None:
        self.backend = backend
        self.epoch = 0
        self.ops: list[Op] = []
        self.trouble: StoreError | None = None
        self.lease = True  # no other broker can lead

    def holds_lease(self) -> bool:
        return self.lease

    def put(self, op: Op) -> None:
        self.ops.append(op)

    def refusal(self) -> StoreError | None:
        return self.trouble

    def fail_alone(self, *kinds: type[Op]) -> int:
        """The store meets an internal error with the operations of these kinds, and does the others later. Returns how many there are."""
        failed = [op for op in self.ops if isinstance(op, kinds)]
        self.ops = [op for op in self.ops if not isinstance(op, kinds)]
        for op in failed:
            op.error = StoreError(UNAVAILABLE, "internal error: MemoryError()")
            op.finish()
        return len(failed)

    def sync(self) -> None:
        """Writes everything, and what follows from it."""
        while self.ops:
            ops, self.ops = self.ops, []
            writes = [op for op in ops if op.writes]
            try:
                self.backend.apply(writes, self.epoch)
            except StoreError as error:
                if error.code != NOT_LEADER:
                    raise
                for op in writes:
                    op.error = error
            for op in ops:
                if not op.writes:
                    self.backend.read(op)
            for op in ops:
                op.finish()


class World:
    """One broker, its clock and its workers: a ``Runner`` and a ``ScheduleContext``."""

    def __init__(self, backend: MemoryBackend | None = None) -> None:
        self.time = 1_000_000.0
        self.ids = 0
        self.room: dict[bytes, int] = {}
        self.started: list[Job] = []
        self.stopped: list[str] = []
        self.backend = backend if backend is not None else MemoryBackend()
        self.store = HeldStore(self.backend)
        self.policy = JobPolicy()
        self.policy.backoff = Backoff(attempts=3, first=1.0, jitter=0.0)
        self.policy.keep = 100.0
        self.policy.keep_dead = 1000.0
        self.policy.repeat = 60.0
        self.jobs = Jobs(self.store, self, self.policy)
        self.schedules = Schedules(self.jobs, self)
        self.answers: list[tuple[str, str]] = []  # what callers heard: job and state, or the code of an error

    def lead(self) -> Loaded:
        self.store.epoch = self.backend.acquire("a", "", 10.0).epoch
        loaded = self.backend.load(self.time - self.policy.repeat)
        self.jobs.lead(self.store.epoch, loaded)
        self.schedules.load(loaded.schedules)
        self.store.sync()  # what it reads of the jobs that have ended
        return loaded

    # Runner and ScheduleContext
    def now(self) -> float:
        return self.time

    def chance(self) -> float:
        return 0.0

    def capacity(self, service: bytes) -> int:
        return self.room.get(service, 0)

    def start(self, job: Job) -> None:
        self.started.append(job)

    def stop(self, job: Job) -> None:
        self.stopped.append(job.id)
        self.started.remove(job)

    def zone(self, name: str) -> tzinfo:
        return UTC

    def denial_of_services(self, principal: str, services: list[bytes]) -> str:
        return ""

    def flow_started(self, row: FlowRow) -> None:
        pass

    def refusal_of(self, job: Job) -> str:
        return ""

    def new_id(self) -> str:
        self.ids += 1
        return f"S{self.ids}"

    # what tests do
    def hear(self, job: Job | None, error: StoreError | None) -> None:
        if error is not None:
            self.answers.append(("", error.code))
        elif job is None:
            self.answers.append(("", "none"))
        else:
            self.answers.append((job.id, job.state))

    def heard(self) -> list[tuple[str, str]]:
        heard, self.answers = self.answers, []
        return heard

    def submit(self, id: str, **fields: object) -> Job:
        job = Job(id, b"work", b"\x00\x01x", self.time)
        for name, value in fields.items():
            setattr(job, name, value)
        self.jobs.submit(job, self.hear)
        return job

    def end(self, code: str = OK, body: bytes = b"\x00\x02ok", after: float = -1.0, taken: bool = True) -> Job:
        """The oldest attempt ends."""
        job = self.started.pop(0)
        self.jobs.attempt_ended(
            job, code, "" if code == OK else f"it was {code}", body if code == OK else b"", taken, after
        )
        return job

    def fail(self) -> Job:
        return self.end(FAILED)

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.jobs.run_due()
        self.schedules.run_due()
        self.store.sync()
        self.jobs.check()
