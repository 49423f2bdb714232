"""Stored data that was changed by hand: it is found when it is read, and never used."""

import sqlite3
from pathlib import Path

import pytest

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import (
    NOT_LEADER,
    Collected,
    Finish,
    Fire,
    Insert,
    Progress,
    PutPause,
    PutSchedule,
    Reopen,
    Replace,
    ScheduleRow,
    Select,
    StoreError,
)
from polydomo.stores.sqlite import SqliteBackend
from tests.broker.jobs.machine import World
from tests.postgres import Postgres
from tests.stores.cases import Case, ended, new, tried


def alter(case: Case, table: str, name: str, column: str, value: object) -> None:
    """Changes one field of one stored record, as damage does: nothing else of the record changes."""
    if case.kind == "memory":
        tables = case.memory.tables
        setattr(tables.jobs[name] if table == "jobs" else tables.schedules[name], column, value)
        return
    by = {"jobs": "id", "schedules": "name", "paused": "service"}[table]
    if case.kind == "sqlite":
        with sqlite3.connect(case.place / "jobs.db") as connection:
            assert connection.execute(f"UPDATE {table} SET {column} = ? WHERE {by} = ?", (value, name)).rowcount == 1
        connection.close()
        return
    import psycopg

    with psycopg.connect(case.url) as other:
        statement = f"UPDATE polydomo.{table} SET {column} = %s WHERE {by} = %s"
        assert other.execute(statement.encode(), (value, name)).rowcount == 1


CHANGES = [
    ("body", b"\x00\x04bode", "the stored body is damaged"),
    ("service", b"rendes", "the stored job is damaged"),
    ("priority", 4, "the stored job is damaged"),
    ("attempts", 1, "the stored job is damaged"),
    ("due", 101.0, "the stored job is damaged"),
    ("origin", "jnb", "the stored job is damaged"),
    ("key", "other", "the stored job is damaged"),
]


@pytest.mark.parametrize(("column", "value", "reason"), CHANGES, ids=[change[0] for change in CHANGES])
def test_a_changed_open_job_is_dead_and_nothing_of_it_is_used(
    case: Case, column: str, value: object, reason: str
) -> None:
    case.apply(Insert(new("A")), Insert(new("B")))
    alter(case, "jobs", "A", column, value)
    found, other = sorted(case.backend.load(0.0).jobs, key=lambda job: job.id)
    assert (found.state, found.outcome, found.damage) == (states.DEAD, states.DAMAGED, reason)
    assert found.body == found.result == b""
    assert not other.damage and other.body == b"\x00\x04body"
    got = case.get("A")
    assert (got.state, got.reason) == (states.DEAD, reason)


def test_a_changed_result_is_not_returned(case: Case) -> None:
    case.apply(Insert(new("A")))
    case.apply(Finish(ended(new("A"))))
    alter(case, "jobs", "A", "result", b"\x00\x02ho")
    found = case.get("A")
    assert (found.state, found.outcome, found.reason) == (states.DEAD, "damaged", "the stored result is damaged")
    assert found.result == b""


def test_a_list_finds_changed_records_without_reading_bodies(case: Case) -> None:
    case.apply(Insert(new("A", 1.0)), Insert(new("B", 2.0)))
    alter(case, "jobs", "B", "outcome", "ok")
    op = Select("", b"", 10)
    case.backend.read(op)
    assert [(job.id, job.state) for job in op.jobs] == [("B", states.DEAD), ("A", states.OPEN)]


def test_a_condemned_job_stays_dead_and_cannot_be_reopened(case: Case) -> None:
    case.apply(Insert(new("A")))
    alter(case, "jobs", "A", "service", b"sender")
    (job,) = case.backend.load(0.0).jobs
    job.ended, job.keep = 150.0, 900.0
    case.apply(Replace(job))
    case.apply(Replace(job))  # again, after a commit in doubt
    assert case.backend.load(0.0).jobs == []
    found = case.get("A")
    assert (found.state, found.outcome, found.damage, found.ended) == (states.DEAD, "damaged", "", 150.0)
    op = Reopen("A", 200.0)
    case.apply(op)
    assert op.job is None and case.get("A").state == states.DEAD


@pytest.mark.parametrize("state", [states.DONE, states.DEAD])
@pytest.mark.parametrize(("column", "value"), [("state", "opeo"), ("id", "C"), ("body", b"\x00\x04bodz")])
def test_the_outcome_of_a_job_in_memory_replaces_its_damaged_record(
    case: Case, column: str, value: object, state: str
) -> None:
    job = new("A")
    job.set_key("k")
    case.apply(Insert(job), Insert(new("B")))
    if column == "id" and case.kind == "memory":
        pytest.skip("records in memory are found by their id")
    alter(case, "jobs", "A", column, value)
    outcome = ended(job, state)
    case.apply(Replace(outcome))
    case.apply(Replace(outcome))  # again, after a commit in doubt
    found = case.get("A")
    assert (found.damage, found.state, found.result, found.ended) == ("", state, b"\x00\x02hi", 200.0)
    assert found.body == (b"" if state == states.DONE else b"\x00\x04body")
    op = Select("", b"", 10)
    case.backend.read(op)
    assert sorted(job.id for job in op.jobs) == ["A", "B"]


def test_only_the_leader_condemns_a_job(case: Case) -> None:
    if not case.backend.shared:
        pytest.skip("SQLite serves one broker")
    case.apply(Insert(new("A")))
    alter(case, "jobs", "A", "body", b"\x00\x04bodz")
    (job,) = case.backend.load(0.0).jobs
    other = case.another()
    try:
        case.backend.release(case.epoch)
        taken = other.acquire("b", "tcp://b", 60.0)
        with pytest.raises(StoreError) as caught:
            case.apply(Replace(job))
        assert caught.value.code == NOT_LEADER
        assert case.get("A").damage == "the stored body is damaged"  # nothing was written
        other.apply([Replace(job)], taken.epoch)
        assert case.get("A").damage == "" and case.get("A").outcome == "damaged"
    finally:
        other.close()


def test_a_dead_job_with_a_changed_body_is_not_reopened(case: Case) -> None:
    case.apply(Insert(new("A")))
    case.apply(Finish(ended(new("A"), states.DEAD)))
    alter(case, "jobs", "A", "body", b"\x00\x04bodz")
    op = Reopen("A", 200.0)
    case.apply(op)
    assert op.job is None


def test_checksums_stay_right_through_the_life_of_a_job(case: Case) -> None:
    """Every write of a record renews them, from what its writer knows: what was damaged before does not become right."""
    job = new("A")
    job.key, job.headers, job.principal = "k", '{"a": "b"}', "anna"
    case.apply(Insert(job))
    (job,) = case.backend.load(0.0).jobs
    job.attempts, job.due, job.story = 1, 150.5, [{"attempt": 1, "reason": "\u2014"}]
    case.apply(Progress(job))
    job.due = 160.0  # changes in memory only
    job.state, job.outcome, job.reason, job.ended, job.keep, job.attempts = states.DEAD, "failed", "no", 170.0, 900.0, 2
    case.apply(Finish(job))
    assert case.get("A").damage == ""
    reopen = Reopen("A", 180.0)
    case.apply(reopen)
    assert reopen.job is not None
    job = reopen.job
    case.apply(Progress(job))
    alter(case, "jobs", "A", "body", b"\x00\x04bodz")
    case.apply(Progress(job))
    assert case.get("A").damage == "the stored body is damaged"
    job.state, job.outcome, job.result, job.ended = states.DONE, "ok", b"\x00\x02hi", 190.0
    case.apply(Finish(job), Collected("A"))
    assert case.get("A").damage == ""  # the body is gone, and the result is right
    assert case.get("A").result == b"\x00\x02hi"


def test_a_changed_schedule_does_not_run_and_the_others_do(case: Case) -> None:
    if case.kind == "memory":
        pytest.skip("schedules in memory have no checksums")
    rows = [ScheduleRow(name, b"render", b"\x00\x01x", "every 5s", "UTC", 1.0) for name in ("one", "two")]
    case.apply(*(PutSchedule(row) for row in rows))
    case.apply(Fire(rows[0], 10.0, 15.0, None), Fire(rows[1], 10.0, 15.0, None))
    assert [row.damage for row in case.backend.load(0.0).schedules] == ["", ""]
    alter(case, "schedules", "two", "service", b"remove")
    one, two = case.backend.load(0.0).schedules
    assert not one.damage and "remove it and add it again" in two.damage
    case.apply(PutSchedule(rows[1]))
    assert case.backend.load(0.0).schedules[1].damage == ""


def test_a_changed_pause_is_named(case: Case) -> None:
    if case.kind == "memory":
        pytest.skip("pauses in memory have no checksums")
    case.apply(PutPause(b"render", True), PutPause(b"x", True))
    alter(case, "paused", b"x", "service", b"y")  # type: ignore[arg-type]
    loaded = case.backend.load(0.0)
    assert loaded.paused == [b"render"] and "b'y'" in loaded.notes[0]


OLD = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, service BLOB NOT NULL, body BLOB NOT NULL, key TEXT, origin TEXT NOT NULL, digest BLOB NOT NULL,
    priority INTEGER NOT NULL, created REAL NOT NULL, due REAL NOT NULL, expires REAL NOT NULL, settings TEXT NOT NULL,
    attempts INTEGER NOT NULL, state TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL, result BLOB NOT NULL,
    ended REAL NOT NULL, keep REAL NOT NULL, story TEXT NOT NULL, schedule TEXT, fired REAL NOT NULL, collected INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE schedules (
    name TEXT PRIMARY KEY, service BLOB NOT NULL, body BLOB NOT NULL, timing TEXT NOT NULL, zone TEXT NOT NULL,
    missed TEXT NOT NULL, priority INTEGER NOT NULL, settings TEXT NOT NULL, created REAL NOT NULL, next REAL NOT NULL,
    fired REAL NOT NULL
);
CREATE TABLE paused (service BLOB PRIMARY KEY);
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, epoch INTEGER NOT NULL);
INSERT INTO lease VALUES (1, 1, 7);
INSERT INTO jobs VALUES ('A', 'render', 'body', NULL, 'job', '', 0, 1, 1, 0, '', 0, 'open', '', '', '', 0, 0, '', NULL, 0, 0);
UPDATE jobs SET service = CAST('render' AS BLOB), body = x'000162', digest = x'', result = x'';
INSERT INTO schedules VALUES ('s', CAST('render' AS BLOB), x'000162', 'every 5s', 'UTC', 'once', 0, '', 1, 2, 0);
INSERT INTO paused VALUES (CAST('render' AS BLOB));
"""


def test_a_file_without_checksums_gets_them_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.close()
    store = SqliteBackend(path)
    store.open()
    epoch = store.acquire("a", "", 1.0).epoch
    assert epoch == 8
    loaded = store.load(0.0)
    (job,) = loaded.jobs
    assert job.body == b"\x00\x01b" and not job.damage and loaded.paused == [b"render"]
    assert not loaded.schedules[0].damage
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE jobs SET body = x'000163'")
    connection.close()
    store.open()
    assert store.load(0.0).jobs[0].damage == "the stored body is damaged"
    store.close()


def test_the_state_machine_condemns_damaged_jobs_at_start_and_when_they_are_read() -> None:
    world = World()
    world.lead()
    for id in ("A", "B", "C"):
        world.jobs.submit(Job(id, b"render", b"\x00\x01" + id.encode(), world.time), lambda job, error: None)
    world.store.sync()
    stored = world.backend.tables.jobs
    stored["A"].body = b"\x00\x01!"
    after = World(world.backend)
    after.lead()
    after.store.sync()
    assert sorted(after.jobs.open) == ["B", "C"] and after.jobs.counters.dead == 1
    assert (stored["A"].state, stored["A"].outcome, stored["A"].keep > 0) == (states.DEAD, "damaged", True)
    for id in ("B", "C"):
        done = after.jobs.open[id]
        done.result = b"\x00\x02ok"
        after.jobs.record(done, states.DONE, "ok", "")
    after.store.sync()
    stored["C"].result = b"\x00\x02no"
    told: list[tuple[str, bytes, str]] = []
    for id in ("A", "B", "C"):
        after.jobs.find(id, lambda job, error: told.append((job.state, job.result, job.reason)) if job else None)
    after.store.sync()
    assert told == [
        (states.DEAD, b"", "the stored body is damaged"),
        (states.DONE, b"\x00\x02ok", ""),
        (states.DEAD, b"", "the stored result is damaged"),
    ]
    assert stored["C"].state == states.DEAD and after.jobs.counters.damaged == 2


def test_attempts_of_a_stored_job_are_part_of_it(case: Case) -> None:
    case.apply(Insert(new("A")))
    case.apply(Progress(tried("A", 1, 150.0)))
    alter(case, "jobs", "A", "attempts", 0)
    assert case.get("A").damage


@pytest.mark.xdist_group("postgres")
def test_tables_without_checksums_are_upgraded_once_their_leader_is_gone(postgres: Postgres) -> None:
    import psycopg

    from polydomo.stores.postgres import PostgresBackend

    url = postgres.database("upgraded")
    store = PostgresBackend(url)
    store.open()
    epoch = store.acquire("old", "tcp://old", 60.0).epoch
    job = new("A")
    job.key, job.headers = "k", "{}"
    row = ScheduleRow("one", b"render", b"\x00\x01x", "every 5s", "UTC", 1.0)
    store.apply([Insert(job), PutSchedule(row), PutPause(b"x", True)], epoch)
    store.apply([Fire(row, 10.0, 15.0, None)], epoch)
    with psycopg.connect(url) as other:
        for table in ("jobs", "schedules", "paused"):
            other.execute(f"ALTER TABLE polydomo.{table} DROP COLUMN checks".encode())
        other.execute("UPDATE polydomo.lease SET schema = 1")
    second = PostgresBackend(url)
    with pytest.raises(StoreError, match="stop all brokers of the older version"):
        second.open()
    store.release(epoch)
    second.open()
    loaded = second.load(0.0)
    assert [(found.id, found.damage) for found in loaded.jobs] == [("A", "")]
    assert [found.damage for found in loaded.schedules] == [""] and loaded.paused == [b"x"]
    second.close()
    store.close()
