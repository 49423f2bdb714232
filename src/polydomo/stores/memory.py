"""A store in memory: the reference for tests of SQLite and PostgreSQL, and the disk of the simulator.

``apply`` changes nothing unless the whole group succeeds. ``snapshot`` and ``restore`` simulate the contents of a disk.
"""

import copy
import inspect

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job, reopening, story_of
from polydomo.broker.jobs.ops import (
    NOT_LEADER,
    Collected,
    DropSchedule,
    Finish,
    Fire,
    Get,
    Insert,
    Loaded,
    Op,
    Progress,
    Purge,
    PutPause,
    PutSchedule,
    Remove,
    Reopen,
    Replace,
    ScheduleRow,
    Select,
    StoreError,
)
from polydomo.limits import JOB_PURGE_ROWS
from polydomo.model.json_form import iso_time
from polydomo.stores import checks
from polydomo.stores.backend import Backend, Lease
from polydomo.stores.checks import job_values, progress_checks


class MemoryTables:
    """The content of a store."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        self.checks: dict[str, bytes] = {}  # of each job
        self.collected: set[str] = set()
        self.fired: set[tuple[str, float]] = set()
        self.schedules: dict[str, ScheduleRow] = {}
        self.paused: set[bytes] = set()
        self.epoch = 0
        self.owner = ""
        self.address = ""
        self.expires = 0.0


class MemoryBackend(Backend):
    url = "memory:"

    def __init__(self, tables: MemoryTables | None = None, shared: bool = False) -> None:
        self.tables = tables if tables is not None else MemoryTables()
        self.shared = shared
        self.now = 0.0  # the database's clock; set by its owner

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        tables = self.tables
        if self.shared and tables.owner not in ("", owner) and self.now < tables.expires:
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
                loaded.jobs.append(self._read(job))
            elif job.digest and job.id not in tables.collected and job.ended > since:
                loaded.uncollected.append(self._read(job, light=True))
        loaded.jobs.sort(key=lambda job: (job.created, job.id))
        loaded.schedules = [_row_copy(row) for _, row in sorted(tables.schedules.items())]
        loaded.paused = sorted(tables.paused)
        return loaded

    def apply(self, ops: list[Op], epoch: int) -> None:
        if epoch != self.tables.epoch:
            raise StoreError(
                NOT_LEADER, f"epoch {epoch} is over: another broker is the leader under epoch {self.tables.epoch}"
            )
        for op in ops:
            self._apply(op)

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
        elif isinstance(op, Progress):
            job = tables.jobs.get(op.id)
            if job is not None and job.state == states.OPEN:
                job.attempts, job.due, job.story = op.attempts, op.due, story_of(op.story)
                job.restore_waits()
                tables.checks[op.id] = progress_checks(op)
        elif isinstance(op, Finish):
            self._finish(op)
        elif isinstance(op, Reopen):
            job = tables.jobs.get(op.id)
            if job is not None and self._read(job).outcome == states.DAMAGED:
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
                tables.checks[op.id] = _checks(job)
            reopened = job is not None and job.state == states.OPEN and job.due == op.due
            op.job = _job_copy(job) if job is not None and reopened else None
        elif isinstance(op, Replace):
            for id in {op.job.id, tables.keys.get(op.job.scoped_key(), op.job.id)} & tables.jobs.keys():
                self._remove(id)
            self._insert(op.job)
        elif isinstance(op, Remove):
            job = tables.jobs.get(op.id)
            op.done = job is not None and job.state != states.OPEN and op.state in ("", job.state)
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
        elif isinstance(op, PutSchedule):
            tables.schedules[op.row.name] = _row_copy(op.row)
            tables.fired = {fired for fired in tables.fired if fired[0] != op.row.name}
        elif isinstance(op, DropSchedule):
            op.done = tables.schedules.pop(op.name, None) is not None
        elif isinstance(op, PutPause):
            (tables.paused.add if op.paused else tables.paused.discard)(op.service)

    def _insert(self, job: Job) -> Job | None:
        tables = self.tables
        known = tables.jobs.get(job.id) or (tables.jobs.get(tables.keys.get(job.scoped_key(), "")) if job.key else None)
        if known is not None:
            return self._read(known)
        stored = tables.jobs[job.id] = _job_copy(job)
        stored.damage = ""
        stored.phase = states.DELAYED  # not stored
        if stored.state == states.DONE:
            stored.body = b""
        tables.checks[job.id] = _checks(job)
        if job.key:
            tables.keys[job.scoped_key()] = job.id
        return None

    def _finish(self, op: Finish) -> None:
        job = self.tables.jobs.get(op.job.id)
        if job is None:
            op.done = False
            return
        op.done = job.state == states.OPEN or (job.state == op.job.state and job.ended == op.job.ended)
        if job.state == states.OPEN:
            ended = _job_copy(op.job)
            ended.phase = states.DELAYED  # not stored
            ended.body = b"" if ended.state == states.DONE else job.body
            self.tables.jobs[job.id] = ended
            self.tables.checks[job.id] = _checks(ended)

    def _remove(self, id: str) -> None:
        job = self.tables.jobs.pop(id)
        self.tables.collected.discard(id)
        self.tables.checks.pop(id, None)
        if job.key:
            self.tables.keys.pop(job.scoped_key(), None)

    def _read(self, job: Job, light: bool = False) -> Job:
        """A copy of a stored job, verified."""
        found = _job_copy(job)
        if light:
            found.body = found.result = b""
        damage = checks.job_damage(_values(found), self.tables.checks[job.id], light)
        if damage:
            found.condemn(damage)
        return found

    def read(self, op: Op) -> None:
        tables = self.tables
        if isinstance(op, Get):
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


def _attributes(kind: type) -> list[str]:
    """The attributes of a class with slots, whether it is compiled or not."""
    return [name for name, member in vars(kind).items() if inspect.isdatadescriptor(member)]


def _values(job: Job) -> "tuple[object, ...]":
    return job_values(job)[:21]


def _checks(job: Job) -> bytes:
    checks = job_values(job)[21]
    assert isinstance(checks, bytes)
    return checks


JOB_ATTRIBUTES = _attributes(Job)
ROW_ATTRIBUTES = _attributes(ScheduleRow)


def _job_copy(job: Job) -> Job:
    """``copy.deepcopy`` cannot copy objects of compiled classes."""
    made = Job(job.id, job.service, job.body, job.created)
    for name in JOB_ATTRIBUTES:
        setattr(made, name, getattr(job, name))
    made.story = copy.deepcopy(job.story)
    return made


def _row_copy(row: ScheduleRow) -> ScheduleRow:
    made = ScheduleRow(row.name, row.service, row.body, row.timing, row.zone, row.created)
    for name in ROW_ATTRIBUTES:
        setattr(made, name, getattr(row, name))
    return made
