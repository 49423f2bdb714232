"""Broker events become rows: the same by columns and by rows, without gaps, and within the rules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from polydomo.journal import schema
from polydomo.journal.files.columns import tables
from polydomo.journal.ids import parse
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.outcomes import OK
from tests.journal.stage import RUN, Row, journalled, live

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def by_columns(recorder: JournalRecorder) -> list[Row]:
    """What the writer's thread would make of it, with times as the rows in Python have them."""
    found: list[Row] = []
    for chunk in [*recorder.queue.chunks, recorder.chunk]:
        for kind, table in tables(recorder.run, chunk, recorder.who).items():
            assert table.schema.names == schema.names(kind)
            for row in table.to_pylist():
                found.append({name: plain(value) for name, value in row.items()})
    return sorted(found, key=lambda row: int(row["seq"]))


def plain(value: Any) -> Any:
    return (value - EPOCH) // MICROSECOND if isinstance(value, datetime) else value


@pytest.mark.parametrize("seed", range(9))
def test_columns_and_rows_say_the_same(seed: int) -> None:
    levels = [
        Levels(MESSAGES),
        Levels(REQUESTS),
        Levels(REQUESTS, PatternMap({"echo": MESSAGES, "resize": schema.OFF})),
    ][seed % 3]
    bodies = chosen(["echo"] if seed % 2 else [])
    world, recorder = journalled(levels, RUN._replace(max_body=50), bodies, chunk_rows=300)
    live(world, seed)
    rows = recorder.rows()
    assert len(rows) > 100
    assert by_columns(recorder) == rows


@pytest.mark.parametrize("level", [MESSAGES, REQUESTS])
def test_the_id_that_the_client_gave_a_request_is_in_its_rows(level: str) -> None:
    world, recorder = journalled(Levels(level))
    worker = world.worker()
    client, other = world.client(), world.client()
    client.has_client_ids = True
    for asker, identity in ((client, b"order 7"), (client, b"\xff" + 200 * b"x"), (other, b"not recorded")):
        asker.ask(identity)
        worker.answer()
    client.ask(b"lost")
    worker.close()
    world.worker().fail()
    found = by_columns(recorder)
    assert found == recorder.rows()
    wanted = ["order 7", "\\xff" + 127 * "x", "", "lost"]
    assert [row["client_id"] for row in found if "request" in row] == wanted
    assert [row["client_id"] for row in found if row.get("event") == "accepted"] == (
        wanted if level == MESSAGES else []
    )


@pytest.mark.parametrize("seed", range(12))
def test_any_life_keeps_the_rules(seed: int) -> None:
    world, recorder = journalled()
    live(world, seed)
    recorder.end("over")
    rows = recorder.rows()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [str(breach) for breach in audit(rows)] == []
    events = {row.get("event") for row in rows}
    assert {
        schema.STARTED,
        schema.STOPPED,
        schema.ACCEPTED,
        schema.DISPATCHED,
        schema.FINAL,
        schema.REGISTERED,
        None,
    } <= events


def test_lives_together_have_every_event() -> None:
    found: set[str] = set()
    for seed in range(15):
        world, recorder = journalled()
        live(world, seed)
        recorder.end("over")
        found |= {row["event"] for row in recorder.rows() if "event" in row}
    without = {schema.MISSING, schema.LOG, schema.PUBLISHED, schema.REFUSED, schema.LAGGED, schema.ACCESS, schema.JOB}
    without |= {schema.MEMO, schema.KEYED}  # sim/memoised.py
    without |= {schema.FLOW, schema.NODE}  # tests/broker/flows/test_journalled.py
    assert found >= set(schema.EVENTS) - without


def test_a_request_from_acceptance_to_final() -> None:
    world, recorder = journalled()
    client = world.client()
    client.ask(b"hello")
    world.wait(2.0)
    worker = world.worker(b"echo")
    world.wait(0.5)
    worker.answer(b"done")
    rows = [row for row in recorder.rows() if row.get("number")]
    assert [row.get("event") for row in rows] == [schema.ACCEPTED, schema.QUEUED, schema.DISPATCHED, schema.FINAL, None]
    accepted, queued, dispatched, final, finished = rows
    assert (
        accepted["time"] == round((RUN.wall + 1000.0) * 1e6) and accepted["size"] == 7 and accepted["service"] == "echo"
    )
    assert queued["queue"] == 1 and queued["workers"] == 0
    assert (
        dispatched["worker"] == worker.me.number
        and dispatched["attempt"] == 1
        and dispatched["connection"] == worker.number
    )
    assert final["released"] == 1 and final["outcome"] == OK and final["client"] == client.number
    assert (finished["wait_us"], finished["run_us"], finished["total_us"]) == (2_000_000, 500_000, 2_500_000)
    assert (
        finished["dispatched"] == finished["first_dispatched"] == accepted["time"] + 2_000_000
        and finished["first_partial"] is None
    )
    assert (finished["attempts"], finished["max_attempts"], finished["hops"]) == (1, 3, 0)
    assert parse(finished["request"]) == (accepted["time"] // 1000, RUN.run, accepted["number"])


def test_level_requests_has_one_row_per_request_and_the_rare_events() -> None:
    world, recorder = journalled(Levels(REQUESTS))
    live(world, 3)
    rows = recorder.rows()
    assert not {row["event"] for row in rows if "event" in row} & set(schema.ONLY_MESSAGES)
    assert any("event" not in row for row in rows)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))


def test_a_service_may_have_its_own_level() -> None:
    world, recorder = journalled(Levels(REQUESTS, PatternMap({"resize": MESSAGES, "name\udcff": schema.OFF})))
    live(world, 4)
    rows = recorder.rows()
    first = {row["number"]: row["service"] for row in rows if "event" not in row}
    assert set(first.values()) == {"echo", "resize"}
    observed = {
        row["number"]
        for row in rows
        if row.get("event") in (schema.ACCEPTED, schema.DISPATCHED, schema.FINAL, schema.FAILED)
    }
    assert observed == {number for number, service in first.items() if service == "resize"}


def test_payloads_are_recorded_only_where_named_and_cut() -> None:
    world, recorder = journalled(run=RUN._replace(max_body=10), bodies=chosen(["echo"]))
    client, echo, other = world.client(), world.worker(b"echo"), world.worker(b"other")
    client.ask(b"short")
    client.ask(b"far too long for it", b"other")
    echo.answer(b"ok")
    other.answer(b"ok")
    client.ask(b"far too long for it")
    echo.answer(b"far too long as well")
    kept = [(row["event"], row["body"], row["body_cut"]) for row in recorder.rows() if row.get("body")]
    assert kept == [
        (schema.ACCEPTED, b"\x00\x05short", 0),
        (schema.FINAL, b"\x00\x02ok", 0),
        (schema.ACCEPTED, b"\x00\x13far too ", 1),
        (schema.FINAL, b"\x00\x14far too ", 1),
    ]


def test_the_memory_of_rows_that_are_not_written_includes_payloads() -> None:
    """A broker that records payloads must count them, or a slow disk lets it exceed its memory limit."""
    world, recorder = journalled(run=RUN._replace(max_body=5_000), bodies=chosen(["echo"]), chunk_rows=4)
    client, echo = world.client(), world.worker(b"echo")
    for _ in range(5):
        before = recorder.memory()
        client.ask(b"q" * 1_000)
        echo.answer(b"a" * 2_000)
        assert 3_000 < recorder.memory() - before < 6_000
    assert recorder.queue.chunks


def test_a_disk_that_stays_full_does_not_fill_the_journal_with_rows_about_rows() -> None:
    """A row that states dropped rows may be dropped too and stated again. This must end: dropped rows are one growing range."""
    world, recorder = journalled(chunk_rows=5, max_chunks=3)
    live(world, 5, steps=400)
    observed = sum(bool(step.covers_run) for chunk in recorder.queue.chunks for step in chunk.steps)
    assert recorder.queue.dropped > 200 and observed <= 2 * len(recorder.queue.chunks)
    recorder.end("over")
    assert [str(breach) for breach in audit(recorder.rows())] == []


def test_rows_that_cannot_be_written_are_dropped_and_stated() -> None:
    world, recorder = journalled(chunk_rows=50, max_chunks=4)
    live(world, 5, steps=2000)
    assert recorder.queue.dropped > 500 and len(recorder.queue.chunks) <= 4
    recorder.hand_over()
    recorder.end("over")
    rows = recorder.rows()
    # The last word is in line, and nothing comes after it.
    assert len(recorder.queue.chunks) <= 5 and recorder.queue.chunks[-1].last == recorder.seq
    assert len(rows) == recorder.seq - recorder.queue.dropped
    covered = {
        number
        for row in rows
        if row.get("event") == schema.MISSING
        for number in range(row["covers_first"], row["covers_last"] + 1)
    }
    there = {row["seq"] for row in rows}
    assert there | covered >= set(range(min(there), recorder.seq + 1)) and not there & covered
    assert [str(breach) for breach in audit(rows)] == []


def test_the_run_is_in_every_row() -> None:
    world, recorder = journalled(run=Run("elsewhere", 7, 0.0))
    live(world, 6, 50)
    assert {(row["broker"], row["run"]) for row in recorder.rows()} == {("elsewhere", 7)}


def test_payloads_are_recorded_by_the_most_specific_pattern_of_services_and_topics() -> None:
    bodies = PatternMap({"sensors.*": True, "sensors.secret": False, "ech?": True})
    world, recorder = journalled(run=RUN._replace(max_body=100), bodies=bodies)
    world.worker(b"echo")
    publisher = world.client()
    for topic in (b"sensors.a", b"sensors.secret", b"sensors", b"echo"):
        recorder.published(publisher, topic, b"value")
    publisher.ask(b"question")
    found = {
        (row["event"], row["topic"] or row["service"]): row["body"]
        for row in recorder.rows()
        if row["event"] in (schema.PUBLISHED, schema.ACCEPTED)
    }
    assert found[schema.PUBLISHED, "sensors.a"] == found[schema.PUBLISHED, "echo"] == b"value"
    assert not found[schema.PUBLISHED, "sensors.secret"] and not found[schema.PUBLISHED, "sensors"]
    assert b"question" in found[schema.ACCEPTED, "echo"]
