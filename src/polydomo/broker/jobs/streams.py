"""``polydomo.stream``: the partial replies of a job, as far as they are stored, and at last the rest of its result.

    request   {"job", "after", "wait_us"}
    answer    {"job", "state", "parts": [{"attempt", "number", "frames"}, ...], "next"}  frames of all parts
              {"job", "state", "parts": [], "final": {"attempt", "number", "frames"}, "next"}  frames
              {"job", "state", "parts": [], "outcome", "reason", "next"}  the job has ended, and nothing is left to send

``after`` is ``next`` of the answer before, or "" at first. If a job that has not ended has no parts in the answer, ``wait_us`` is over.
A client that asks again after each answer gets every part once, also over restarts of the broker, and reads at its own pace.
"""

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.ops import GetParts, StoreError
from polydomo.broker.jobs.part import Position, StoredPart, read_position, write_position
from polydomo.broker.jobs.services import is_denied, not_found, read_job
from polydomo.broker.jobs.submission import state_of
from polydomo.limits import MAX_RESULT_WAIT, PARTS_PAGE, PARTS_PAGE_COUNT, STORE_ANSWER
from polydomo.model.jobs.messages import read_duration, read_text
from polydomo.model.records import Request
from polydomo.wire.frames import chain, count


class JobFollower:
    """A client that follows a job."""

    def __init__(self, durable: Durable, request: Request, id: str, after: Position, seconds: float) -> None:
        self.durable = durable
        self.request = request
        self.id = id
        self.after = after
        self.timed = seconds > 0.0
        self.reading = False
        self.woken = False  # something has changed since the last look began
        self.epoch = 0  # of the leader, when the last look began
        wait = durable.parked[request]
        wait.leave = self._leave
        if self.timed:
            wait.deadline = durable.state.now + seconds
            wait.over = self._over
            durable.session.broker.set_timer(seconds, durable.session, request)

    def look(self) -> None:
        self.reading, self.woken = True, False
        self.epoch = self.durable.jobs.epoch
        self.durable.jobs.parts.watch(self.id, self._wake)  # before reading, so that nothing is missed
        self.durable.jobs.find(self.id, self._found)

    def _found(self, job: Job | None, error: StoreError | None) -> None:
        durable, request = self.durable, self.request
        wait = durable.parked.get(request)
        if wait is None:
            return
        if job is None:
            self._leave()
            not_found(durable, request, self.id, error)
            return
        if is_denied(durable, request, job):
            self._leave()
            return
        if not wait.job:
            wait.job = self.id
            durable.waiters.add(self.id, request)
        op = GetParts(self.id, self.after, PARTS_PAGE_COUNT, PARTS_PAGE)
        op.then = lambda _: self._read(job, op)
        durable.jobs.put(op)

    def _read(self, job: Job, op: GetParts) -> None:
        self.reading = False
        durable, request = self.durable, self.request
        if request not in durable.parked:
            self._leave()
        elif op.error is not None:
            self._leave()
            durable.refuse(request, op.error)
        elif not durable.jobs.leads or durable.jobs.epoch != self.epoch:  # it may have an outcome that was never stored
            self._leave()
            durable.refuse(request, durable.jobs.not_leading())
        elif op.parts:
            self._answer_parts(job, op.parts)
        elif job.state in states.ENDED and job.id not in durable.jobs.open:
            self._answer_end(job, op.last)
        elif self.woken:
            self.look()
        elif not self.timed:
            self._reply({**self._row(job), "parts": [], "next": write_position(self.after)})

    def _row(self, job: Job) -> Row:
        return {"job": job.id, "state": state_of(job)}

    def _answer_parts(self, job: Job, parts: "list[StoredPart]") -> None:
        """Parts that are damaged on disk are left out."""
        sound = [part for part in parts if not part.damaged]
        rows = [{"attempt": part.attempt, "number": part.number, "frames": count(part.body)} for part in sound]
        last = parts[-1]
        header = {**self._row(job), "parts": rows, "next": write_position((last.attempt, last.number))}
        self._reply(header, bytes(chain([part.body for part in sound])))

    def _answer_end(self, job: Job, last: StoredPart | None) -> None:
        attempt, number = (last.attempt, last.number + 1) if last is not None else (max(1, job.attempts), 1)
        header: Row = {**self._row(job), "parts": [], "next": write_position((attempt, number))}
        if job.state != states.DONE or self.after >= (attempt, number):
            self._reply({**header, "outcome": job.outcome, "reason": job.reason})
            return
        stop = last.stop if last is not None and not last.damaged and last.stop <= len(job.result) else 0
        rest = job.result[stop:]
        self._reply({**header, "final": {"attempt": attempt, "number": number, "frames": count(rest)}}, rest)

    def _reply(self, header: Row, body: bytes = b"") -> None:
        self._leave()
        self.durable.reply(self.request, header, body)

    def _wake(self) -> None:
        self.woken = True
        if not self.reading and self.request in self.durable.parked:
            self.look()

    def _over(self) -> None:
        """The time to wait is over: the next look is the last one."""
        self.timed = False
        wait = self.durable.parked[self.request]
        wait.over = None
        wait.deadline = self.durable.state.now + STORE_ANSWER
        if not self.reading:
            self.look()

    def _leave(self) -> None:
        self.durable.jobs.parts.stop_watching(self.id, self._wake)


def stream(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_job(header)
    after = read_position(read_text(header, "after", 40))
    seconds = min(read_duration(header, "wait_us"), MAX_RESULT_WAIT)
    JobFollower(durable, request, id, after, seconds).look()
