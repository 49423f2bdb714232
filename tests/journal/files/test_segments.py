"""Segments by their names: which one supersedes which, and sets of sequence numbers."""

import itertools
import random
from pathlib import Path

from polydomo.journal.files.segments import Ranges, current, parse, segment_name, successor, superseded


def test_ranges_hold_what_was_added() -> None:
    dice = random.Random(7)
    for _ in range(200):
        ranges, numbers = Ranges(), set()
        for _ in range(dice.randrange(12)):
            first = dice.randrange(1, 60)
            last = first + dice.randrange(-1, 12)
            ranges.add(first, last)
            numbers |= set(range(first, last + 1))
        pairs = list(ranges)
        assert {n for first, last in pairs for n in range(first, last + 1)} == numbers
        assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(pairs))
        first = dice.randrange(1, 70)
        last = first + dice.randrange(12)
        wanted = set(range(first, last + 1))
        assert ranges.covers(first, last) == (wanted <= numbers)
        assert {n for a, b in ranges.missing(first, last) for n in range(a, b + 1)} == wanted - numbers


def test_a_segment_inside_a_larger_one_is_superseded() -> None:
    assert superseded([(1, 5), (6, 9), (10, 10)]) == set()
    assert superseded([(1, 5), (6, 9), (1, 9), (1, 20), (10, 10)]) == {(1, 5), (6, 9), (1, 9), (10, 10)}
    assert superseded([(1, 5), (1, 5)]) == set()


def test_only_segments_of_one_directory_and_run_supersede_each_other(tmp_path: Path) -> None:
    places = [
        ("kind=messages/date=2026-01-01/hour=00", 1, 1, 9),
        ("kind=messages/date=2026-01-01/hour=00", 1, 1, 5),
        ("kind=messages/date=2026-01-01/hour=00", 2, 1, 5),
        ("kind=messages/date=2026-01-01/hour=01", 1, 1, 5),
        ("kind=requests/date=2026-01-01/hour=00", 1, 1, 5),
    ]
    found = [parse(tmp_path / place / segment_name(run, first, last)) for place, run, first, last in places]
    segments = [segment for segment in found if segment is not None]
    assert [segment for segment in segments if segment not in current(segments)] == [segments[1]]


def test_the_successor_of_a_segment_holds_its_range(tmp_path: Path) -> None:
    for first, last in ((1, 9), (10, 30), (12, 20)):
        (tmp_path / segment_name(1, first, last)).touch()
    (tmp_path / segment_name(2, 1, 99)).touch()
    assert successor(tmp_path / segment_name(1, 12, 15)) == tmp_path / segment_name(1, 10, 30)
    assert successor(tmp_path / segment_name(1, 5, 12)) is None
    assert successor(tmp_path / "other.parquet") is None
