"""Retention: removes the oldest segments when the journal is too large or they are too old.

The wall clock can be wrong: a step of 40 days must not delete a month of history. ``AgeClock`` therefore starts at the time of the newest
row on disk and runs with monotonic time. It follows the wall clock only after the wall clock has been steady for ``JOURNAL_CLOCK_TRUST``
seconds.
"""

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from polydomo import limits
from polydomo.journal.files.segments import Segment, segments

Key = tuple[str, int, int]  # of a batch: its hour, its run, its first sequence number
HOUR = 3600.0  # seconds; segments are kept in directories by the hour


class JournalBounds(NamedTuple):
    roll_rows: int = limits.JOURNAL_ROLL_ROWS
    roll_bytes: int = limits.JOURNAL_ROLL_BYTES
    roll_seconds: float = limits.JOURNAL_ROLL_SECONDS
    keep_bytes: int = limits.JOURNAL_KEEP_BYTES
    keep_age: float = limits.JOURNAL_KEEP_AGE
    merge: bool = True  # merge the small segments of past hours


class AgeClock:
    """The clock for the age of segments, in seconds since the epoch.

    >>> clock = AgeClock(newest=1_000_000.0, wall=1_000_060.0, monotonic=0.0)
    >>> clock.read(1_000_070.0, 10.0)
    1000070.0
    >>> clock.read(1_000_080.0 + 40 * 86_400, 20.0)  # a step of 40 days
    1000080.0
    """

    def __init__(self, newest: "float | None", wall: float, monotonic: float) -> None:
        self._offset = wall - monotonic
        self._since = monotonic  # when the wall clock was last seen to jump
        self._last = monotonic
        self._time = wall
        self.doubted = False  # the wall clock is not followed now
        if newest is not None and abs(wall - newest) > limits.JOURNAL_CLOCK_GAP:
            # The broker was off for long, or the clock is wrong; wait until the clock has been steady.
            self._time = min(wall, newest)
            self.doubted = True

    def read(self, wall: float, monotonic: float) -> float:
        if abs(wall - monotonic - self._offset) > limits.JOURNAL_CLOCK_STEP:
            self.doubted = True
            self._since = monotonic
        self._offset = wall - monotonic  # a slow adjustment is not a step
        self._time += monotonic - self._last
        self._last = monotonic
        if not self.doubted or monotonic - self._since >= limits.JOURNAL_CLOCK_TRUST:
            self.doubted = False
            self._time = wall
        return min(self._time, wall)


class Removed(NamedTuple):
    """What one sweep removed."""

    files: int
    bytes: int
    until: str  # the hour of the newest of them
    why: str


class StoredSegments:
    """The segments on disk, oldest first, and their sizes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._batches: dict[Key, list[tuple[Segment, int]]] = {}  # files and their sizes
        self.bytes = 0
        self.list_again()

    def list_again(self) -> None:
        """Reads the directory, because other processes of the broker also write to it."""
        self._batches = {}
        self.bytes = 0
        modified: dict[Segment, int] = {}
        for segment in segments(self._directory):
            with contextlib.suppress(FileNotFoundError):  # another process has merged it
                modified[segment] = segment.path.stat().st_mtime_ns
        self.add(sorted(modified, key=lambda segment: (segment.hour, modified[segment])))

    @property
    def newest(self) -> "float | None":
        """The end of the last hour that has a segment, in seconds since the epoch."""
        if not self._batches:
            return None
        hour = max(key[0] for key in self._batches)
        return datetime.strptime(hour, "date=%Y-%m-%d/hour=%H").replace(tzinfo=UTC).timestamp() + HOUR

    def add(self, found: list[Segment]) -> None:
        for segment in found:
            try:
                size = segment.path.stat().st_size
            except FileNotFoundError:  # another process has merged it
                continue
            self._batches.setdefault((segment.hour, segment.run, segment.first), []).append((segment, size))
            self.bytes += size

    def of(self, runs: Iterable[int], until: str) -> list[tuple[Segment, int]]:
        """Segments and sizes of these runs, of hours before ``until``."""
        wanted = set(runs)
        return [
            file for (hour, run, _), files in self._batches.items() if run in wanted and hour < until for file in files
        ]

    def replace(self, parts: Iterable[Key], merged: list[Segment]) -> None:
        """A merged batch takes the place of its parts, so that it is removed when they would have been."""
        gone = set(parts)
        before, self._batches = self._batches, {}
        placed = not gone & before.keys()
        if placed:  # the parts were removed meanwhile: the merged batch is removed next
            self.add(merged)
        for key, files in before.items():
            if key not in gone:
                self._batches[key] = files
                continue
            self.bytes -= sum(size for _, size in files)
            if not placed:
                self.add(merged)
                placed = True

    def sweep(self, bounds: JournalBounds, now: float) -> Removed:
        """Removes the oldest batches until the journal is within its limits."""
        oldest = datetime.fromtimestamp(max(0.0, now - bounds.keep_age), UTC)
        limit = f"date={oldest:%Y-%m-%d}/hour={oldest:%H}"
        files = size = 0
        until = why = ""
        while self._batches:
            key = next(iter(self._batches))
            if key[0] < limit:
                why = why or "journal.keep_age"
            elif self.bytes > bounds.keep_bytes:
                why = "journal.keep_bytes"
            else:
                break
            until = key[0]
            for segment, length in self._batches.pop(key):
                path = segment.path
                self.bytes -= length
                size += length
                files += 1
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # if it is empty
        return Removed(files, size, until, why)
