"""Durable jobs of services with limits: which of them the job queue passes to the broker, and whether those may start."""

from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.policy import JobLanes
from polydomo.broker.limiting.job_starts import JobStarts
from polydomo.broker.limiting.limiter import Limiter
from polydomo.model.service_limits import GROUP, PRINCIPAL


class LimitedJobs(JobLanes):
    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def lane(self, job: Job) -> "tuple[bytes, int] | None":
        limits = self._limiter.of(job.service)
        if limits is None:
            return None
        text = job.group if limits.per == GROUP else job.principal if limits.per == PRINCIPAL else ""
        return text.encode("utf-8", "surrogateescape"), limits.most()

    def parked(self, service: bytes) -> int:
        queue = self._limiter.queues.get(service)
        return sum([one.waiting - len(one.ready) for one in queue.of_jobs.values()]) if queue is not None else 0


class LeaderStarts(JobStarts):
    """A process that stood still may not know yet that another broker leads, and counts the starts."""

    def __init__(self, durable: Durable) -> None:
        super().__init__(durable.session)
        self._durable = durable

    def allowed(self) -> bool:
        return self._durable.jobs.store.holds_lease()

    def withdraw(self) -> None:
        self._durable.withdraw()
