"""A store in memory: the reference for tests of SQLite and PostgreSQL, and the disk of the simulator.

An update changes the same fields as in the other stores, and the checksum is that of the operation: if what the leader has in memory
differs from what is stored, the record is damaged here, too.
"""

import copy
from typing import Any

from polydomo.broker.flows.flow import NodeRow
from polydomo.broker.flows.ops import BeginFlow, ChangeFlow, OpenFlow, PutNodes, Settle, StartFlow
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import FLOW, Job, reopening, story_of
from polydomo.broker.jobs.ops import (
    NOT_LEADER,
    Collected,
    DropSchedule,
    Finish,
    Fire,
    Get,
    GetParts,
    Insert,
    Loaded,
    Op,
    Progress,
    Purge,
    PutLimits,
    PutParts,
    PutPause,
    PutSchedule,
    Remove,
    Reopen,
    Replace,
    ScheduleRow,
    Select,
    StoreError,
)
from polydomo.broker.jobs.part import StoredPart
from polydomo.limits import JOB_PURGE_ROWS
from polydomo.model.json_form import iso_time
from polydomo.stores.backend import Backend, Lease
from polydomo.stores.checks import progress_checks
from polydomo.stores.flows.memory import MemoryFlows, node_copy
from polydomo.stores.flows.steps import FlowSteps
from polydomo.stores.groups import OpGroup
from polydomo.stores.memory_rows import job_checks, job_copy, row_copy, verified_job
from polydomo.stores.memory_tables import MemoryTables
from polydomo.stores.part_checks import part_checks, part_of


def _content_copy(content: Any) -> Any:
    """Of tables, and of the rows that are changed in place."""
    if isinstance(content, dict):
        return {key: _content_copy(value) for key, value in content.items()}
    if isinstance(content, set):
        return set(content)
    if isinstance(content, Job):
        return job_copy(content)
    if isinstance(content, NodeRow):
        return node_copy(content)
    return row_copy(content) if isinstance(content, ScheduleRow) else content


class MemoryBackend(Backend):
    url = "memory:"

    def __init__(self, tables: MemoryTables | None = None, shared: bool = False) -> None:
        self.tables = tables if tables is not None else MemoryTables()
        self.shared = shared
        self.now = 0.0  # the database's clock; set by its owner
        self.flow_tables = MemoryFlows(self.tables)
        self.steps = FlowSteps(self.flow_tables)

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        tables = self.tables
        mine = (tables.owner, tables.address) == (owner, address)
        if self.shared and tables.owner and not mine and self.now < tables.expires:
            return Lease(tables.epoch, tables.address, False)
        tables.epoch += 1
        tables.owner = owner
        tables.address = address
        tables.expires = self.now + seconds
        return Lease(tables.epoch, address, True)

    def renew(self, epoch: int, seconds: float) -> bool:
        if self.tables.epoch != epoch or not self.tables.owner:
            return False
        self.tables.expires = self.now + seconds
        return True

    def release(self, epoch: int) -> None:
        if self.tables.epoch == epoch:
            self.tables.owner = ""

    def load(self, since: float) -> Loaded:
        loaded = Loaded()
        tables = self.tables
        for job in tables.jobs.values():
            if job.state == states.OPEN:
                found = self._read(job)
                found.streamed = self._last_attempt(job.id)
                loaded.jobs.append(found)
            elif job.digest and job.id not in tables.collected and job.ended > since:
                loaded.uncollected.append(self._read(job, light=True))
        loaded.jobs.sort(key=lambda job: (job.created, job.id))
        loaded.schedules = [row_copy(row) for _, row in sorted(tables.schedules.items())]
        loaded.paused = sorted(tables.paused)
        loaded.limits = dict(tables.limits)
        loaded.flows = self.flow_tables.active()
        return loaded

    def apply(self, ops: list[Op], epoch: int) -> None:
        if epoch != self.tables.epoch:
            raise StoreError(
                NOT_LEADER, f"epoch {epoch} is over: another broker is the leader under epoch {self.tables.epoch}"
            )
        group = OpGroup(ops)
        for op in ops:
            self._apply(op)
        group.finish_nodes(self.steps)

    def undone(self, ops: list[Op], epoch: int) -> None:
        """A transaction that is rolled back at its end: operations have answers, and nothing is stored."""
        saved = {name: _content_copy(content) for name, content in vars(self.tables).items()}
        MemoryBackend.apply(self, ops, epoch)
        vars(self.tables).update(saved)

    def _apply(self, op: Op) -> None:
        tables = self.tables
        if isinstance(op, Insert):
            op.existing = self._insert(op.job)
        elif isinstance(op, Fire):
            row = tables.schedules.get(op.name)
            op.done = row is not None and (op.name, op.fired) not in tables.fired
            if op.done and row is not None:
                row.next = op.following
                tables.fired.add((op.name, op.fired))
                if op.job is not None:
                    self._insert(op.job)
            elif op.job is not None:  # the same operation, applied again
                op.done = op.job.id in tables.jobs
            self.steps.fire(op)
        elif isinstance(op, Progress):
            job = tables.jobs.get(op.id)
            if job is not None and job.state == states.OPEN:
                job.attempts, job.due, job.story = op.attempts, op.due, story_of(op.story)
                job.restore_waits()
                tables.checks[op.id] = progress_checks(op)
        elif isinstance(op, PutParts):
            self._put_parts(op)
        elif isinstance(op, Finish):
            self._finish(op)
        elif isinstance(op, Reopen):
            job = tables.jobs.get(op.id)
            if job is not None and (job.origin == FLOW or self._read(job).outcome == states.DAMAGED):
                return
            if job is not None and job.state == states.DEAD:
                job.state, job.outcome, job.reason, job.ended, job.keep = states.OPEN, "", "", 0.0, 0.0
                job.attempts, job.due, job.expires = 0, op.due, 0.0
                job.result = b""
                key = job.scoped_key()
                if job.adopt(op.principal):
                    tables.keys.pop(key, None)
                job.tell(reopening(iso_time(op.due)))
                job.restore_waits()
                job.streamed = self._last_attempt(job.id)
                tables.checks[op.id] = job_checks(job)
            reopened = job is not None and job.state == states.OPEN and job.due == op.due
            op.job = job_copy(job) if job is not None and reopened else None
        elif isinstance(op, Replace):
            parts = tables.parts.get(op.job.id, {})
            for id in {op.job.id, tables.keys.get(op.job.scoped_key(), op.job.id)} & tables.jobs.keys():
                self._remove(id)
            if parts:
                tables.parts[op.job.id] = parts
            self._insert(op.job)
            op.settled = self.steps.condemned(op.job)
        elif isinstance(op, Remove):
            job = tables.jobs.get(op.id)
            op.done = (
                job is not None and job.state != states.OPEN and op.state in ("", job.state) and job.origin != FLOW
            )
            if op.done:
                self._remove(op.id)
        elif isinstance(op, Collected):
            tables.collected.add(op.id)
        elif isinstance(op, Purge):
            old = [
                job.id for job in tables.jobs.values() if job.keep and job.keep <= op.now and job.state != states.OPEN
            ]
            for id in old[:JOB_PURGE_ROWS]:
                self._remove(id)
                op.count += 1
            op.count += self.steps.purge(op.now)
        elif isinstance(op, PutSchedule):
            tables.schedules[op.row.name] = row_copy(op.row)
            tables.fired = {fired for fired in tables.fired if fired[0] != op.row.name}
        elif isinstance(op, DropSchedule):
            op.done = tables.schedules.pop(op.name, None) is not None
        elif isinstance(op, PutPause):
            (tables.paused.add if op.paused else tables.paused.discard)(op.service)
        elif isinstance(op, PutLimits):
            tables.limits.pop(op.pattern, None)
            if op.limits is not None:
                tables.limits[op.pattern] = op.limits
        elif isinstance(op, BeginFlow):
            self.steps.begin(op)
        elif isinstance(op, PutNodes):
            self.steps.put_nodes(op)
        elif isinstance(op, OpenFlow):
            self.steps.open(op)
        elif isinstance(op, StartFlow):
            self.steps.start(op)
        elif isinstance(op, Settle):
            self.steps.settle(op)
        elif isinstance(op, ChangeFlow):
            self.steps.change(op)

    def _put_parts(self, op: PutParts) -> None:
        for part in op.parts:
            own = self.tables.parts.setdefault(part.job, {})
            stored = StoredPart(part.job, part.attempt, part.number, part.stop, part.body)
            own.setdefault((part.attempt, part.number), (stored, part_checks(part)))
            for attempt, number in list(own):
                if (part.number <= 1 and attempt < part.attempt) or (
                    attempt == part.attempt and 0 < number < part.first_kept
                ):
                    del own[attempt, number]

    def _last_attempt(self, id: str) -> int:
        return self.flow_tables.last_attempts([id]).get(id, 0)

    def _get_parts(self, op: GetParts) -> None:
        own = self.tables.parts.get(op.job, {})
        size = 0
        for position in sorted(own):
            part, checks = own[position]
            found = part_of(part.job, part.attempt, part.number, part.stop, part.body, checks)
            if position > op.after and part.number and len(op.parts) < op.most:
                size += len(part.body)
                if size <= op.most_bytes or not op.parts:
                    op.parts.append(found)
                else:
                    op.after = (op.after[0] + 10**9, 0)  # no further one
            op.last = found

    def _insert(self, job: Job) -> Job | None:
        tables = self.tables
        known = tables.jobs.get(job.id) or (tables.jobs.get(tables.keys.get(job.scoped_key(), "")) if job.key else None)
        if known is not None:
            return self._read(known)
        stored = tables.jobs[job.id] = job_copy(job)
        stored.damage = ""
        stored.phase = states.DELAYED  # not stored
        if stored.state == states.DONE:
            stored.body = b""
        tables.checks[job.id] = job_checks(job)
        if job.key:
            tables.keys[job.scoped_key()] = job.id
        return None

    def _finish(self, op: Finish) -> None:
        job = self.tables.jobs.get(op.job.id)
        if job is None:
            op.done = False
            return
        op.done = job.state == states.OPEN or (job.state == op.job.state and job.ended == op.job.ended)
        if job.state == states.OPEN:  # changes what an UPDATE of the other stores changes
            ended = op.job
            job.state, job.outcome, job.reason, job.result = ended.state, ended.outcome, ended.reason, ended.result
            job.ended, job.keep, job.attempts, job.due = ended.ended, ended.keep, ended.attempts, ended.due
            job.story = copy.deepcopy(ended.story)
            if job.state == states.DONE:
                job.body = b""
            self.tables.checks[job.id] = job_checks(ended)

    def _remove(self, id: str) -> None:
        job = self.tables.jobs.pop(id)
        self.tables.collected.discard(id)
        self.tables.checks.pop(id, None)
        self.tables.parts.pop(id, None)
        if job.key:
            self.tables.keys.pop(job.scoped_key(), None)

    def _read(self, job: Job, light: bool = False) -> Job:
        """A copy of a stored job, verified."""
        return verified_job(job, self.tables.checks[job.id], light)

    def read(self, op: Op) -> None:
        tables = self.tables
        if self.steps.read(op):
            return
        if isinstance(op, GetParts):
            self._get_parts(op)
        elif isinstance(op, Get):
            id = op.id or tables.keys.get(op.key, "")
            found = tables.jobs.get(id)
            op.job = self._read(found) if found is not None else None
        elif isinstance(op, Select) and op.by_end:
            ended = sorted(
                (job.ended, job.id) for job in tables.jobs.values() if job.ended and job.state != states.OPEN
            )
            for position in ended:
                job = tables.jobs[position[1]]
                wanted = op.state in ("", job.state) and op.service in (b"", job.service)
                if wanted and position > (op.after_time, op.after_id) and len(op.jobs) < op.most:
                    op.jobs.append(self._read(job, light=True))
        elif isinstance(op, Select):
            for job in sorted(tables.jobs.values(), key=lambda job: (job.created, job.id), reverse=True):
                op.counts[job.state] = op.counts.get(job.state, 0) + 1
                if op.state in ("", job.state) and op.service in (b"", job.service) and len(op.jobs) < op.most:
                    op.jobs.append(self._read(job, light=True))
