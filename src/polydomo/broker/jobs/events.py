"""Events of durable jobs, schedules and leadership, for the recorder: one object per event, with facts and no text to parse."""

from typing import Final

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import REOPENED, Job
from polydomo.model.json_form import iso_time
from polydomo.model.outcomes import REUSED

# What happened. An outcome is the state in which the job ended: done, dead or cancelled.
ACCEPTED: Final = "accepted"  # the job is stored
RETRY: Final = "retry"  # an attempt failed, and another one follows after ``wait``
FIRED: Final = "fired"  # a schedule submitted a job
SKIPPED: Final = "skipped"  # a schedule left out a run that was missed
LEADS: Final = "leads"  # this broker runs the jobs of the store from now on
FOLLOWS: Final = "follows"  # another broker does


class JobEvent:
    """One event. ``once`` identifies what must happen only once: the outcome of a job, or one run of a schedule."""

    __slots__ = (
        "added", "allowed", "attempts", "code", "created", "flow", "id", "key", "needs", "node", "node_name", "once", "origin", "position",
        "principal", "reason", "schedule", "service", "since", "size", "wait", "what",
    )  # fmt: skip

    def __init__(self, what: str, reason: str = "") -> None:
        self.what = what
        self.reason = reason
        self.id = ""
        self.service = b""
        self.key = ""  # idempotency key
        self.origin = ""  # see ``job.origin``
        self.schedule = ""  # the name of the schedule
        self.principal = ""  # the client that submitted the job
        # How the attempt or the job ended: ``ok``, ``reused``, ``failed``, ``timeout``, ``expired``, ...
        self.code = ""
        self.attempts = 0
        self.size = 0  # bytes of the body, or of the result
        self.wait = 0.0  # seconds: until the next attempt; of an outcome, of all waits between attempts
        self.created = 0.0  # seconds since the epoch: when the job was submitted, or for which time the schedule fired
        self.once = ""
        self.allowed = 0  # of ACCEPTED: see ``Job.allowed``
        # of a node of a flow
        self.flow = ""
        self.node = 0
        self.node_name = ""
        self.needs = ""
        self.position = 0
        self.since = 0
        self.added = 0  # nodes that replace it: then this is not its end


def about(job: Job, what: str, code: str = "", reason: str = "") -> JobEvent:
    """An event of a job."""
    event = JobEvent(what, reason)
    event.id = job.id
    event.service = job.service
    event.key = job.key if job.origin != states.REQUEST else ""
    event.origin = job.origin
    event.schedule = job.schedule
    event.principal = job.principal
    event.code = code
    event.attempts = job.attempts
    event.created = job.created
    if job.flow:
        event.flow, event.node, event.node_name = job.flow, job.node, job.node_name
    return event


def released(job: Job, what: str) -> JobEvent:
    """A job is stored, or a dead one is tried again; of a node, its release."""
    event = about(job, what)
    event.needs, event.position, event.since = job.needs, job.position, job.since
    return event


def outcome(job: Job) -> JobEvent:
    """The recorded outcome of a job."""
    reused = job.reused and job.state == states.DONE
    code = REUSED if reused else job.outcome
    event = about(job, job.state, code, job.reason if job.state != states.DONE else "")
    event.size = len(job.result)
    event.wait = job.waited
    # A damaged record does not say whether it was reopened after an earlier outcome.
    event.once = f"{job.id} {job.reopened() or ('damaged' if job.damage else '')}".rstrip()
    event.position, event.since = job.position, job.since
    return event


def reopened(job: Job) -> JobEvent:
    """A dead job is tried again."""
    return released(job, REOPENED)


def firing(name: str, due: float, job: Job | None, problem: str = "", principal: str = "", flow: str = "") -> JobEvent:
    """One run of a schedule, due at ``due``. Without ``job`` and ``flow``, the run was skipped, because it was missed or because of
    ``problem``."""
    if job is not None:
        event = about(job, FIRED)
    else:
        event = JobEvent(FIRED, f"flow {flow}") if flow else JobEvent(SKIPPED, problem)
    event.principal = principal
    event.schedule = name
    event.created = due
    event.once = f"{name} {iso_time(due)}"
    return event
