"""The operations that SQLite and PostgreSQL run one by one, in SQL that both support.

Inserts, progress, outcomes and collected results come by the hundred and have statements of their own in each backend. Everything else
is here: one function per operation, found by its type.
"""

from collections.abc import Callable
from typing import Any

from polydomo.broker.jobs.job import Job, reopening, story_of, story_text
from polydomo.broker.jobs.ops import (
    DropSchedule,
    Fire,
    Op,
    Purge,
    PutPause,
    PutSchedule,
    Remove,
    Reopen,
    ScheduleRow,
)
from polydomo.limits import JOB_PURGE_ROWS
from polydomo.protocols.json_form import iso_time

COLUMNS = (
    "id, service, body, key, origin, digest, priority, created, due, expires, settings, attempts, state, outcome, reason, result, "
    "ended, keep, story, schedule, fired"
)
SCHEDULE_COLUMNS = "name, service, body, timing, zone, missed, priority, settings, created, next"


def job_of(row: Any) -> Job:
    """A job from a row of COLUMNS."""
    job = Job(row[0], bytes(row[1]), bytes(row[2]), row[7])
    job.key = row[3] or ""
    job.origin = row[4]
    job.digest = bytes(row[5])
    job.priority, job.due, job.expires = row[6], row[8], row[9]
    job.configure(row[10])
    job.attempts, job.state, job.outcome, job.reason, job.result = row[11], row[12], row[13], row[14], bytes(row[15])
    job.ended, job.keep, job.story = row[16], row[17], story_of(row[18])
    job.schedule, job.fired = row[19] or "", row[20]
    job.restore_waits()
    return job


def schedule_of(row: Any) -> ScheduleRow:
    """A schedule from a row of SCHEDULE_COLUMNS."""
    found = ScheduleRow(row[0], bytes(row[1]), bytes(row[2]), row[3], row[4], row[8])
    found.missed, found.priority, found.settings, found.next = row[5], row[6], row[7], row[9]
    return found


class SqlOps:
    """``execute`` runs a statement with ``?`` for its values; ``insert`` stores a new job. ``schema`` is that of the tables."""

    def __init__(
        self,
        execute: "Callable[[str, tuple[object, ...]], Any]",
        insert: Callable[[Job], None],
        schema: str = "",
    ) -> None:
        self._execute = execute
        self._insert = insert
        self._prefix = f"{schema}." if schema else ""

    def _run(self, statement: str, values: "tuple[object, ...]") -> Any:
        return self._execute(statement.replace("@", self._prefix), values)

    def apply(self, op: Op) -> None:
        BY_TYPE[type(op)](self, op)

    def fire(self, op: Fire) -> None:
        changed = self._run(
            "UPDATE @schedules SET next = ?, fired = ? WHERE name = ? AND fired < ?",
            (op.following, op.fired, op.name, op.fired),
        )
        op.done = changed.rowcount == 1
        if op.job is None:
            return
        if op.done:
            self._insert(op.job)
        else:  # the same operation, applied again
            op.done = self._run("SELECT 1 FROM @jobs WHERE id = ?", (op.job.id,)).fetchone() is not None

    def reopen(self, op: Reopen) -> None:
        """Keeps the failed attempts in the story, and adds when the job was reopened."""
        self._run(
            "UPDATE @jobs SET state = 'open', outcome = '', reason = '', ended = 0, keep = 0, attempts = 0, due = ?, expires = 0 "
            "WHERE id = ? AND state = 'dead'",
            (op.due, op.id),
        )
        row = self._run(
            f"SELECT {COLUMNS} FROM @jobs WHERE id = ? AND state = 'open' AND due = ?", (op.id, op.due)
        ).fetchone()
        op.job = job_of(row) if row is not None else None
        if op.job is not None and op.job.reopened() != iso_time(op.due):
            op.job.tell(reopening(iso_time(op.due)))
            op.job.restore_waits()
            self._run("UPDATE @jobs SET story = ? WHERE id = ?", (story_text(op.job.story), op.id))

    def remove(self, op: Remove) -> None:
        text = "DELETE FROM @jobs WHERE id = ? AND state <> 'open' AND (? = '' OR state = ?)"
        op.done = self._run(text, (op.id, op.state, op.state)).rowcount == 1

    def purge(self, op: Purge) -> None:
        op.count = self._run(
            "DELETE FROM @jobs WHERE id IN (SELECT id FROM @jobs WHERE keep > 0 AND keep <= ? AND state <> 'open' LIMIT ?)",
            (op.now, JOB_PURGE_ROWS),
        ).rowcount

    def put_schedule(self, op: PutSchedule) -> None:
        row = op.row
        self._run("DELETE FROM @schedules WHERE name = ?", (row.name,))
        self._run(
            f"INSERT INTO @schedules ({SCHEDULE_COLUMNS}, fired) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                row.name, row.service, row.body, row.timing, row.zone, row.missed, row.priority, row.settings, row.created, row.next,
            ),
        )  # fmt: skip

    def drop_schedule(self, op: DropSchedule) -> None:
        op.done = self._run("DELETE FROM @schedules WHERE name = ?", (op.name,)).rowcount == 1

    def put_pause(self, op: PutPause) -> None:
        if op.paused:
            self._run("INSERT INTO @paused VALUES (?) ON CONFLICT DO NOTHING", (op.service,))
        else:
            self._run("DELETE FROM @paused WHERE service = ?", (op.service,))


BY_TYPE: "dict[type[Op], Callable[[SqlOps, Any], None]]" = {
    Fire: SqlOps.fire,
    Reopen: SqlOps.reopen,
    Remove: SqlOps.remove,
    Purge: SqlOps.purge,
    PutSchedule: SqlOps.put_schedule,
    DropSchedule: SqlOps.drop_schedule,
    PutPause: SqlOps.put_pause,
}
