"""New jobs, one or several in a message: ``polydomo.submit`` and ``polydomo.submit.many``."""

from polydomo.broker.guard.rules import CALL
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import OTHER_BODY, Durable
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.jobs import Answer
from polydomo.broker.jobs.ops import StoreError
from polydomo.broker.reserved_names import is_reserved
from polydomo.errors import SettingError
from polydomo.limits import WORK_REQUEST
from polydomo.model.jobs.bulk import read_submissions
from polydomo.model.jobs.messages import Submission, stored_body
from polydomo.model.outcomes import DENIED, KEY_REUSED
from polydomo.model.records import Request


def submit(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    wanted = Submission(header, content)
    why = _denial(durable, request, wanted.service)
    if why:
        durable.fail(request, DENIED, why)
        return
    job = _job_of(durable, request, wanted, durable.now())

    def stored(found: Job | None, error: StoreError | None) -> None:
        if found is None:
            durable.refuse(request, error if error is not None else durable.jobs.not_leading())
        elif found is not job and not job.repeats(found):
            durable.fail(request, KEY_REUSED, OTHER_BODY)
        else:
            durable.answer(request, stored_body(found.id, state_of(found), found is not job))

    durable.submit(job, stored)


def submit_many(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    """A message that has a mistake, a service that its client may not call, or more jobs than there is room for, stores none of them."""
    wanted = read_submissions(header, content)
    for service in sorted({each.service for each in wanted}):
        why = _denial(durable, request, service)
        if why:
            durable.fail(request, DENIED, why)
            return
    request.session.link.charge(WORK_REQUEST * len(wanted))
    new = [each for each in wanted if each.id not in durable.jobs.open]
    error = durable.jobs.refusal(sum([len(each.body) for each in new]), len(new)) if new else None
    if error is not None:
        durable.refuse(request, error)
        return
    _Storing(durable, request, wanted).run()


class _Storing:
    """The jobs of one message, until the last one is on disk."""

    def __init__(self, durable: Durable, request: Request, wanted: "list[Submission]") -> None:
        self.durable = durable
        self.request = request
        now = durable.now()
        self.jobs = [_job_of(durable, request, each, now) for each in wanted]
        self.ids = [""] * len(self.jobs)
        self.repeated: list[int] = []
        self.failed: list[list[object]] = []
        self.left = len(self.jobs)

    def run(self) -> None:
        for number, job in enumerate(self.jobs):
            self.durable.submit(job, self._answer_of(number, job))

    def _answer_of(self, number: int, job: Job) -> Answer:
        def stored(found: Job | None, error: StoreError | None) -> None:
            if found is None:
                problem = error if error is not None else self.durable.jobs.not_leading()
                self.failed.append([number, problem.code, problem.text])
            elif found is not job and not job.repeats(found):
                self.failed.append([number, KEY_REUSED, OTHER_BODY])
            else:
                self.ids[number] = found.id
                if found is not job:
                    self.repeated.append(number)
            self.left -= 1
            if not self.left:
                self._reply()

        return stored

    def _reply(self) -> None:
        answer: Row = {"jobs": self.ids, "repeated": sorted(self.repeated), "failed": self.failed}
        self.durable.reply(self.request, answer)


def _denial(durable: Durable, request: Request, service: bytes) -> str:
    if is_reserved(service):
        name = service.decode(errors="replace")
        raise SettingError(f"service: {name!r} is a built-in service, and cannot run jobs")
    return durable.state.rights.denial_of(request, CALL, service)


def _job_of(durable: Durable, request: Request, wanted: Submission, now: float) -> Job:
    job = Job(wanted.id or durable.new_id(), wanted.service, wanted.body, now)
    job.principal = request.origin
    job.set_key(wanted.key)
    _, job.trace = request.session.facts_of(request.ref)
    job.priority = wanted.priority
    job.due = max(now, wanted.at, now + wanted.delay)
    job.expires = job.due + wanted.ttl if wanted.ttl else 0.0
    job.run = wanted.run
    job.backoff = wanted.backoff
    job.group, job.near = wanted.group, wanted.near
    return job


def state_of(job: Job) -> str:
    """The state to show. An outcome that is not on disk yet is not shown."""
    if job.phase == states.RECORDING:
        return states.RUNNING
    return job.phase if job.state == states.OPEN else job.state
