"""Mutants of the partial replies of jobs. Some seed of ``sim.durable`` must find each of them."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.broker import Broker
from polydomo.broker.jobs.job import RUNNING, Job
from polydomo.broker.jobs.ops import GetParts
from polydomo.broker.jobs.parts import JobParts
from polydomo.broker.jobs.streams import JobFollower
from polydomo.broker.requests import transitions
from polydomo.broker.state import State
from polydomo.model.records import Request, Worker
from polydomo.stores.memory import MemoryBackend
from sim.mutants_durable import DurableMutant, collector
from sim.replacing import swap

STREAM_MUTANTS: list[DurableMutant] = []
mutant = collector(STREAM_MUTANTS)


@mutant("a part is shown before it is on disk")
def part_before_sync(stack: ExitStack) -> None:
    def make_add(add: Any) -> Any:
        def mutated(self: JobParts, job: Job, body: bytes, now: float) -> None:
            self._next = now + 1.0  # it is collected
            add(self, job, body, now)
            self.wake(job.id)

        return mutated

    def make_read(read: Any) -> Any:
        def mutated(self: JobFollower, job: Job, op: GetParts) -> None:
            if not op.parts:
                waiting = self.durable.jobs.parts._collected
                op.parts = [
                    part for part in waiting if part.job == self.id and (part.attempt, part.number) > self.after
                ]
            read(self, job, op)

        return mutated

    swap(stack, JobParts, "add", make_add)
    swap(stack, JobFollower, "_read", make_read)


@mutant("a second attempt continues the sequence of the first", first=6)
def sequence_over_attempts(stack: ExitStack) -> None:
    swap(stack, JobParts, "begin", lambda begin: lambda self, job: None)


@mutant("a part of an attempt that is over is accepted", first=7)
def stale_part(stack: ExitStack) -> None:
    jobs: dict[tuple[int, bytes], Job] = {}

    def make(partial: Any) -> Any:
        def mutated(self: Broker, worker: Worker, token: bytes, body: bytes) -> bool:
            job, durable = jobs.get((id(self), token)), self.parts.durable
            if token not in worker.held and job is not None and durable is not None and job.phase == RUNNING:
                if durable.jobs.open.get(job.id) is job:
                    durable.jobs.parts.add(job, bytes(body), durable.now())
            return bool(partial(self, worker, token, body))

        return mutated

    def make_hold(hold: Any) -> Any:
        def mutated(state: State, request: Request, worker: Worker) -> None:
            hold(state, request, worker)
            if isinstance(request.ref, Job):
                jobs[id(state), request.token] = request.ref

        return mutated

    swap(stack, transitions, "hold", make_hold)
    swap(stack, Broker, "partial", make)


@mutant("the parts of an attempt that failed are joined with the result of one without parts", first=7)
def parts_of_a_failed_attempt(stack: ExitStack) -> None:
    swap(stack, JobParts, "succeeded", lambda succeeded: lambda self, job: None)


@mutant("a new leader counts the attempts with parts from the beginning", first=54)
def attempts_forgotten(stack: ExitStack) -> None:
    swap(stack, MemoryBackend, "_last_attempt", lambda last: lambda self, id: 0)


@mutant("an answer continues one part too far")
def part_skipped(stack: ExitStack) -> None:
    def make(read: Any) -> Any:
        def mutated(self: MemoryBackend, op: GetParts) -> None:
            read(self, op)
            if len(op.parts) > 1:
                del op.parts[0]

        return mutated

    swap(stack, MemoryBackend, "_get_parts", make)


@mutant("a client that follows a job is told an outcome that a broker had when it lost the lease", first=310_831)
def outcome_of_an_old_leader(stack: ExitStack) -> None:
    def make(read: Any) -> Any:
        def mutated(self: JobFollower, job: Job, op: GetParts) -> None:
            jobs = self.durable.jobs
            leads, jobs.leads, self.epoch = jobs.leads, True, jobs.epoch
            try:
                read(self, job, op)
            finally:
                jobs.leads = leads

        return mutated

    swap(stack, JobFollower, "_read", make)
