"""Open jobs that wait: until they are due, until a worker is free, until they expire."""

from heapq import heappop, heappush

from polydomo.broker.jobs.job import DELAYED, ENDED, QUEUED, Job


class Lane:
    """The queued jobs of one service: the highest priority first, then the oldest."""

    __slots__ = ("heap", "length", "released")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Job]] = []
        self.length = 0  # jobs in it that are still queued
        self.released = 0  # jobs that the broker has, in its queue or with workers


class Lanes:
    """Every job that waits. A job that leaves early stays in its heap and is skipped there: its phase tells."""

    def __init__(self) -> None:
        self.by_service: dict[bytes, Lane] = {}
        self.sequence = 0
        self._delayed: list[tuple[float, int, Job]] = []
        self._expiring: list[tuple[float, int, Job]] = []

    def accept(self, job: Job) -> None:
        """A job that is new here."""
        self.sequence += 1
        job.sequence = self.sequence
        if job.expires:
            heappush(self._expiring, (job.expires, job.sequence, job))

    def delay(self, job: Job) -> None:
        job.phase = DELAYED
        heappush(self._delayed, (job.due, job.sequence, job))

    def queue(self, job: Job) -> Lane:
        job.phase = QUEUED
        lane = self.lane(job.service)
        heappush(lane.heap, (-job.priority, job.sequence, job))
        lane.length += 1
        return lane

    def lane(self, service: bytes) -> Lane:
        lane = self.by_service.get(service)
        if lane is None:
            lane = self.by_service[service] = Lane()
        return lane

    def pop(self, lane: Lane) -> Job | None:
        """The next job of a lane, which leaves it."""
        while lane.heap:
            job = heappop(lane.heap)[2]
            if job.phase == QUEUED:
                lane.length -= 1
                return job
        return None

    def leave(self, job: Job) -> None:
        """A job that waits is about to end: the caller changes its phase."""
        if job.phase == QUEUED:
            self.lane(job.service).length -= 1

    def forget(self, service: bytes) -> None:
        """A lane that is empty need not be kept."""
        lane = self.by_service.get(service)
        if lane is not None and not lane.length and not lane.released:
            del self.by_service[service]

    def due(self, now: float) -> "list[Job]":
        """Delayed jobs whose time has come; they leave."""
        found: list[Job] = []
        while self._delayed and self._delayed[0][0] <= now:
            when, _, job = heappop(self._delayed)
            if job.phase == DELAYED and job.due == when and job.state not in ENDED:
                found.append(job)
        return found

    def expired(self, now: float) -> "list[Job]":
        """Jobs that wait and whose time to live is over."""
        found: list[Job] = []
        while self._expiring and self._expiring[0][0] <= now:
            job = heappop(self._expiring)[2]
            if job.phase in (DELAYED, QUEUED) and job.state not in ENDED:
                found.append(job)
        return found

    def next(self) -> float:
        """When ``due`` or ``expired`` finds something next; 0: never."""
        while self._delayed and self._delayed[0][2].phase != DELAYED:
            heappop(self._delayed)
        first = self._delayed[0][0] if self._delayed else 0.0
        if self._expiring and (not first or self._expiring[0][0] < first):
            first = self._expiring[0][0]
        return first
