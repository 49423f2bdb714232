"""The audit on Spark judges by the principal that caused something, as the audit in Python does."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from polydomo.journal import schema
from polydomo.journal.reading import audit
from tests.journal.reading.test_authority_audit import (
    ATTEMPT,
    EVALUATED,
    EVALUATION,
    FALLBACK,
    FIRED,
    FORWARDED,
    KEYED,
    SCHEDULER,
    UNASKED,
)
from tests.pipeline import journals
from tests.pipeline.comparing import comparable, table_rows
from tests.pipeline.journals import Row
from tests.pipeline.reference import Reference
from tests.pipeline.shared import load

STARTED: Row = {"event": schema.STARTED}
GRANTED: Row = {"event": schema.ACCESS, "outcome": "call", "principal": "alice", "service": "echo", "allowed": 1}
REVOKED: Row = {**GRANTED, "allowed": 2}
JOB: Row = {"event": schema.JOB, "outcome": "accepted", "service": "echo", "principal": "alice", "job": "A"}
BRIDGE: Row = {"event": schema.REGISTERED, "protocol": "bridge", "principal": "bob", "worker": 8, "connection": 8}
MAY_BRIDGE: Row = {"event": schema.ACCESS, "outcome": "bridge", "principal": "bob", "allowed": 1}
PLANTED = (FIRED, ATTEMPT, SCHEDULER, EVALUATED, EVALUATION, FALLBACK, KEYED, FORWARDED, UNASKED)


def run_of(run: int, *rows: Row) -> list[Row]:
    made = []
    for seq, row in enumerate(rows, 1):
        given: dict[str, Any] = {name: value for name, value in row.items() if name != "event"}
        if given.get("number"):
            given["number"] = seq  # requests of their own
        made.append(journals.message(seq, row["event"], 600.0 * seq, run=run, **given))
    return made


# With access control (1), without it (2), with its first row after others (3), without its first row (4).
ROWS = [
    *run_of(1, STARTED, JOB, GRANTED, JOB, *PLANTED, MAY_BRIDGE, BRIDGE, JOB, REVOKED, JOB, GRANTED, JOB),
    *run_of(2, STARTED, JOB, FIRED, ATTEMPT, SCHEDULER, KEYED),
    *run_of(3, STARTED, JOB, ATTEMPT, SCHEDULER, KEYED, JOB, JOB, GRANTED, JOB, FIRED),
    *run_of(4, STARTED, GRANTED, JOB, FIRED, ATTEMPT)[1:],
]


def breaches(tables: Path) -> list[tuple[Any, ...]]:
    return comparable("audit", table_rows(tables, "audit"))


def expected(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return comparable("audit", Reference(rows).tables["audit"])


def test_every_rule_about_principals_is_broken_here() -> None:
    assert {breach.rule for breach in audit.audit(ROWS)} >= {
        "origin-known",
        "forwarded-with-the-right",
        "job-with-the-right",
        "registered-with-the-right",
        "no-call-of-built-in",
        "called-with-the-right",
    }


@pytest.mark.parametrize("batches", [2, *(pytest.param(batches, marks=pytest.mark.long) for batches in (1, 4))])
def test_spark_finds_what_python_finds_and_remembers_rights(tmp_path: Path, batches: int) -> None:
    """Also if the run's first row about access control comes in a later batch than rows that are breaches because of it."""
    hours = sorted({row["time"].hour for row in ROWS})
    assert len(hours) == 4
    seen: list[Row] = []
    for i in range(batches):
        loaded = hours[len(hours) * i // batches : len(hours) * (i + 1) // batches]
        new = [row for row in ROWS if row["time"].hour in loaded]
        journals.write(tmp_path / "journal", new)
        seen += new
        load([str(tmp_path / "journal")], str(tmp_path / "tables"))
        assert breaches(tmp_path / "tables") == expected(seen)
