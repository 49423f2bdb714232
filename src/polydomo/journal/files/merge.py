"""Merges the small segments of an hour into a few large ones.

A broker closes a segment every few seconds, so that a crash loses little. Readers prefer few large files. When an hour is over, its
segments are merged, batch by batch over both kinds, as far as the sequence has no gap:

1. the merged files of all kinds are written under hidden names, and synced;
2. they are renamed: from then on they supersede their parts for every reader (``segments.py``);
3. the parts are removed.

A process that is killed before the first rename has changed nothing. After it, the next start (or the next
``polydomo journal compact``) completes the rest. The footer of a merged file names its parts (``polydomo.parts``), and
only files that it names are removed.
"""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo import limits
from polydomo.journal import schema
from polydomo.journal.files.parquet import file_writer, publish_files, sync
from polydomo.journal.files.seal import read_sealed, seal
from polydomo.journal.files.segments import Range, Segment, all_segments, current
from polydomo.journal.reading.reader import conform

PARTS = b"polydomo.parts"  # in the footer of a merged segment: FIRST-LAST,FIRST-LAST,...

Step = Callable[[str], None]


class Unreadable(Exception):
    """A part cannot be merged: it stays as it is."""

    def __init__(self, segment: Segment, why: str) -> None:
        super().__init__(f"{segment.path}: {why}")
        self.segment = segment
        self.why = why


@dataclass
class SegmentGroup:
    """The files of one range of a run in one hour, at most one of each kind."""

    hour: str
    run: int
    first: int
    last: int
    files: list[Segment] = field(default_factory=list)
    bytes: int = 0

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


def batches(found: Iterable[tuple[Segment, int]]) -> list[SegmentGroup]:
    """Segments and their sizes as batches, in order of hour, run and sequence."""
    made: dict[tuple[str, int, int, int], SegmentGroup] = {}
    for segment, size in found:
        key = (segment.hour, segment.run, segment.first, segment.last)
        batch = made.setdefault(key, SegmentGroup(*key))
        batch.files.append(segment)
        batch.bytes += size
    return [made[key] for key in sorted(made)]


def plan(found: Iterable[SegmentGroup]) -> list[list[SegmentGroup]]:
    """Groups of small batches, each to become one. Batches must be ordered; a hole in the sequence ends a group."""
    groups: list[list[SegmentGroup]] = []
    group: list[SegmentGroup] = []
    rows = size = 0
    for batch in found:
        small = batch.bytes < limits.JOURNAL_SMALL and batch.rows < limits.JOURNAL_MERGED_ROWS
        follows = bool(group) and (group[-1].hour, group[-1].run, group[-1].last + 1) == (
            batch.hour,
            batch.run,
            batch.first,
        )
        fits = rows + batch.rows <= limits.JOURNAL_MERGED_ROWS and size + batch.bytes <= limits.JOURNAL_MERGED_BYTES
        if not (small and follows and fits):
            groups.append(group)
            group, rows, size = [], 0, 0
        if small:
            group.append(batch)
            rows += batch.rows
            size += batch.bytes
    groups.append(group)
    return [group for group in groups if len(group) > 1]


def without(group: list[SegmentGroup], segment: Segment) -> list[SegmentGroup]:
    """The group without the batch that has this segment."""
    return [batch for batch in group if segment not in batch.files]


def merge(
    group: list[SegmentGroup], between: Callable[[], None] = lambda: None, step: Step = lambda name: None
) -> list[Segment]:
    """Merges these batches into one. ``between`` is called after each part that was read; an exception from it aborts the merge without
    changes."""
    first, last = group[0].first, group[-1].last
    parts: dict[str, list[Segment]] = {}
    for batch in group:
        for segment in batch.files:
            parts.setdefault(segment.kind, []).append(segment)
    folders = {kind: found[0].path.parent for kind, found in parts.items()}
    made = publish_files(
        folders, group[0].run, first, last, lambda path, kind: _write(path, kind, parts[kind], between), step
    )
    for found in parts.values():
        for segment in found:
            segment.path.unlink(missing_ok=True)
            step(f"removed {segment.path}")
    return made


def _write(path: Path, kind: str, parts: list[Segment], between: Callable[[], None]) -> None:
    names = ",".join(f"{segment.first}-{segment.last}" for segment in parts)
    gathered: list[Any] = []
    rows = 0
    with file_writer(path, kind, schema.arrow(kind), parts=names) as writer:
        for segment in parts:
            gathered.append(_read(segment, kind))
            rows += gathered[-1].num_rows
            if rows >= limits.JOURNAL_ROLL_ROWS:
                _put(writer, gathered)
                rows = 0
            between()
        _put(writer, gathered)
    seal(path)
    _permit_like(parts[0].path, path)
    sync(path)


def _read(segment: Segment, kind: str) -> Any:
    try:
        file = pq.ParquetFile(pa.BufferReader(read_sealed(segment.path)))
        version = int((file.metadata.metadata or {}).get(b"polydomo.version", b"1"))
        if version > schema.VERSION:
            raise Unreadable(segment, f"version {version} of the schema is newer than this program's, {schema.VERSION}")
        return conform(file.read(), kind)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise Unreadable(segment, str(error).splitlines()[0]) from error


def _permit_like(part: Path, path: Path) -> None:
    """Gives the merged file the owner of its parts."""
    known = part.stat()
    path.chmod(stat.S_IMODE(known.st_mode))
    if (known.st_uid, known.st_gid) != (os.getuid(), os.getgid()) and os.getuid() == 0:
        os.chown(path, known.st_uid, known.st_gid)


def _put(writer: Any, gathered: list[Any]) -> None:
    """One row group."""
    if gathered:
        table = pa.concat_tables(gathered)
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        gathered.clear()


def parts_of(path: Path) -> set[Range]:
    """The ranges that a merged segment was made of; none if it is not a merged one."""
    file = pq.ParquetFile(pa.BufferReader(read_sealed(path)))
    text = (file.metadata.metadata or {}).get(PARTS, b"").decode()
    return {(int(first), int(last)) for first, _, last in (name.partition("-") for name in text.split(",") if name)}


def remove_superseded(directory: Path) -> list[str]:
    """Removes parts that a killed merge left behind. Returns a line about each file that looks like a part but is not."""
    found = all_segments(directory)
    kept = current(found)
    old = set(found) - set(kept)
    beside: dict[tuple[Path, int], list[Segment]] = {}
    for segment in kept if old else ():
        beside.setdefault((segment.path.parent, segment.run), []).append(segment)
    problems = []
    for segment in sorted(old):
        owner = next(
            one
            for one in beside[segment.path.parent, segment.run]
            if one.first <= segment.first and segment.last <= one.last
        )
        if segment.range in parts_of(owner.path):
            segment.path.unlink(missing_ok=True)
        else:
            problems.append(f"{segment.path}: lies inside {owner.path.name}, which was not made of it: it is not read")
    return problems
