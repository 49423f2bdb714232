"""The table of partial replies of jobs, in SQL that SQLite and PostgreSQL both support."""

from collections.abc import Callable, Sequence
from typing import Any

from polydomo.broker.jobs.ops import GetParts
from polydomo.broker.jobs.part import StoredPart
from polydomo.stores.groups import pieces
from polydomo.stores.part_checks import part_checks, part_of

PART_COLUMNS = "job, attempt, number, stop, body, checks"
MOST_PARTS = 64  # in a statement

Execute = Callable[[str, Sequence[object]], Any]


def parts_table(schema: str, blob: str) -> str:
    """The statement that creates the table."""
    prefix = f"{schema}." if schema else ""
    tail = "" if schema else " WITHOUT ROWID"
    return f"""
CREATE TABLE IF NOT EXISTS {prefix}job_parts (
    job TEXT NOT NULL, attempt INTEGER NOT NULL, number INTEGER NOT NULL, stop BIGINT NOT NULL, body {blob} NOT NULL,
    checks {blob} NOT NULL, PRIMARY KEY (job, attempt, number)
){tail};
"""


def part_size(part: StoredPart) -> int:
    return len(part.body)


class SqlParts:
    """``execute`` runs a statement with ``?`` for its values, within a transaction."""

    def __init__(self, execute: Execute, schema: str = "") -> None:
        self._execute = execute
        self._prefix = f"{schema}." if schema else ""

    def _run(self, text: str, values: "Sequence[object]" = ()) -> Any:
        return self._execute(text.replace("@", self._prefix), values)

    def put(self, parts: "list[StoredPart]") -> None:
        for some in pieces(parts, part_size):
            for start in range(0, len(some), MOST_PARTS):
                self._insert(some[start : start + MOST_PARTS])
        begun: dict[str, int] = {}
        dropped: dict[tuple[str, int], int] = {}
        for part in parts:
            if part.number <= 1:
                begun[part.job] = part.attempt
            if part.first_kept > 1:
                dropped[part.job, part.attempt] = part.first_kept
        for job, attempt in begun.items():
            self._run("DELETE FROM @job_parts WHERE job = ? AND attempt < ?", (job, attempt))
        for (job, attempt), first in dropped.items():
            self._run("DELETE FROM @job_parts WHERE job = ? AND attempt = ? AND number < ?", (job, attempt, first))

    def _insert(self, parts: "list[StoredPart]") -> None:
        row = "(?, ?, ?, ?, ?, ?)"
        text = f"INSERT INTO @job_parts ({PART_COLUMNS}) VALUES {', '.join([row] * len(parts))} ON CONFLICT DO NOTHING"
        values: list[object] = []
        for part in parts:
            values += (part.job, part.attempt, part.number, part.stop, part.body, part_checks(part))
        self._run(text, values)

    def read(self, op: GetParts) -> None:
        found = self._run(
            "SELECT attempt, number, length(body) FROM @job_parts WHERE job = ? AND (attempt, number) > (?, ?) AND number > 0 "
            "ORDER BY attempt, number LIMIT ?",
            (op.job, *op.after, op.most),
        ).fetchall()
        size, end = 0, op.after
        for attempt, number, length in found:
            size += length
            if size > op.most_bytes and end != op.after:
                break
            end = (attempt, number)
        if found:
            rows = self._run(
                f"SELECT {PART_COLUMNS} FROM @job_parts WHERE job = ? AND (attempt, number) > (?, ?) AND (attempt, number) <= (?, ?) "
                "AND number > 0 ORDER BY attempt, number",
                (op.job, *op.after, *end),
            ).fetchall()
            op.parts = [part_of(*row) for row in rows]
        last = self._run(
            "SELECT job, attempt, number, stop, checks FROM @job_parts WHERE job = ? ORDER BY attempt DESC, number DESC LIMIT 1",
            (op.job,),
        ).fetchone()
        if last is not None:
            job, attempt, number, stop, checks = last
            op.last = part_of(job, attempt, number, stop, None, checks)

    def streamed(self) -> "dict[str, int]":
        """The last attempt with parts of each open job that has any."""
        text = (
            "SELECT p.job, max(p.attempt) FROM @job_parts AS p JOIN @jobs AS j ON j.id = p.job WHERE j.state = 'open' "
            "GROUP BY p.job"
        )
        return dict(self._run(text).fetchall())

    def last_attempts(self, jobs: "Sequence[str]") -> "dict[str, int]":
        if not jobs:
            return {}
        marks = ", ".join("?" * len(jobs))
        text = f"SELECT job, max(attempt) FROM @job_parts WHERE job IN ({marks}) GROUP BY job"
        return dict(self._run(text, jobs).fetchall())
