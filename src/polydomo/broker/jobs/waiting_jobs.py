"""Waiting jobs: those that are not due yet, those that wait for a worker, and their expiry."""

from heapq import heappop, heappush

from polydomo.broker.jobs.job import DELAYED, ENDED, QUEUED, Job


class JobLane:
    """The jobs of a service that share a limit."""

    __slots__ = ("heap", "key", "released")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.released = 0  # jobs that were passed to the broker
        self.heap: list[tuple[int, int, Job]] = []  # queued jobs that wait until one of them has ended


class ServiceQueue:
    """The queued jobs of one service: the highest priority first, then the oldest."""

    __slots__ = ("heap", "lanes", "length", "released")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Job]] = []
        self.length = 0  # number of queued jobs in the heap
        self.released = 0  # jobs that were passed to the broker: queued there or held by workers
        self.lanes: dict[bytes, JobLane] = {}  # of a service with limits, if some of its jobs were passed to the broker


class WaitingJobs:
    """All waiting jobs. A job that leaves early stays in its heap and is skipped there, because of its phase."""

    def __init__(self) -> None:
        self.by_service: dict[bytes, ServiceQueue] = {}
        self.sequence = 0
        self._delayed: list[tuple[float, int, Job]] = []
        self._expiring: list[tuple[float, int, Job]] = []

    def accept(self, job: Job) -> None:
        """Adds a job."""
        self.sequence += 1
        job.sequence = self.sequence
        if job.expires:
            heappush(self._expiring, (job.expires, job.sequence, job))

    def delay(self, job: Job) -> None:
        job.phase = DELAYED
        heappush(self._delayed, (job.due, job.sequence, job))

    def queue(self, job: Job) -> ServiceQueue:
        job.phase = QUEUED
        queue = self.of_service(job.service)
        heappush(queue.heap, (-job.priority, job.sequence, job))
        queue.length += 1
        return queue

    def of_service(self, service: bytes) -> ServiceQueue:
        queue = self.by_service.get(service)
        if queue is None:
            queue = self.by_service[service] = ServiceQueue()
        return queue

    def count(self, service: bytes) -> int:
        """Jobs that wait for a worker of the service, and were not passed to the broker."""
        queue = self.by_service.get(service)
        return queue.length if queue is not None else 0

    def pop(self, queue: ServiceQueue) -> Job | None:
        """Removes and returns the next job of a queue."""
        while queue.heap:
            job = heappop(queue.heap)[2]
            if job.phase == QUEUED:
                queue.length -= 1
                return job
        return None

    def releases(self, queue: ServiceQueue, job: Job, key: bytes, most: int) -> bool:
        """Whether the job, which was just taken from the queue, may be passed to the broker. Otherwise it waits in its lane."""
        lane = queue.lanes.get(key)
        if lane is None:
            lane = queue.lanes[key] = JobLane(key)
        if lane.released >= most:
            queue.length += 1
            heappush(lane.heap, (-job.priority, job.sequence, job))
            return False
        lane.released += 1
        job.lane = key
        return True

    def returned(self, job: Job) -> None:
        """The broker does not have the job any more: the next one of its lane may go."""
        queue = self.of_service(job.service)
        queue.released -= 1
        key, job.lane = job.lane, None
        lane = queue.lanes.get(key) if key is not None else None
        if lane is None:
            return
        lane.released -= 1
        while lane.heap:
            entry = heappop(lane.heap)
            if entry[2].phase == QUEUED:
                heappush(queue.heap, entry)
                return
        if lane.released <= 0:
            del queue.lanes[lane.key]

    def rejoin(self, service: bytes) -> None:
        """The limits of the service have changed: jobs that wait in lanes are looked at again."""
        queue = self.by_service.get(service)
        if queue is not None:
            for lane in queue.lanes.values():
                for entry in lane.heap:
                    heappush(queue.heap, entry)
                lane.heap.clear()

    def leave(self, job: Job) -> None:
        """Removes a waiting job that is about to end; the caller changes its phase."""
        if job.phase == QUEUED:
            self.of_service(job.service).length -= 1

    def forget(self, service: bytes) -> None:
        """Removes an empty queue."""
        queue = self.by_service.get(service)
        if queue is not None and not queue.length and not queue.released:
            del self.by_service[service]

    def due(self, now: float) -> "list[Job]":
        """Removes and returns delayed jobs that are due."""
        found: list[Job] = []
        while self._delayed and self._delayed[0][0] <= now:
            when, _, job = heappop(self._delayed)
            if job.phase == DELAYED and job.due == when and job.state not in ENDED:
                found.append(job)
        return found

    def expired(self, now: float) -> "list[Job]":
        """Waiting jobs whose time to live has expired."""
        found: list[Job] = []
        while self._expiring and self._expiring[0][0] <= now:
            job = heappop(self._expiring)[2]
            if job.phase in (DELAYED, QUEUED) and job.state not in ENDED:
                found.append(job)
        return found

    def next(self) -> float:
        """When ``due`` or ``expired`` will next return a job; 0: never."""
        while self._delayed and self._delayed[0][2].phase != DELAYED:
            heappop(self._delayed)
        first = self._delayed[0][0] if self._delayed else 0.0
        if self._expiring and (not first or self._expiring[0][0] < first):
            first = self._expiring[0][0]
        return first
