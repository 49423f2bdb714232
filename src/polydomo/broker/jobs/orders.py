"""Orders of clients and operators about existing jobs: cancel, try again, remove, pause."""

from collections.abc import Callable

from polydomo.broker.jobs import events
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import RECORDING, RUNNING
from polydomo.broker.jobs.jobs import Answer, Jobs
from polydomo.broker.jobs.ops import Op, PutPause, Remove, Reopen, StoreError
from polydomo.model.request import CANCELLED

Changed = Callable[[bool, StoreError | None], None]


def cancel(jobs: Jobs, id: str, why: str, answer: Answer) -> None:
    """Cancels an open job. A worker that runs it may finish, but its reply is ignored. Answers with the job, or None if it is not open."""
    job = jobs.open.get(id)
    if job is None or job.phase == RECORDING:
        jobs.find(id, answer)
        return
    if job.phase == RUNNING:
        jobs.runner.stop(job)
        jobs.waiting_jobs.of_service(job.service).released -= 1
    jobs.wait(id, answer)
    jobs.record(job, states.CANCELLED, CANCELLED, why)
    jobs.pump(job.service)


def reopen(jobs: Jobs, id: str, answer: Answer, principal: str = "") -> None:
    """Retries a dead job for an operator. Answers with None if there is no such dead job."""
    if not jobs.leads:
        answer(None, jobs.not_leading())
        return
    op = Reopen(id, jobs.runner.now(), principal)

    def reopened(_: Op) -> None:
        job = op.job
        if job is not None and op.error is None and jobs.leads and job.id not in jobs.open:
            jobs.adopt(job, jobs.runner.now())
            jobs.counters.reopened += 1
            jobs.listener.job_event(events.reopened(job))
            jobs.pump(job.service)
        answer(job, op.error)

    op.then = reopened
    jobs.put(op)


def remove(jobs: Jobs, id: str, answer: Changed, state: str = "") -> None:
    """Removes a finished job and its result; with ``state``, only if it ended in that state."""
    if not jobs.leads:
        answer(False, jobs.not_leading())
        return
    op = Remove(id, state)

    def removed(_: Op) -> None:
        answer(op.done, op.error)

    op.then = removed
    jobs.put(op)


def pause(jobs: Jobs, service: bytes, paused: bool) -> None:
    """Jobs of a paused service wait without limit."""
    if paused:
        jobs.paused.add(service)
    else:
        jobs.paused.discard(service)
    if jobs.leads:
        jobs.put(PutPause(service, paused))
    if not paused:
        jobs.service_changed(service)
