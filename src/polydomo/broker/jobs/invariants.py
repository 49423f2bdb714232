"""Cross-checks the redundant state of ``Jobs``, for tests."""

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import QUEUED, RECORDING, RUNNING
from polydomo.broker.jobs.jobs import Jobs


def check(jobs: Jobs) -> None:
    """Raises AssertionError if something is inconsistent."""
    inserting = sum(len(op.job.body) for op in jobs.inserting.values())
    assert jobs.bytes == inserting + sum(len(job.body) + len(job.result) for job in jobs.open.values())
    queued: dict[bytes, int] = {}
    released: dict[bytes, int] = {}
    for id, job in jobs.open.items():
        assert job.id == id and (job.state == states.OPEN) == (job.phase != RECORDING), (job.state, job.phase)
        assert not job.key or jobs.keys[job.scoped_key()] is job
        if job.phase == QUEUED:
            queued[job.service] = queued.get(job.service, 0) + 1
        elif job.phase == RUNNING:
            released[job.service] = released.get(job.service, 0) + 1
    for service, queue in jobs.waiting_jobs.by_service.items():
        assert queue.length == queued.pop(service, 0) and queue.released == released.pop(service, 0), service
    assert not queued and not released, (queued, released)
    assert set(jobs.waiting) <= set(jobs.open)
