"""Stores of older versions: keys get their principals and services, and schedules of operators a principal."""

import json
import sqlite3
from pathlib import Path

import pytest

from polydomo.broker.flows import flow as states
from polydomo.broker.jobs.job import Job, scoped_key
from polydomo.broker.jobs.ops import Insert, PutSchedule, ScheduleRow
from polydomo.model.flows.flow import Flow
from polydomo.model.principals import SCHEDULES
from polydomo.stores.checks import first_checks, job_damage
from polydomo.stores.sql_ops import CHECKS, COLUMNS
from polydomo.stores.sqlite import SqliteBackend
from tests.stores.cases import Case
from tests.stores.test_flows import Running, growth, part


def old_store(path: Path, version: int) -> None:
    """A store as version 1 or 2 wrote it: keys as clients gave them, schedules without principals."""
    backend = SqliteBackend(path)
    backend.open()
    epoch = backend.acquire("test", "", 10.0).epoch
    mine, fired, unchecked = (
        Job("A", b"echo", b"\x00\x01x", 1.0),
        Job("B", b"echo", b"", 2.0),
        Job("C", b"echo", b"", 3.0),
    )
    mine.principal, fired.schedule, unchecked.schedule = "alice", "nightly", "emqp-0123456789abcdef"
    plans = [ScheduleRow(name, b"echo", b"", "every 1h", "UTC", 1.0) for name in ("nightly", "emqp-0123456789abcdef")]
    backend.apply([Insert(mine), Insert(fired), Insert(unchecked), *map(PutSchedule, plans)], epoch)
    backend.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE jobs SET key = 'invoice-7' WHERE id = 'A'")
        (row,) = connection.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = 'A'").fetchall()
        connection.execute("UPDATE jobs SET checks = ? WHERE id = 'A'", (first_checks(row[:CHECKS]),))
        if version == 1:
            for table in ("jobs", "schedules", "paused"):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN checks")
        connection.execute("UPDATE lease SET schema = ?", (version,))


@pytest.mark.parametrize("version", [1, 2])
def test_keys_and_schedules_get_principals(tmp_path: Path, version: int) -> None:
    path = tmp_path / "jobs.db"
    old_store(path, version)
    backend = SqliteBackend(path)
    backend.open()
    try:
        epoch = backend.acquire("test", "", 10.0).epoch
        loaded = backend.load(0.0)
        jobs = {job.id: job for job in loaded.jobs}
        assert (jobs["A"].key, jobs["A"].principal) == ("invoice-7", "alice")
        assert {id: job.principal for id, job in jobs.items()} == {"A": "alice", "B": SCHEDULES, "C": ""}
        found = {row.name: json.loads(row.settings or "{}").get("principal", "") for row in loaded.schedules}
        assert found == {"nightly": SCHEDULES, "emqp-0123456789abcdef": ""}
        assert not any(row.damage for row in loaded.schedules)
        repeated = Job("D", b"echo", b"\x00\x01x", 9.0)
        repeated.principal, repeated.key = "alice", "invoice-7"
        anothers = Job("E", b"echo", b"\x00\x01x", 9.0)
        anothers.principal, anothers.key = "bob", "invoice-7"
        ops = [Insert(repeated), Insert(anothers)]
        backend.apply([*ops], epoch)
        assert ops[0].existing is not None and ops[0].existing.id == "A"
        assert ops[1].existing is None or ops[1].existing.id == "E"  # it was stored
    finally:
        backend.close()
    with sqlite3.connect(path) as connection:
        for row in connection.execute(f"SELECT {COLUMNS} FROM jobs"):
            assert row[CHECKS] and not job_damage(row[:-1], row[CHECKS], False)
        key = connection.execute("SELECT key FROM jobs WHERE id = 'A'").fetchone()[0]
    assert key == scoped_key("alice", b"echo", "invoice-7")


def test_flows_of_version_4_can_grow(case: Case) -> None:
    if case.kind == "memory":
        pytest.skip("a store in memory has no older version")
    flow = Flow("f")
    flow.call("work", name="a")
    running = Running(case, flow)
    prefix = "" if case.kind == "sqlite" else "polydomo."
    case.backend.release(case.epoch)
    case.backend.close()
    statements = [f"ALTER TABLE {prefix}flows DROP COLUMN {name}" for name in ("added", "added_edges")]
    statements += [f"ALTER TABLE {prefix}flow_nodes DROP COLUMN {name}" for name in ("grown", "replaces")]
    statements += [f"UPDATE {prefix}lease SET schema = 4"]
    case.execute(statements)
    case.backend = case.another()
    case.epoch = case.backend.acquire("a", "tcp://a", 60.0).epoch
    assert running.state().damage == ""
    running.grow("a", growth(part()))
    running.end("0/x")
    running.end("0/y")
    assert (running.state().state, running.state().total) == (states.DONE, 3)
