"""Segment names: run, sequence numbers, and which segment supersedes which.

A segment is ``kind=K/date=D/hour=H/RUN-FIRST-LAST.parquet``. Its name states exactly which sequence numbers it accounts
for. Small segments of an hour are merged into larger ones (``merge.py``), whose names have the same form. Therefore:

* Within one kind, hour and run, a segment whose range lies inside that of another one is superseded: readers skip it.
  Both are visible for a moment while a merge is published, and after a crash until the next start.
* A reader that remembers what it has read remembers ranges of sequence numbers (``Ranges``), not file names.
* A segment that was listed and is gone when it is opened has a successor, which holds its rows among others. If there
  is none, retention has removed it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from polydomo.journal.ids import decode, run_name

SEGMENT = re.compile(r"(\.?)([0-9A-Z]{8})-(\d{12})-(\d{12})\.parquet")

Range = tuple[int, int]  # the first and the last sequence number


class Segment(NamedTuple):
    path: Path
    hidden: bool  # not published yet
    run: int
    first: int
    last: int

    @property
    def kind(self) -> str:
        return self.path.parts[-4].removeprefix("kind=")

    @property
    def hour(self) -> str:
        """Its directories, which sort by time: ``date=2026-01-31/hour=07``."""
        return f"{self.path.parts[-3]}/{self.path.parts[-2]}"

    @property
    def range(self) -> Range:
        return self.first, self.last


def segment_name(run: int, first: int, last: int) -> str:
    return f"{run_name(run)}-{first:012d}-{last:012d}.parquet"


def parse(path: Path) -> Segment | None:
    """Parses the name of a segment; None if the file is not a segment."""
    match = SEGMENT.fullmatch(path.name)
    return Segment(path, bool(match[1]), decode(match[2]), int(match[3]), int(match[4])) if match else None


def segments(directory: Path, run: int | None = None, hidden: bool = False) -> list[Segment]:
    """The published segments (or the hidden ones) of all runs or of one, in no order, without superseded ones."""
    found = all_segments(directory, run, hidden)
    return found if hidden else current(found)


def all_segments(directory: Path, run: int | None = None, hidden: bool = False) -> list[Segment]:
    """The same with superseded ones."""
    name = "*" if run is None else run_name(run)
    paths = directory.glob(f"kind=*/date=*/hour=*/{'.' if hidden else ''}{name}-*.parquet")
    return [segment for segment in map(parse, paths) if segment is not None and segment.hidden == hidden]


def current(found: Iterable[Segment]) -> list[Segment]:
    """The segments that no other one supersedes."""
    groups: dict[tuple[Path, int], list[Segment]] = {}
    for segment in found:
        groups.setdefault((segment.path.parent, segment.run), []).append(segment)
    kept: list[Segment] = []
    for group in groups.values():
        old = superseded(segment.range for segment in group) if len(group) > 1 else ()
        kept += [segment for segment in group if segment.range not in old] if old else group
    return kept


def superseded(ranges: Iterable[Range]) -> set[Range]:
    """Those of the ranges (of one kind, hour and run) that lie inside another one.

    >>> sorted(superseded([(1, 5), (6, 9), (1, 9), (10, 12)]))
    [(1, 5), (6, 9)]
    """
    old: set[Range] = set()
    reach = 0
    for first, last in sorted(set(ranges), key=lambda pair: (pair[0], -pair[1])):
        if last <= reach:
            old.add((first, last))
        else:
            reach = last
    return old


def successor(path: Path) -> Path | None:
    """The merged segment that has the rows of a removed one; None if there is none."""
    gone = parse(path)
    if gone is None:
        return None
    covering = [
        segment
        for segment in map(parse, path.parent.glob(f"{run_name(gone.run)}-*.parquet"))
        if segment is not None and segment.first <= gone.first and gone.last <= segment.last
    ]
    return max(covering, key=lambda segment: segment.last - segment.first).path if covering else None


class Ranges:
    """A set of sequence numbers, as ranges that neither overlap nor touch."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int, last: int) -> None:
        """
        >>> ranges = Ranges([(1, 3), (7, 9)])
        >>> ranges.add(4, 6)
        >>> list(ranges)
        [(1, 9)]
        """
        if last < first:
            return
        begin = bisect_right(self._lasts, first - 2)  # the first one that reaches or touches the new one
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def covers(self, first: int, last: int) -> bool:
        i = bisect_right(self._firsts, first) - 1
        return i >= 0 and last <= self._lasts[i]

    def missing(self, first: int, last: int) -> list[Range]:
        """Which of the numbers from ``first`` to ``last`` are not in the set.

        >>> Ranges([(3, 4), (8, 20)]).missing(1, 10)
        [(1, 2), (5, 7)]
        """
        made = []
        at = first
        for begin, end in self:
            if end < at:
                continue
            if begin > last:
                break
            if begin > at:
                made.append((at, begin - 1))
            at = end + 1
        if at <= last:
            made.append((at, last))
        return made


def journal_in(directory: Path) -> Path:
    """The journal in this directory: the directory itself, or ``journal`` in it if a broker's data directory was named."""
    inside = directory / "journal"
    return inside if inside.is_dir() and not any(directory.glob("kind=*")) else directory
