"""Partial replies of running jobs: they are stored, and only then shown to the clients that follow the job.

The first part after a pause is written at once. Those of all jobs in the next ``PARTS_GATHER`` are written together, so that a stream of
parts does not take a sync of the disk for each. Nothing is read here: a client that follows a job is woken, and reads from the store.
"""

from collections import deque
from collections.abc import Callable

from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Op, PutParts
from polydomo.broker.jobs.part import StoredPart
from polydomo.limits import JOB_PARTS, JOB_PARTS_BYTES, PARTS_GATHER, PARTS_PENDING

Wake = Callable[[], None]


class Sequence:
    """The parts of one running attempt."""

    __slots__ = ("attempt", "first", "kept", "number", "sizes", "stop")

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.number = 0
        self.stop = 0  # bytes of all parts so far
        self.sizes: deque[int] = deque()  # of the parts that are kept
        self.kept = 0  # their bytes
        self.first = 1  # the number of the first of them


class JobParts:
    """``put`` passes an operation to the store."""

    def __init__(self, put: Callable[[Op], None]) -> None:
        self._put = put
        self._running: dict[str, Sequence] = {}  # by job
        self._collected: list[StoredPart] = []
        self._due = 0.0  # when they are written, in seconds since the epoch; 0: there are none
        self._next = 0.0  # when parts may be written at once again
        self._pending = 0  # bytes of the parts that are not on disk
        self._watchers: dict[str, dict[Wake, None]] = {}  # of clients that follow a job

    # --- parts

    def begin(self, job: Job) -> None:
        """An attempt begins. It has no sequence until it sends a part."""
        self._running.pop(job.id, None)

    def add(self, job: Job, body: bytes, now: float) -> None:
        sequence = self._running.get(job.id)
        if sequence is None:
            sequence = self._running[job.id] = Sequence(self._next_attempt(job))
            job.streamed = sequence.attempt
        sequence.number += 1
        sequence.stop += len(body)
        sequence.sizes.append(len(body))
        sequence.kept += len(body)
        while len(sequence.sizes) > JOB_PARTS or (sequence.kept > JOB_PARTS_BYTES and len(sequence.sizes) > 1):
            sequence.kept -= sequence.sizes.popleft()
            sequence.first += 1
        if self._pending + len(body) > PARTS_PENDING:
            return  # the client misses a number, and the result has the part
        part = StoredPart(job.id, sequence.attempt, sequence.number, sequence.stop, body)
        part.first_kept = sequence.first
        self._collect(part)
        if now >= self._next:
            self._write(now)
        elif not self._due:
            self._due = self._next

    def _next_attempt(self, job: Job) -> int:
        return max(job.attempts, job.streamed) + 1

    def succeeded(self, job: Job) -> None:
        """The job is done, and its result is stored next: parts that are stored must be those of this attempt."""
        if job.streamed and job.id not in self._running:
            job.streamed = max(job.attempts - 1, job.streamed) + 1
            self._collect(StoredPart(job.id, job.streamed, 0, 0, b""))

    def flush(self, now: float) -> None:
        if self._collected:
            self._write(now)

    def _collect(self, part: StoredPart) -> None:
        self._collected.append(part)
        self._pending += len(part.body)

    def _write(self, now: float) -> None:
        op = PutParts(self._collected)
        self._collected = []
        self._due = 0.0
        self._next = now + PARTS_GATHER

        def stored(_: Op) -> None:
            self._pending -= op.size()
            if op.error is None:
                for id in dict.fromkeys([part.job for part in op.parts]):
                    self.wake(id)

        op.then = stored
        self._put(op)

    def next_deadline(self) -> float:
        """0: no timer is needed."""
        return self._due

    def run_due(self, now: float) -> None:
        if self._due and now >= self._due:
            self._write(now)

    def forget(self, id: str) -> None:
        """The job has its outcome."""
        self._running.pop(id, None)
        self.wake(id)

    def clear(self) -> None:
        """This broker does not lead any more."""
        self._running.clear()
        self._pending -= sum([len(part.body) for part in self._collected])
        self._collected = []
        self._due = 0.0
        for id in list(self._watchers):
            self.wake(id)

    # --- clients that follow a job

    def watch(self, id: str, wake: Wake) -> None:
        """Calls back once when the job has further parts, or has ended."""
        self._watchers.setdefault(id, {})[wake] = None

    def stop_watching(self, id: str, wake: Wake) -> None:
        found = self._watchers.get(id)
        if found is not None:
            found.pop(wake, None)
            if not found:
                del self._watchers[id]

    def wake(self, id: str) -> None:
        for wake in self._watchers.pop(id, {}):
            wake()

    def check(self, open: "dict[str, Job]") -> None:
        """For tests."""
        assert self._running.keys() <= open.keys(), "an attempt of a job that has ended has a sequence"
        assert self._pending >= sum([len(part.body) for part in self._collected])
        assert bool(self._due) == bool(self._collected), (self._due, len(self._collected))
        for id, sequence in self._running.items():
            assert open[id].streamed == sequence.attempt, id
            assert sequence.kept == sum(sequence.sizes) and len(sequence.sizes) <= JOB_PARTS, id
