"""Merging keeps every row, if it is killed at any moment and while others read."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from polydomo.journal.files import merge, runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.files.segments import Segment, all_segments, segments
from polydomo.journal.ids import run_name
from polydomo.journal.journal import Journal
from polydomo.journal.reading.audit import holes
from polydomo.journal.reading.reader import Reader, read_rows
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.journal.files.test_writer import AGES, everything, kill, started, until
from tests.journal.stage import live

HOUR = 3600.0
WALL = 1_700_000_000 // 3600 * 3600 - 1000.0  # the world's clock begins at 1,000 s: the rows begin with an hour


def journal_of_small_segments(directory: Path, pieces: int = 12, bounds: JournalBounds | None = None) -> Journal:
    world, journal = started(
        directory, bounds or JournalBounds(keep_age=AGES, roll_seconds=1e9, roll_rows=1 << 60, merge=False), wall=WALL
    )
    for seed in range(pieces):
        live(world, seed, 30)
        world.broker.draining = False
        end = journal.flush()
        until(lambda end=end: journal.writer.closed >= end)
    journal.stop()
    return journal


def merge_all(directory: Path, step: Callable[[str], None] = lambda name: None) -> int:
    found = [(segment, segment.path.stat().st_size) for segment in segments(directory)]
    groups = merge.plan(merge.batches(found))
    for group in groups:
        merge.merge(group, step=step)
    return len(groups)


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["run"], row["seq"]))


def test_merged_segments_have_all_rows_and_say_what_they_are_made_of(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path)
    before, rows = segments(tmp_path), everything(tmp_path)
    assert merge_all(tmp_path) > 0
    after = segments(tmp_path)
    assert len(after) < len(before) / 3
    assert everything(tmp_path) == rows and holes(rows) == []
    for segment in after:
        old = {one.range for one in before if one.path.parent == segment.path.parent}
        inside = {(first, last) for first, last in old if segment.first <= first and last <= segment.last}
        assert merge.parts_of(segment.path) in (inside, set())
    assert merge_all(tmp_path) == 0  # nothing is left to do


def test_a_hole_in_the_sequence_is_not_bridged(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path)
    ranges = sorted({segment.range for segment in segments(tmp_path)})
    gap = ranges[len(ranges) // 2]
    for segment in segments(tmp_path):
        if segment.range == gap:
            segment.path.unlink()
    merge_all(tmp_path)
    assert all(not (s.first <= gap[0] and gap[1] <= s.last) for s in segments(tmp_path))


class Killed(BaseException):
    pass


def kill_at(number: int) -> Callable[[str], None]:
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Killed(name)

    return step


def test_killed_at_every_step_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path / "whole", 5)
    rows = everything(tmp_path / "whole")
    number = 0
    while True:
        directory = tmp_path / f"at-{number}"
        subprocess.run(["cp", "-r", str(tmp_path / "whole"), str(directory)], check=True)
        try:
            merge_all(directory, kill_at(number))
        except Killed:
            pass
        else:
            break
        assert everything(directory) == rows  # for readers, at that very moment
        runs.publish_rest(directory)
        assert everything(directory) == rows
        assert merge.remove_superseded(directory) == []
        assert not list(directory.glob("kind=*/**/.*")) and all_segments(directory) == segments(directory)
        assert everything(directory) == rows
        merge_all(directory)
        assert everything(directory) == rows
        number += 1
    assert number > 10


PROGRAM = """
import os, signal, sys
from pathlib import Path
from polydomo.journal.files import merge
from polydomo.journal.files.segments import segments
directory, number = Path(sys.argv[1]), int(sys.argv[2])
seen = 0
def step(name):
    global seen
    seen += 1
    if seen > number:
        os.kill(os.getpid(), signal.SIGKILL)
found = [(segment, segment.path.stat().st_size) for segment in segments(directory)]
for group in merge.plan(merge.batches(found)):
    merge.merge(group, lambda: step("part"), step)
"""


@pytest.mark.parametrize("number", [0, 7, 23, 40])
def test_a_process_killed_by_sigkill_loses_and_doubles_nothing(tmp_path: Path, number: int) -> None:
    journal_of_small_segments(tmp_path)
    rows = everything(tmp_path)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), str(number)])
    assert done.returncode == -9
    assert everything(tmp_path) == rows
    _, journal = started(tmp_path)  # the next start of a broker cleans up
    until(lambda: all_segments(tmp_path) == segments(tmp_path))
    journal.stop()
    assert not list(tmp_path.glob("kind=*/**/.*"))
    old = {row["run"] for row in rows}
    assert [row for row in everything(tmp_path) if row["run"] in old] == rows


def test_a_segment_that_was_listed_before_it_was_merged_can_still_be_read(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path)
    reader = Reader([tmp_path])
    listed = {kind: reader.find(kind) for kind in (MESSAGES, REQUESTS)}
    rows = everything(tmp_path)
    merge_all(tmp_path)
    for kind, found in listed.items():
        read = [row for one in found for row in _table(reader, one, kind).to_pylist()]
        assert by_key(read) == [row for row in rows if ("event" in row) == (kind == MESSAGES)]
        some = [read_rows(one.path, ["time"]) for one in found]
        assert sum(table.num_rows for table in some if table is not None) == len(read)
    assert reader.problems == []
    missing = next(iter(segments(tmp_path)))
    missing.path.unlink()
    assert read_rows(missing.path) is None and reader.read(missing, missing.kind) is None


def _table(reader: Reader, segment: Segment, kind: str) -> Any:
    table = reader.read(segment, kind)
    assert table is not None
    return table


def test_readers_see_the_same_rows_while_segments_are_merged(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path, 40)
    rows = everything(tmp_path)
    merging = threading.Thread(target=merge_all, args=(tmp_path,))
    merging.start()
    looks = 0
    while merging.is_alive() or looks < 3:
        assert everything(tmp_path) == rows
        looks += 1
    merging.join()


def test_a_part_that_cannot_be_read_stays_and_is_named(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path)
    torn = sorted(segments(tmp_path), key=lambda one: one.first)[4]
    torn.path.write_bytes(torn.path.read_bytes()[:-9])
    with pytest.raises(merge.Unreadable) as caught:
        merge_all(tmp_path)
    assert caught.value.segment.path == torn.path and str(torn.path) in str(caught.value)
    assert not list(tmp_path.glob("kind=*/**/.*")) and torn.path.exists()


def test_an_unrelated_file_inside_the_range_of_a_merged_one_is_kept(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path)
    merge_all(tmp_path)
    largest = max(segments(tmp_path), key=lambda one: one.last - one.first)
    stranger = largest.path.with_name(runs.segment_name(largest.run, largest.first + 1, largest.first + 1))
    stranger.write_bytes(largest.path.read_bytes())
    problems = merge.remove_superseded(tmp_path)
    assert len(problems) == 1 and str(stranger) in problems[0] and stranger.exists()


def test_the_broker_merges_an_hour_that_is_over(tmp_path: Path) -> None:
    bounds = JournalBounds(keep_age=AGES, roll_seconds=1e9, roll_rows=1 << 60)
    world, journal = started(tmp_path, bounds, wall=WALL)
    for seed in range(5):
        live(world, seed, 20)
        world.broker.draining = False
        end = journal.flush()
        until(lambda end=end: journal.writer.closed >= end)
    first = min(segment.hour for segment in segments(tmp_path))
    in_first = [segment for segment in segments(tmp_path) if segment.hour == first and segment.kind == MESSAGES]
    assert len(in_first) == 5  # the hour under way is left alone
    world.wait(HOUR)
    world.client().ask()
    journal.flush()
    until(lambda: sum(one.hour == first and one.kind == MESSAGES for one in all_segments(tmp_path)) == 1)
    journal.stop()
    rows = everything(tmp_path)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)) and holes(rows) == []
    size = sum(segment.path.stat().st_size for segment in segments(tmp_path))
    assert journal.writer._kept.bytes == size


def test_the_broker_merges_what_the_run_before_left(tmp_path: Path) -> None:
    first = journal_of_small_segments(tmp_path)
    rows = everything(tmp_path)
    _, second = started(tmp_path)
    until(lambda: len({s.range for s in all_segments(tmp_path, first.run.run)}) <= 2)
    second.stop()
    assert [row for row in everything(tmp_path) if row["run"] == first.run.run] == rows


def test_a_killed_broker_lost_nothing_more_for_having_merged(tmp_path: Path) -> None:
    world, journal = started(tmp_path, JournalBounds(keep_age=AGES, roll_seconds=1e9, roll_rows=1 << 60), wall=WALL)
    for seed in range(3):
        live(world, seed, 20)
        world.broker.draining = False
        world.wait(HOUR)
        end = journal.flush()
        until(lambda end=end: journal.writer.closed >= end)
    kill(journal)
    _, second = started(tmp_path)
    second.stop()
    rows = everything(tmp_path)
    assert holes(rows) == []
    assert {row["run"] for row in rows} == {journal.run.run, second.run.run}
    assert run_name(journal.run.run) in next(row["reason"] for row in rows if row["run"] == second.run.run)


def test_merged_files_are_ordinary_parquet(tmp_path: Path) -> None:
    import duckdb

    journal_of_small_segments(tmp_path)
    count = len([row for row in everything(tmp_path) if "event" in row])
    merge_all(tmp_path)
    found = duckdb.connect().execute(f"SELECT count(*) FROM '{tmp_path}/kind=messages/**/*.parquet'").fetchone()
    assert found == (count,)
    assert sum(pq.read_metadata(s.path).num_rows for s in segments(tmp_path) if s.kind == MESSAGES) == count
