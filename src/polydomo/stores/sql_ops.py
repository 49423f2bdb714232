"""The operations that SQLite and PostgreSQL run one by one, in SQL that both support.

Inserts, progress, outcomes and collected results come by the hundred and have statements of their own in each backend. Everything else
is here: one function per operation, found by its type.
"""

from collections.abc import Callable
from typing import Any

from polydomo.broker.flows.ops import BeginFlow, ChangeFlow, OpenFlow, PutNodes, Settle, StartFlow
from polydomo.broker.jobs.job import DAMAGED, DEAD, FLOW, OPEN, Job, reopening, story_text
from polydomo.broker.jobs.ops import (
    DropSchedule,
    Fire,
    Op,
    Purge,
    PutLimits,
    PutPause,
    PutSchedule,
    Remove,
    Reopen,
    Replace,
)
from polydomo.limits import JOB_PURGE_ROWS
from polydomo.model.json_form import iso_time
from polydomo.stores.checks import (
    LIMIT_COLUMNS,
    job_of,
    job_values,
    limits_checks,
    limits_text,
    pause_checks,
    schedule_checks,
)
from polydomo.stores.flows.steps import FlowSteps
from polydomo.stores.part_sql import SqlParts

COLUMNS = (
    "id, service, body, key, origin, digest, priority, created, due, expires, settings, attempts, state, outcome, reason, result, "
    "ended, keep, story, schedule, fired, checks"
)
KEY, SETTINGS, CHECKS = 3, 10, 21  # positions of columns
SCHEDULE_COLUMNS = "name, service, body, timing, zone, missed, priority, settings, created, next, fired, checks"


class SqlOps:
    """``execute`` runs a statement with ``?`` for its values; ``insert`` stores a new job. ``steps`` applies the operations of flows.
    ``schema`` is that of the tables."""

    def __init__(
        self,
        execute: "Callable[[str, tuple[object, ...]], Any]",
        insert: Callable[[Job], None],
        steps: FlowSteps,
        schema: str = "",
    ) -> None:
        self._execute = execute
        self._insert = insert
        self._steps = steps
        self._prefix = f"{schema}." if schema else ""
        self.parts = SqlParts(lambda text, values: execute(text, tuple(values)), schema)

    def _run(self, statement: str, values: "tuple[object, ...]") -> Any:
        return self._execute(statement.replace("@", self._prefix), values)

    def apply(self, op: Op) -> None:
        BY_TYPE[type(op)](self, op)

    def fire(self, op: Fire) -> None:
        changed = self._run(
            "UPDATE @schedules SET next = ?, fired = ?, checks = ? WHERE name = ? AND fired < ?",
            (op.following, op.fired, schedule_checks(op.row, op.following, op.fired), op.name, op.fired),
        )
        op.done = changed.rowcount == 1
        if op.job is None:
            self._steps.fire(op)
            return
        if op.done:
            self._insert(op.job)
        else:  # the same operation, applied again
            op.done = self._run("SELECT 1 FROM @jobs WHERE id = ?", (op.job.id,)).fetchone() is not None

    def reopen(self, op: Reopen) -> None:
        """Keeps the failed attempts in the story, and adds when the job was reopened."""
        row = self._run(f"SELECT {COLUMNS} FROM @jobs WHERE id = ?", (op.id,)).fetchone()
        job = job_of(row) if row is not None else None
        if job is None or job.outcome == DAMAGED or job.origin == FLOW:
            return
        if job.state == DEAD:
            job.state, job.outcome, job.reason, job.result, job.ended, job.keep = OPEN, "", "", b"", 0.0, 0.0
            job.attempts, job.due, job.expires = 0, op.due, 0.0
            job.adopt(op.principal)
            job.tell(reopening(iso_time(op.due)))
            job.restore_waits()
            job.streamed = self.parts.last_attempts([job.id]).get(job.id, 0)
            values = job_values(job)
            self._run(
                "UPDATE @jobs SET state = 'open', outcome = '', reason = '', result = ?, ended = 0, keep = 0, attempts = 0, due = ?, "
                "expires = 0, story = ?, key = ?, settings = ?, checks = ? WHERE id = ?",
                (b"", op.due, story_text(job.story), values[KEY], values[SETTINGS], values[CHECKS], op.id),
            )
        if job.state == OPEN and job.due == op.due:  # also if the same operation is applied again
            op.job = job

    def replace(self, op: Replace) -> None:
        # The damaged record may have another id. Its key is that of no other job.
        self._run("DELETE FROM @jobs WHERE id = ? OR key = ?", (op.job.id, op.job.scoped_key()))
        self._insert(op.job)
        op.settled = self._steps.condemned(op.job)

    def remove(self, op: Remove) -> None:
        text = "DELETE FROM @jobs WHERE id = ? AND state <> 'open' AND (? = '' OR state = ?) AND origin <> 'flow'"
        op.done = self._run(text, (op.id, op.state, op.state)).rowcount == 1
        if op.done:
            self._run("DELETE FROM @job_parts WHERE job = ?", (op.id,))

    def purge(self, op: Purge) -> None:
        expired = "SELECT id FROM @jobs WHERE keep > 0 AND keep <= ? AND state <> 'open' ORDER BY keep, id LIMIT ?"
        self._run(f"DELETE FROM @job_parts WHERE job IN ({expired})", (op.now, JOB_PURGE_ROWS))
        removed = self._run(f"DELETE FROM @jobs WHERE id IN ({expired})", (op.now, JOB_PURGE_ROWS)).rowcount
        op.count = removed + self._steps.purge(op.now)

    def put_schedule(self, op: PutSchedule) -> None:
        row = op.row
        self._run("DELETE FROM @schedules WHERE name = ?", (row.name,))
        self._run(
            f"INSERT INTO @schedules ({SCHEDULE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.name, row.service, row.body, row.timing, row.zone, row.missed, row.priority, row.settings, row.created, row.next,
                0.0, schedule_checks(row, row.next, 0.0),
            ),
        )  # fmt: skip

    def drop_schedule(self, op: DropSchedule) -> None:
        op.done = self._run("DELETE FROM @schedules WHERE name = ?", (op.name,)).rowcount == 1

    def put_pause(self, op: PutPause) -> None:
        if op.paused:
            text = "INSERT INTO @paused (service, checks) VALUES (?, ?) ON CONFLICT DO NOTHING"
            self._run(text, (op.service, pause_checks(op.service)))
        else:
            self._run("DELETE FROM @paused WHERE service = ?", (op.service,))

    def put_limits(self, op: PutLimits) -> None:
        self._run("DELETE FROM @limits WHERE service = ?", (op.pattern,))
        if op.limits is not None:
            text = limits_text(op.limits)
            row = (op.pattern, text, limits_checks(op.pattern, text))
            self._run(f"INSERT INTO @limits ({LIMIT_COLUMNS}) VALUES (?, ?, ?)", row)

    def begin_flow(self, op: BeginFlow) -> None:
        self._steps.begin(op)

    def put_nodes(self, op: PutNodes) -> None:
        self._steps.put_nodes(op)

    def open_flow(self, op: OpenFlow) -> None:
        self._steps.open(op)

    def start_flow(self, op: StartFlow) -> None:
        self._steps.start(op)

    def settle(self, op: Settle) -> None:
        self._steps.settle(op)

    def change_flow(self, op: ChangeFlow) -> None:
        self._steps.change(op)


BY_TYPE: "dict[type[Op], Callable[[SqlOps, Any], None]]" = {
    Fire: SqlOps.fire,
    Replace: SqlOps.replace,
    Reopen: SqlOps.reopen,
    Remove: SqlOps.remove,
    Purge: SqlOps.purge,
    PutSchedule: SqlOps.put_schedule,
    DropSchedule: SqlOps.drop_schedule,
    PutPause: SqlOps.put_pause,
    PutLimits: SqlOps.put_limits,
    BeginFlow: SqlOps.begin_flow,
    PutNodes: SqlOps.put_nodes,
    OpenFlow: SqlOps.open_flow,
    StartFlow: SqlOps.start_flow,
    Settle: SqlOps.settle,
    ChangeFlow: SqlOps.change_flow,
}
