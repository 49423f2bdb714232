"""The stores of ``sim.durable``: the tables that all brokers of a world share, and a store per broker, with faults."""

from collections import Counter
from typing import TYPE_CHECKING

from polydomo.broker.flows.ops import Settle
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import (
    FULL,
    NOT_LEADER,
    UNAVAILABLE,
    Finish,
    Fire,
    Op,
    Progress,
    PutParts,
    Replace,
    Store,
    StoreError,
)
from polydomo.stores.memory import MemoryBackend
from polydomo.stores.memory_tables import MemoryTables

if TYPE_CHECKING:
    from sim.durable_hosts import Host

LEASE = 6.0  # seconds
RENEW = 1.5


class Breach(Exception):
    """A rule was broken."""


class Database(MemoryBackend):
    """The tables that all brokers of a world share. Checks that records can be read, and that a recorded outcome does not change."""

    def __init__(self, tables: MemoryTables, shared: bool) -> None:
        super().__init__(tables, shared)
        self.outcomes: dict[str, tuple[str, bytes]] = {}
        self.fired: Counter[tuple[str, float]] = Counter()
        self.known: set[str] = set()  # jobs of schedules
        self.flipped: set[str] = set()  # jobs of which a stored byte has changed
        self.away_until = 0.0
        self.full_until = 0.0
        self.slow_until = 0.0

    def apply(self, ops: list[Op], epoch: int) -> None:
        super().apply(ops, epoch)
        for op in ops:
            if (
                isinstance(op, Fire)
                and op.job is not None
                and op.job.id in self.tables.jobs
                and op.job.id not in self.known
            ):
                self.known.add(op.job.id)
                self.fired[op.job.schedule, op.job.fired] += 1
            elif (
                isinstance(op, Fire)
                and op.flow is not None
                and op.flow.id in self.tables.flows
                and op.flow.id not in self.known
            ):
                self.known.add(op.flow.id)
                self.fired[op.row.name, op.fired] += 1
            elif isinstance(op, Settle | Finish) and op.settled is not None:
                for job in op.settled.released:  # it may have an outcome from before a retry
                    if job.reopened() and job.state == states.OPEN:
                        self.outcomes.pop(job.id, None)
        for op in ops:
            if isinstance(op, Finish | Progress | Replace) and op.job.id in self.tables.jobs:
                self._check_record(self.tables.jobs[op.job.id])
            if isinstance(op, Finish) and op.job.id in self.tables.jobs:
                job = self.tables.jobs[op.job.id]
                if job.state == states.OPEN and job.reopened():
                    continue  # the outcome was written again, and a retry of its flow came in the same transaction
                told = (job.state, job.result)
                if self.outcomes.setdefault(job.id, told) != told and job.id not in self.flipped:
                    raise Breach(f"the outcome of job {job.id} changed from {self.outcomes[job.id]} to {told}")

    def _check_record(self, job: Job) -> None:
        damage = self._read(job).damage
        if damage and job.id not in self.flipped:
            raise Breach(f"job {job.id} cannot be read although no byte of it has changed: {damage}")

    def heard(self, job: str, state: str) -> None:
        """A client heard of an outcome of a node. It may have been retried since."""
        found = self.tables.jobs.get(job)
        if found is None or (found.state != state and not found.reopened() and job not in self.flipped):
            raise Breach(
                f"a client heard that job {job} is {state}, but the store has {found.state if found else None}"
            )


class DiskStore(Store):
    """The store of one broker: a group at a time, as ``stores.thread`` writes them."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.pending: list[Op] = []
        self.busy = False
        self.trouble: StoreError | None = None
        self.leads = False
        self.epoch = 0
        self.leader = ""
        self.lease_until = 0.0
        self.found_late = False
        self.suspended = False

    def put(self, op: Op) -> None:
        self.pending.append(op)
        self.kick()

    def refusal(self) -> StoreError | None:
        return self.trouble

    def holds_lease(self) -> bool:
        world = self.host.world
        if not world.database.shared or world.now < self.lease_until:
            return True
        self.found_late = True
        return False

    def kick(self) -> None:
        """Starts the next commit, if none is under way."""
        world = self.host.world
        if self.busy or not self.pending:
            return
        self.busy = True
        ops, self.pending = self.pending, []
        world.later(world.latency(), self.host.guarded(lambda: self.commit(ops)))

    def commit(self, ops: list[Op]) -> None:
        world, base = self.host.world, self.host.world.database
        self.busy = False
        writes = [op for op in ops if op.writes]
        stale = [op for op in writes if op.epoch != self.epoch or not self.leads]
        writes = [op for op in writes if op.epoch == self.epoch and self.leads]
        if world.now < base.away_until:
            self.trouble = StoreError(UNAVAILABLE, "the database is away")
            self.pending = [*writes, *self.pending]
            self.answer([op for op in ops if not op.writes], self.trouble)
            self.answer(stale, StoreError(NOT_LEADER, "stale"))
            world.later(0.5, self.host.guarded(self.kick))
            return
        self.answer(stale, StoreError(NOT_LEADER, "stale"))
        if world.now < base.full_until:
            self.trouble = StoreError(FULL, "the disk is full")
            self.answer([op for op in writes if not op.retained and not op.in_doubt], self.trouble)
            self.pending = [op for op in writes if op.retained or op.in_doubt] + self.pending
            writes = []
            world.later(0.5, self.host.guarded(self.kick))
        else:
            self.trouble = None
        failed = [op for op in writes if self.fails_alone(op)]
        if failed:
            world.faults["operations failed alone"] += len(failed)
            writes = [op for op in writes if op not in failed]
        undone = bool(writes) and world.faulty and world.undone.random() < world.plan.lost_answers / 2
        try:
            if undone:
                base.undone(writes, self.epoch)
            elif writes:
                base.apply(writes, self.epoch)
        except StoreError as error:
            self.answer(writes, error)
            self.step_down(error.text)
            writes = []
        if writes and (undone or (world.dice.random() < world.plan.lost_answers and world.faulty)):
            world.faults["transactions undone" if undone else "answers lost"] += 1
            self.pending = [
                *writes,
                *self.pending,
            ]  # the broker does not know whether it was applied: it is applied again
            for op in writes:
                op.in_doubt = True
            writes = []
            world.later(0.5, self.host.guarded(self.kick))
        for op in ops:
            if not op.writes:
                base.read(op)
        self.answer([op for op in ops if not op.writes], None)
        self.answer(failed, StoreError(UNAVAILABLE, "internal error: MemoryError()"))
        self.answer(writes, None)
        self.kick()

    def fails_alone(self, op: Op) -> bool:
        """Whether the store meets an internal error with this operation, and nothing of it is written. Parts of results that are lost so
        are missing in a stream, which is allowed."""
        world = self.host.world
        return world.faulty and not isinstance(op, PutParts) and world.alone.random() < world.plan.fails_alone

    def answer(self, ops: list[Op], error: StoreError | None) -> None:
        for op in ops:
            op.error = error

        def finish() -> None:
            for op in ops:
                op.finish()

        self.host.turn(finish)

    # --- the lease

    def tick(self) -> None:
        """Every ``RENEW`` seconds."""
        world, base = self.host.world, self.host.world.database
        world.later(RENEW, self.host.guarded(self.tick))
        if world.now < base.away_until:
            if self.leads and not self.suspended and world.now >= self.lease_until and base.shared:
                self.suspended = True
                self.host.turn(lambda: self.host.durable.suspend(True))
            return
        if self.leads and base.shared:
            if not base.renew(self.epoch, LEASE):
                self.step_down("the lease is another's")
                return
            self.lease_until = world.now + LEASE
            if self.suspended or self.found_late:
                self.suspended = self.found_late = False
                self.host.turn(lambda: self.host.durable.suspend(False))
        elif not self.leads:
            lease = base.acquire(self.host.name, self.host.name, LEASE)
            if lease.mine:
                self.leads, self.epoch, self.lease_until = True, lease.epoch, world.now + LEASE
                loaded = base.load(world.wall() - 600.0)
                self.host.turn(lambda: self.host.durable.lead(lease.epoch, loaded))
            elif lease.address != self.leader:
                self.leader = lease.address
                self.host.turn(lambda: self.host.durable.follow(lease.address, "another leads"))

    def step_down(self, why: str) -> None:
        self.leads = self.suspended = False
        self.leader = ""
        lost, self.pending = self.pending, []
        self.answer(lost, StoreError(NOT_LEADER, why))
        self.host.turn(lambda: self.host.durable.follow("", why))
