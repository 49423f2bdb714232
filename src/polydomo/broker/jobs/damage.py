"""Jobs whose stored data has changed on disk."""

from typing import TYPE_CHECKING

from polydomo.broker.jobs import events
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Condemn, Op

if TYPE_CHECKING:
    from polydomo.broker.jobs.jobs import Jobs


def condemn(jobs: "Jobs", job: Job, was_open: bool = False) -> None:
    """Stores that the data of a job is damaged: it is a dead job from now on. For an open job, this is its outcome; that of any other job
    was recorded before."""
    job.ended = jobs.runner.now()
    job.keep = job.ended + jobs.policy.keep_dead if jobs.policy.keep_dead else 0.0
    jobs.counters.damaged += 1
    op = Condemn(job)

    def recorded(_: Op) -> None:
        if was_open and op.error is None:
            jobs.counters.dead += 1
            jobs.listener.job_event(events.outcome(job))

    op.then = recorded
    jobs.put(op)


def sound(jobs: "Jobs", loaded: "list[Job]", were_open: bool) -> "list[Job]":
    """The loaded jobs that are not damaged. The others are condemned."""
    for job in loaded:
        if job.damage:
            condemn(jobs, job, were_open)
    return [job for job in loaded if not job.damage]
