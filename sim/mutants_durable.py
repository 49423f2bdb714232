"""Mutants of durable jobs. Some seed of ``sim.durable`` must find each of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.failures import NEVER, NOT_SAID
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.jobs.ops import Finish, Fire, Insert, Loaded, Op
from polydomo.broker.jobs.schedules import Schedules
from polydomo.broker.jobs.waiting_jobs import WaitingJobs
from polydomo.stores import checks
from polydomo.stores.memory import MemoryBackend
from sim.durable import run_seed
from sim.replacing import swap

SEEDS = 100  # seeds within which a mutant must be found


@dataclass(frozen=True)
class DurableMutant:
    name: str
    says: str
    break_it: Callable[[ExitStack], None]
    first: int = 1  # the seed to begin with, if it takes many to find the mutant

    @contextmanager
    def broken(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.break_it(stack)
            yield


MUTANTS: list[DurableMutant] = []
Breaker = Callable[[ExitStack], None]


def collector(mutants: list[DurableMutant]) -> Callable[..., Callable[[Breaker], Breaker]]:
    """A decorator that adds a mutant to the list."""

    def mutant(says: str, first: int = 1) -> Callable[[Breaker], Breaker]:
        def add(function: Breaker) -> Breaker:
            mutants.append(DurableMutant(function.__name__.replace("_", "-"), says, function, first))
            return function

        return add

    return mutant


mutant = collector(MUTANTS)


@mutant("a job is acknowledged before it is on disk")
def acknowledge_before_sync(stack: ExitStack) -> None:
    def make(submit: Any) -> Any:
        def mutated(self: Jobs, job: Job, answer: Any) -> None:
            if self.leads and job.id not in self.open:
                answer(job, None)
                submit(self, job, lambda found, error: None)
            else:
                submit(self, job, answer)

        return mutated

    swap(stack, Jobs, "submit", make)


@mutant("an outcome is reported before it is on disk")
def outcome_before_sync(stack: ExitStack) -> None:
    def make(record: Any) -> Any:
        def mutated(self: Jobs, job: Job, state: str, outcome: str, reason: str) -> None:
            record(self, job, state, outcome, reason)
            for answer in self.waiting.pop(job.id, []):
                phase, job.phase = job.phase, state
                del self.open[job.id]
                answer(job, None)
                self.open[job.id], job.phase = job, phase

        return mutated

    swap(stack, Jobs, "record", make)


@mutant("a reason is stored as the worker said it, with characters that a database does not accept")
def reason_as_said(stack: ExitStack) -> None:
    def make(record: Any) -> Any:
        def mutated(self: Jobs, job: Job, state: str, outcome: str, reason: str, *more: Any) -> None:
            record(self, job, state, outcome, reason, *more)
            job.reason = reason

        return mutated

    swap(stack, Jobs, "record", make)


@mutant("the store ignores the epoch of a write", first=7)
def ignore_fencing(stack: ExitStack) -> None:
    def make(apply: Any) -> Any:
        def mutated(self: MemoryBackend, ops: list[Op], epoch: int) -> None:
            apply(self, ops, self.tables.epoch)

        return mutated

    def write_any(finish: Any) -> Any:
        def mutated(self: MemoryBackend, op: Finish) -> None:
            job = self.tables.jobs.get(op.job.id)
            if job is not None:
                job.state = states.OPEN  # a store that does not check the epoch overwrites the outcome
            finish(self, op)

        return mutated

    swap(stack, MemoryBackend, "apply", make)
    swap(stack, MemoryBackend, "_finish", write_any)


@mutant("a new leader does not load the jobs that wait for their next attempt", first=2)
def waiting_jobs_forgotten(stack: ExitStack) -> None:
    def make(lead: Any) -> Any:
        def mutated(self: Jobs, epoch: int, loaded: Loaded) -> None:
            loaded.jobs = [job for job in loaded.jobs if not job.attempts]
            lead(self, epoch, loaded)

        return mutated

    swap(stack, Jobs, "lead", make)


@mutant("results are dropped at a restart")
def results_dropped(stack: ExitStack) -> None:
    def make(load: Any) -> Any:
        def mutated(self: MemoryBackend, since: float) -> Loaded:
            for job in self.tables.jobs.values():
                if job.state == states.DONE:
                    job.result = b""
            return load(self, since)  # type: ignore[no-any-return]

        return mutated

    swap(stack, MemoryBackend, "load", make)


@mutant("a key is not looked up in the store")
def keys_forgotten(stack: ExitStack) -> None:
    def make(insert: Any) -> Any:
        def mutated(self: MemoryBackend, job: Job) -> Job | None:
            self.tables.keys.pop(job.scoped_key(), None)
            return insert(self, job)  # type: ignore[no-any-return]

        return mutated

    def forget(adopt: Any) -> Any:
        def mutated(self: Jobs, job: Job, now: float) -> None:
            adopt(self, job, now)
            self.keys.pop(job.scoped_key(), None)

        return mutated

    swap(stack, MemoryBackend, "_insert", make)
    swap(stack, Jobs, "adopt", forget)


@mutant("the time of a schedule's next run is not stored with the run")
def schedule_not_advanced(stack: ExitStack) -> None:
    def make(apply: Any) -> Any:
        def mutated(self: MemoryBackend, op: Op) -> None:
            if isinstance(op, Fire):
                self.tables.fired.clear()
                row = self.tables.schedules.get(op.name)
                due = row.next if row is not None else 0.0
                apply(self, op)
                if row is not None:
                    row.next = due
            else:
                apply(self, op)

        return mutated

    swap(stack, MemoryBackend, "_apply", make)


@mutant("attempts are not counted", first=6)
def attempts_not_counted(stack: ExitStack) -> None:
    def make(failed: Any) -> Any:
        def mutated(self: Jobs, job: Job, code: str, reason: str, after: float, now: float) -> None:
            backoff = self.policy.backoff
            attempts, job.attempts = job.attempts, min(job.attempts, backoff.attempts - 1)
            failed(self, job, code, reason, after, now)
            job.attempts = attempts

        return mutated

    swap(stack, Jobs, "_attempt_failed", make)


@mutant("a permanent failure is retried")
def permanent_failure_retried(stack: ExitStack) -> None:
    def make(failed: Any) -> Any:
        def mutated(self: Jobs, job: Job, code: str, reason: str, after: float, now: float) -> None:
            failed(self, job, code, reason, NOT_SAID if after == NEVER else after, now)

        return mutated

    swap(stack, Jobs, "_attempt_failed", make)


@mutant("an attempt that no worker got is forgotten", first=3)
def not_tried_forgotten(stack: ExitStack) -> None:
    def make(ended: Any) -> Any:
        def mutated(
            self: Jobs, job: Job, code: str, reason: str, body: bytes, taken: bool, after: float = -1.0
        ) -> None:
            if code == "gave-up":
                return
            ended(self, job, code, reason, body, taken, after)

        return mutated

    swap(stack, Jobs, "attempt_ended", make)


@mutant("delayed jobs never become due")
def delayed_for_ever(stack: ExitStack) -> None:
    swap(stack, WaitingJobs, "due", lambda due: lambda self, now: [])
    swap(stack, WaitingJobs, "next", lambda following: lambda self: 0.0)


@mutant("jobs do not expire")
def expiry_skipped(stack: ExitStack) -> None:
    def make(insert: Any) -> Any:
        def mutated(self: Jobs, job: Job, now: float) -> None:
            expires, job.expires = job.expires, 0.0
            if expires:
                job.due = now + 1e6
            insert(self, job, now)

        return mutated

    swap(stack, Jobs, "adopt", make)


@mutant("a broker that no longer leads answers from memory", first=162)
def answers_after_fencing(stack: ExitStack) -> None:
    def make(stored: Any) -> Any:
        def mutated(self: Jobs, op: Insert, answer: Any) -> None:
            if op.error is not None and op.error.code == "not-leader":
                op.error = None
                self.inserting.pop(op.job.id, None)
                self.bytes -= len(op.job.body)
                answer(op.job, None)
                return
            stored(self, op, answer)

        return mutated

    swap(stack, Jobs, "_stored", make)


@mutant("a refused write of a job counts as done", first=43)
def refusal_ignored(stack: ExitStack) -> None:
    def make(stored: Any) -> Any:
        def mutated(self: Jobs, op: Insert, answer: Any) -> None:
            op.error = None
            stored(self, op, answer)

        return mutated

    swap(stack, Jobs, "_stored", make)


@mutant("a waiting client gets the result of another job")
def wrong_result(stack: ExitStack) -> None:
    def make(ended: Any) -> Any:
        def mutated(
            self: Jobs, job: Job, code: str, reason: str, body: bytes, taken: bool, after: float = -1.0
        ) -> None:
            other = next((found for found in self.open.values() if found is not job and found.phase == "running"), job)
            ended(self, job, code, reason, other.body if code == "ok" else body, taken, after)

        return mutated

    swap(stack, Jobs, "attempt_ended", make)


@mutant("schedules are not loaded by a new leader")
def schedules_forgotten(stack: ExitStack) -> None:
    swap(stack, Schedules, "load", lambda load: lambda self, rows: None)


@mutant("a plain request is answered before its result is on disk")
def plain_before_sync(stack: ExitStack) -> None:
    def make(end_turn: Any) -> Any:
        def mutated(self: Durable) -> None:
            for request, code, _, body in list(self.session.ended):
                job = self._attempts.get(request)
                if job is not None and code == "ok":
                    for waiting, wait in list(self.parked.items()):
                        if wait.plain and wait.job == job.id:
                            job.state, job.result = states.DONE, bytes(body)
                            self._deliver(waiting, job)
                            job.state = states.OPEN
            end_turn(self)

        return mutated

    swap(stack, Durable, "end_turn", make)


@mutant("the checksum of a stored job is not verified", first=5)
def damage_unseen(stack: ExitStack) -> None:
    swap(stack, checks, "job_damage", lambda old: lambda row, sums, light: "")


@mutant("a damaged job is not recorded as dead", first=14)
def damage_not_recorded(stack: ExitStack) -> None:
    swap(stack, Jobs, "_condemn", lambda condemn: lambda self, job, was_open=False: None)


@mutant("a key belongs to nobody: the job of another principal is found under it", first=3)
def keys_of_anyone(stack: ExitStack) -> None:
    def make(scoped: Any) -> Any:
        return lambda self: self.key

    swap(stack, Job, "scoped_key", make)


@mutant("everyone may fetch, cancel and close every job")
def jobs_of_anyone(stack: ExitStack) -> None:
    swap(stack, Durable, "denial_of_use", lambda denial: lambda self, request, job: "")


@mutant("a submission that failed alone is refused, although it may have been written before", first=4)
def doubtful_submission_refused(stack: ExitStack) -> None:
    swap(stack, Jobs, "_put_again", lambda again: lambda self, op: not isinstance(op, Insert) and again(self, op))


@mutant("the last outcome that a job can have is not put again after it failed alone", first=4)
def failed_death_forgotten(stack: ExitStack) -> None:
    def make(again: Any) -> Any:
        def mutated(self: Jobs, op: Op) -> bool:
            return not (isinstance(op, Finish) and op.job.state == states.DEAD) and bool(again(self, op))

        return mutated

    swap(stack, Jobs, "_put_again", make)


def find(mutant: DurableMutant) -> int:
    """The first seed from ``mutant.first`` on that finds it, or 0."""
    with mutant.broken():
        for seed in range(mutant.first, mutant.first + SEEDS):
            if run_seed(seed)[1]:
                return seed
    return 0
