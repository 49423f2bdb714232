"""Mutants of limits of durable jobs. Some seed of ``sim.durable`` must find each of them."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Loaded
from polydomo.broker.jobs.waiting_jobs import WaitingJobs
from polydomo.broker.limiting.limiter import Limiter
from sim.durable_store import DiskStore
from sim.mutants_durable import DurableMutant, collector
from sim.replacing import swap

LIMIT_MUTANTS: list[DurableMutant] = []
mutant = collector(LIMIT_MUTANTS)


@mutant("a new leader starts jobs before it has the limits of the store")
def jobs_before_limits(stack: ExitStack) -> None:
    def make(lead: Any) -> Any:
        def mutated(self: Durable, epoch: int, loaded: Loaded) -> None:
            ready, self.on_lead = self.on_lead, None
            lead(self, epoch, loaded)
            self.on_lead = ready
            if ready is not None:
                ready(epoch, loaded)

        return mutated

    swap(stack, Durable, "lead", make)


@mutant("a new leader begins a new window", first=21)
def window_of_a_leader(stack: ExitStack) -> None:
    swap(stack, Limiter, "start_at", lambda start: lambda self, began: None)


@mutant("a leader that stood still starts jobs after its lease", first=249)
def stale_leader_starts(stack: ExitStack) -> None:
    swap(stack, DiskStore, "holds_lease", lambda holds: lambda self: True)


@mutant("a job that has ended keeps its place in the limit", first=2)
def place_kept(stack: ExitStack) -> None:
    def make(returned: Any) -> Any:
        def mutated(self: WaitingJobs, job: Job) -> None:
            job.lane = None
            returned(self, job)

        return mutated

    swap(stack, WaitingJobs, "returned", make)
