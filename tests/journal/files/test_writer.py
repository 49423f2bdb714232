"""Segments appear completely or not at all; losses are counted; the journal stays within its limits, and a full disk is reported."""

import itertools
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.journal.files import parquet, runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.ids import run_name
from polydomo.journal.journal import Journal
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.reader import Reader
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.server.logs import INTERNAL_ERRORS
from tests.broker.rig import World
from tests.journal.stage import live

Row = dict[str, Any]
PATIENCE = 60.0
AGES = 1e10  # the rows of these tests are of 2023


def started(
    directory: Path, bounds: JournalBounds | None = None, level: str = MESSAGES, wall: float = 1_700_000_000.0
) -> tuple[World, Journal]:
    world = World()
    journal = Journal(directory, Levels(level), "test", wall, bounds=bounds or JournalBounds(keep_age=AGES))
    world.broker.record_to(journal.recorder)
    journal.attach(world.broker)
    return world, journal


def everything(directory: Path) -> list[Row]:
    reader = Reader([directory])
    rows = reader.rows(MESSAGES) + reader.rows(REQUESTS)
    assert reader.problems == []
    return sorted(rows, key=lambda row: (row["run"], row["seq"]))


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def kill(journal: Journal) -> None:
    """The process is gone: its thread writes no more, its lock is free. Its mapped file stays as it was."""
    journal.writer.bounds = journal.writer.bounds._replace(roll_rows=1 << 60, roll_seconds=1e9)
    journal.recorder.queue.chunks.clear()
    journal.writer._batch = None
    journal.writer.finish(PATIENCE)
    os.close(journal._lock)


def test_a_run_in_order(tmp_path: Path) -> None:
    world, journal = started(tmp_path)
    live(world, 1)
    expected = journal.recorder.rows()
    journal.stop()
    rows = everything(tmp_path)
    assert [row["seq"] for row in rows] == list(range(1, len(expected) + 2))
    assert rows[0]["event"] == schema.STARTED and rows[-1]["event"] == schema.STOPPED
    assert [row.get("event") for row in rows[:-1]] == [row.get("event") for row in expected]
    assert audit(rows) == []
    assert not list(tmp_path.glob("kind=*/**/.*"))


def test_segments_close_by_rows(tmp_path: Path) -> None:
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_rows=100))
    for seed in range(3):
        live(world, seed, 150)
        world.broker.draining = False
        journal.tick()
        until(lambda: not journal.recorder.queue.chunks)
    journal.stop()
    found = {(segment.first, segment.last) for segment in runs.segments(tmp_path)}
    assert len(found) >= 3
    ends = sorted(found)
    assert ends[0][0] == 1 and all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ends))


def test_segments_close_by_time_and_on_demand(tmp_path: Path) -> None:
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=0.1))
    journal.tick()
    until(lambda: journal.writer.closed == 1)
    journal.writer.bounds = JournalBounds(keep_age=AGES, roll_seconds=3600)
    world.client()
    assert journal.flush() == 2
    until(lambda: journal.writer.closed == 2)
    journal.stop()


def test_rows_of_two_hours_are_two_segments(tmp_path: Path) -> None:
    world, journal = started(tmp_path, wall=1_700_000_000 // 3600 * 3600 - 1000.0 - 1.0)
    world.client()
    world.wait(3.0)
    client = world.client()
    client.ask()
    client.close()
    journal.stop()
    hours = {segment.hour for segment in runs.segments(tmp_path)}
    assert hours == {"date=2023-11-14/hour=21", "date=2023-11-14/hour=22"}
    assert audit(everything(tmp_path)) == []
    for segment in runs.segments(tmp_path):
        table = pq.ParquetFile(segment.path).read(["time"])
        assert {f"date={t:%Y-%m-%d}/hour={t:%H}" for t in table["time"].to_pylist()} == {segment.hour}


def test_the_next_run_states_the_rows_that_a_killed_run_lost(tmp_path: Path) -> None:
    world, journal = started(tmp_path)
    world.client()
    journal.flush()
    until(lambda: journal.writer.closed == 2)
    world.client().ask()
    lost = journal.recorder.seq - 2
    kill(journal)
    _, second = started(tmp_path)
    second.stop()
    rows = everything(tmp_path)
    first_row = next(row for row in rows if row["run"] == second.run.run and row["seq"] == 1)
    assert (first_row["covers_run"], first_row["covers_first"], first_row["covers_last"]) == (
        journal.run.run,
        3,
        2 + lost,
    )
    assert f"lost {lost} rows" in first_row["reason"] and run_name(journal.run.run) in first_row["reason"]
    assert audit(rows) == []


def test_the_next_run_names_one_that_ended_in_order(tmp_path: Path) -> None:
    _, journal = started(tmp_path)
    journal.stop()
    _, second = started(tmp_path)
    second.stop()
    row = next(row for row in everything(tmp_path) if row["run"] == second.run.run and row["seq"] == 1)
    assert row["covers_run"] == journal.run.run and row["covers_last"] < row["covers_first"]
    assert "lost no rows" in row["reason"]
    assert {path.name for path in (tmp_path / runs.RUNS).iterdir()} == {"lock", run_name(second.run.run)}


def test_a_loss_is_stated_even_if_the_next_run_is_killed_first(tmp_path: Path) -> None:
    world, journal = started(tmp_path)
    world.client()
    kill(journal)
    _, second = started(tmp_path)
    kill(second)
    _, third = started(tmp_path)
    third.stop()
    covers = {
        (row["covers_run"], row["covers_first"], row["covers_last"])
        for row in everything(tmp_path)
        if row.get("covers_run")
    }
    assert covers == {(journal.run.run, 1, 2), (second.run.run, 1, second.recorder.seq)}


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_kill_between_the_files_of_a_batch(tmp_path: Path, published: int) -> None:
    world, journal = started(tmp_path)
    live(world, 2, 100)
    journal.stop()
    both = sorted(runs.segments(tmp_path), key=lambda segment: segment.kind)
    for segment in both[published:]:
        segment.path.rename(segment.path.with_name("." + segment.path.name))
    state = tmp_path / runs.RUNS / run_name(journal.run.run)
    content = bytearray(state.read_bytes())
    content[24:40] = bytes(16)  # neither closed nor stopped
    state.write_bytes(content)
    dead = runs.recover(tmp_path)
    assert len(dead) == 1
    assert dead[0].lost == (journal.recorder.seq if published == 0 else 0)
    assert len(runs.segments(tmp_path)) == (0 if published == 0 else 2)
    assert runs.segments(tmp_path, hidden=True) == []


def test_a_run_file_that_was_being_made_is_nothing(tmp_path: Path) -> None:
    (tmp_path / runs.RUNS).mkdir()
    (tmp_path / runs.RUNS / "00000001").write_bytes(bytes(40))
    (tmp_path / runs.RUNS / "00000002").write_bytes(b"")
    assert runs.recover(tmp_path) == []
    assert list((tmp_path / runs.RUNS).iterdir()) == []


def test_a_journal_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    Journal(tmp_path, Levels(MESSAGES), "test", 0.0).stop()
    assert [path.name for path in (tmp_path / runs.RUNS).iterdir()] == ["lock"]
    _, journal = started(tmp_path)  # and the lock is free
    journal.stop()


def test_two_brokers_cannot_share_a_journal(tmp_path: Path) -> None:
    _, journal = started(tmp_path)
    with pytest.raises(SettingError, match="another broker writes the journal"):
        started(tmp_path)
    journal.stop()


def test_a_full_disk_is_reported_and_recovered_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = True
    write = parquet.write

    def limited(path: Path, kind: str, parts: list[Any]) -> None:
        if full:
            path.write_bytes(b"half of a segm")
            raise OSError(28, "No space left on device")
        write(path, kind, parts)

    monkeypatch.setattr(parquet, "write", limited)
    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.01)
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=0.01))
    journal.tick()
    until(lambda: journal.writer.trouble)
    assert journal.status()["trouble"] == "No space left on device"
    world.client()
    full = False
    until(lambda: not journal.writer.trouble)
    journal.stop()
    assert audit(everything(tmp_path)) == [] and journal.recorder.queue.dropped == 0
    assert not list(tmp_path.glob("kind=*/**/.*"))


def test_a_run_has_its_place_on_the_disk_before_its_first_row(tmp_path: Path) -> None:
    (tmp_path / runs.RUNS).mkdir()
    file = runs.RunFile(tmp_path, 1)
    # A hole in the file would be SIGBUS with the first row, once the disk is full.
    assert file.path.stat().st_blocks > 0
    file.close()


def test_a_broker_starts_on_a_full_disk_and_records_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.01)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=0.01))
        world.client()
        journal.tick()
        until(lambda: journal.writer.trouble)
        assert [path.name for path in (tmp_path / runs.RUNS).iterdir()] == ["lock"]
        assert journal.status()["trouble"] == "No space left on device"
    journal.tick()
    world.client()
    journal.tick()
    until(lambda: journal.writer.closed == journal.recorder.seq)
    kill(journal)
    (dead,) = runs.recover(tmp_path)
    assert (dead.run, dead.last, dead.lost) == (
        journal.run.run,
        journal.recorder.seq,
        0,
    )  # counted where the next start looks
    assert audit(everything(tmp_path)) == [] and journal.recorder.queue.dropped == 0


def test_a_broker_that_leaves_a_full_disk_leaves_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.01)
    _, journal = started(tmp_path)
    journal.stop()
    assert not journal.writer.is_alive()
    assert [path.name for path in (tmp_path / runs.RUNS).iterdir()] == ["lock"]


def test_a_directory_without_write_access_is_reported_at_startup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(file: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "fsync", forbidden)
    with pytest.raises(SettingError, match=r"cannot keep a journal in .*: Permission denied"):
        started(tmp_path)


def test_an_import_that_fails_for_want_of_files_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.01)
    with monkeypatch.context() as broken:
        broken.delattr("polydomo.journal.files.parquet")
        broken.setitem(sys.modules, "polydomo.journal.files.parquet", None)
        world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=0.01))
        world.client()
        journal.tick()
        until(lambda: journal.writer.trouble)
    until(lambda: journal.writer.closed == journal.recorder.seq)
    assert not journal.status()["trouble"]
    journal.stop()
    assert audit(everything(tmp_path)) == [] and journal.recorder.queue.dropped == 0


def test_leaving_does_not_wait_for_an_import_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.01)
    monkeypatch.delattr("polydomo.journal.files.parquet")
    monkeypatch.setitem(sys.modules, "polydomo.journal.files.parquet", None)
    _, journal = started(tmp_path)
    journal.stop()
    assert not journal.writer.is_alive()


def test_a_disk_that_stays_full_costs_rows_and_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True
    write = parquet.write

    def limited(path: Path, kind: str, parts: list[Any]) -> None:
        if full:
            raise OSError(28, "No space left on device")
        write(path, kind, parts)

    monkeypatch.setattr(parquet, "write", limited)
    monkeypatch.setattr("polydomo.limits.JOURNAL_RETRY", 0.001)
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=0.01))
    journal.recorder.queue.max_chunks = 40
    turns = 0
    while turns < 600 or not journal.recorder.queue.dropped:  # a writer that is slow to begin loses nothing yet
        world.client().close()
        journal.tick()
        assert len(journal.recorder.queue.chunks) <= 40
        time.sleep(0.0005)
        turns += 1
        assert turns < 100_000
    full = False
    until(lambda: not journal.writer.trouble)
    journal.stop()
    rows = everything(tmp_path)
    assert [str(breach) for breach in audit(rows)] == []
    assert len(rows) + journal.recorder.queue.dropped == journal.recorder.seq
    covered = sum(row["covers_last"] - row["covers_first"] + 1 for row in rows if row.get("event") == schema.MISSING)
    assert covered >= journal.recorder.queue.dropped


@pytest.mark.internal_errors
def test_events_that_cannot_become_rows_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = parquet.tables
    broken = False

    def tables(*words: Any) -> dict[str, Any]:
        if broken:
            raise ValueError("not a chunk")
        return make(*words)

    monkeypatch.setattr(parquet, "tables", tables)
    world, journal = started(tmp_path)
    world.client()
    journal.tick()
    until(lambda: not journal.recorder.queue.chunks and journal.writer.has_rows)
    broken = True
    errors = INTERNAL_ERRORS.total
    world.client()
    world.client()
    journal.tick()
    until(lambda: journal.writer.given_up)
    broken = False
    world.client()
    journal.stop()
    rows = everything(tmp_path)
    (missing,) = [row for row in rows if row["event"] == schema.MISSING]
    assert (missing["covers_first"], missing["covers_last"], missing["reason"]) == (3, 4, "ValueError: not a chunk")
    assert [row["event"] for row in rows].count(schema.CONNECTED) == 2  # those before and after are there
    assert auditing(rows) == []
    assert INTERNAL_ERRORS.total == errors + 1
    assert journal.recorder.figures()["rows_dropped"] == 2
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "internal error",
        "journal rows dropped",
    ]


@pytest.mark.internal_errors
def test_rows_that_cannot_be_made_at_the_end_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, journal = started(tmp_path)
    until(lambda: hasattr(journal.writer, "_parquet"))

    def tables(*words: Any) -> dict[str, Any]:
        raise ValueError("not a chunk")

    monkeypatch.setattr(parquet, "tables", tables)
    world.client()
    journal.stop()
    messages = [record.getMessage() for record in caplog.records]
    assert "journal rows dropped" in messages
    assert journal.recorder.figures()["rows_dropped"] == journal.recorder.seq


def auditing(rows: list[Row]) -> list[str]:
    return [str(breach) for breach in audit(rows)]


def test_retention_by_bytes_takes_whole_batches_oldest_first(tmp_path: Path) -> None:
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_rows=1, keep_bytes=60_000))
    for _ in range(20):
        world.client().ask()
        journal.tick()
        seq = journal.recorder.seq
        until(lambda seq=seq: journal.writer.closed >= seq)
    world.broker.shutdown()
    journal.stop()
    kept = runs.segments(tmp_path)
    assert sum(segment.path.stat().st_size for segment in kept) <= 60_000
    assert min(segment.first for segment in kept) > 1 and max(segment.last for segment in kept) == journal.recorder.seq
    assert audit(everything(tmp_path)) == []


def test_retention_by_age(tmp_path: Path) -> None:
    old = tmp_path / "kind=messages" / "date=2001-01-01" / "hour=00"
    old.mkdir(parents=True)
    _, journal = started(tmp_path, JournalBounds(), wall=time.time() - 1000.0)
    journal.stop()
    recent = runs.segments(tmp_path)[0]
    shutil.copy(recent.path, old / recent.path.name)
    (old / "notes.txt").write_text("not ours")
    _, second = started(tmp_path, JournalBounds(), wall=time.time() - 1000.0)
    second.stop()
    assert {segment.run for segment in runs.segments(tmp_path)} == {journal.run.run, second.run.run}
    assert list(old.iterdir()) == [old / "notes.txt"]


def test_connections_are_forgotten_once_their_rows_are_written(tmp_path: Path) -> None:
    world, journal = started(tmp_path)
    for _ in range(50):
        world.client().close()
        journal.tick()
    world.client()
    journal.tick()
    until(lambda: not journal.recorder.queue.chunks)
    world.client()
    journal.tick()
    until(lambda: len(journal.recorder.peers) <= 4)
    journal.stop()
    peers = [row["peer"] for row in everything(tmp_path) if row.get("connection")]
    assert peers and all(peer == "scripted" for peer in peers)


def test_off_wants_nothing() -> None:
    recorder = JournalRecorder(Run("x", 1, 0.0), Levels(schema.OFF))
    assert not recorder.wants_requests and not recorder.wants_messages
