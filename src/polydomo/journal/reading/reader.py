"""The reader: segments of every schema version as rows of the current one, and one line about each segment that cannot be read.

Segments are found by kind, date, hour and run in their names: a query for ten minutes opens only the files of that hour.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polydomo.journal import schema
from polydomo.journal.files.seal import Damaged, read_sealed
from polydomo.journal.files.segments import Segment, parse, segments, successor
from polydomo.journal.ids import run_name

Row = dict[str, Any]


@dataclass
class Reader:
    """One or more journals. ``problems`` has one line about each segment that could not be read."""

    directories: Sequence[Path]
    problems: list[str] = field(default_factory=list)

    def find(
        self, kind: str, since: datetime | None = None, until: datetime | None = None, run: int | None = None
    ) -> list[Segment]:
        """The segments that can have rows of this kind from ``since`` until ``until``, oldest first."""
        found = []
        first = f"date={since:%Y-%m-%d}/hour={since:%H}" if since else ""
        last = f"date={until:%Y-%m-%d}/hour={until:%H}" if until else "~"
        for directory in self.directories:
            for segment in segments(directory, run):
                if segment.kind == kind and first <= segment.hour <= last:
                    found.append(segment)
        return sorted(found, key=lambda segment: (segment.hour, segment.run, segment.first))

    def tables(
        self,
        kind: str,
        since: datetime | None = None,
        until: datetime | None = None,
        run: int | None = None,
        where: Any = None,
    ) -> Iterator[pa.Table]:
        """Segment by segment, the rows for which ``where`` (an expression of pyarrow.compute) holds."""
        condition = _within(where, since, until)
        for segment in self.find(kind, since, until, run):
            table = self._read(segment, kind, condition)
            if table is not None and table.num_rows:
                yield table

    def hours(
        self, kind: str, since: datetime | None, until: datetime | None, where: Any
    ) -> Iterator[tuple[datetime, pa.Table]]:
        """The same hour by hour, the newest first, with the time at which the hour begins."""
        condition = _within(where, since, until)
        for hour, found in groupby(reversed(self.find(kind, since, until)), key=lambda segment: segment.hour):
            tables = [self._read(segment, kind, condition) for segment in found]
            begin = datetime.strptime(hour, "date=%Y-%m-%d/hour=%H").replace(tzinfo=UTC)
            yield (
                begin,
                pa.concat_tables(
                    [table for table in tables if table is not None] or [schema.arrow(kind).empty_table()]
                ),
            )

    def rows(
        self,
        kind: str,
        since: datetime | None = None,
        until: datetime | None = None,
        run: int | None = None,
        where: Any = None,
    ) -> list[Row]:
        """The same as rows in the order of run and sequence."""
        found = [row for table in self.tables(kind, since, until, run, where) for row in table.to_pylist()]
        found.sort(key=lambda row: (row["run"], row["seq"]))
        return found

    def last_run(self) -> int | None:
        """The run of the newest segment."""
        known = [segment for directory in self.directories for segment in segments(directory)]
        newest = max(known, key=lambda segment: (segment.hour, segment.path.stat().st_mtime_ns), default=None)
        return newest.run if newest is not None else None

    def about(self, kind: str, run: int, numbers: Sequence[int], since: datetime | None = None) -> list[Row]:
        """The rows about these requests of a run; segments whose statistics rule them out are not read."""
        found = []
        where = pc.field("number").isin(list(numbers))
        for segment in self.find(kind, since, run=run):
            table = self._read(segment, kind, where, numbers)
            if table is not None:
                found += table.to_pylist()
        found.sort(key=lambda row: int(row["seq"]))
        return found

    def read(self, segment: Segment, kind: str) -> pa.Table | None:
        """One segment; None, and a problem, if it cannot be read."""
        return self._read(segment, kind, None)

    def _read(self, segment: Segment, kind: str, where: Any, numbers: Sequence[int] = ()) -> pa.Table | None:
        try:
            file, path = open_segment(segment.path)
            if file is None:
                return None  # retention has removed it since it was found
            written = int((file.metadata.metadata or {}).get(b"polydomo.version", b"1"))
            if written > schema.VERSION:
                self.problems.append(
                    f"{segment.path}: version {written} of the schema is newer than this program's, {schema.VERSION}"
                )
            if numbers and not _may_hold(file.metadata, min(numbers), max(numbers)):
                return None
            table = conform(within(file.read(), segment, path), kind)
        except Damaged as error:
            missing = f"rows {segment.first} to {segment.last} of run {run_name(segment.run)} are missing"
            self.problems.append(f"{segment.path}: cannot be read: {error}; {missing}")
            return None
        except (OSError, ValueError, pa.ArrowException) as error:
            self.problems.append(f"{segment.path}: cannot be read: {str(error).splitlines()[0]}")
            return None
        return table.filter(where) if where is not None else table


def _within(where: Any, since: datetime | None, until: datetime | None) -> Any:
    """The condition ``where`` for rows of this time."""
    for bound in (
        pc.field("time") >= pa.scalar(since) if since else None,
        pc.field("time") <= pa.scalar(until) if until else None,
    ):
        if bound is not None:
            where = bound if where is None else where & bound
    return where


def verified(path: Path) -> Any:
    """The Parquet file of a segment, whose checksum is right. Raises Damaged."""
    return pq.ParquetFile(pa.BufferReader(read_sealed(path)))


def open_segment(path: Path) -> tuple[Any, Path]:
    """The file that holds a segment's rows: its own, or the merged one that has replaced it since it was listed. None if it is gone."""
    try:
        return verified(path), path
    except FileNotFoundError:
        pass
    for _ in range(3):  # the successor may itself be merged before it is opened
        later = successor(path)
        if later is None:
            break
        try:
            return verified(later), later
        except FileNotFoundError:
            continue
    return None, path


def within(table: pa.Table, segment: Segment, path: Path) -> pa.Table:
    """Of the rows of a merged file, those of the segment that was asked for."""
    if path == segment.path:
        return table
    return table.filter((pc.field("seq") >= segment.first) & (pc.field("seq") <= segment.last))


def read_rows(path: Path | str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """The rows of one segment as they stand in the file, even if it was merged since it was listed. None if retention removed it."""
    segment = parse(Path(path))
    file, found = open_segment(Path(path))
    if file is None:
        return None
    if segment is None or found == segment.path:
        return file.read(columns=list(columns) if columns is not None else None)
    wanted = None if columns is None else [*columns, *([] if "seq" in columns else ["seq"])]
    table = within(file.read(columns=wanted), segment, found)
    return table if columns is None else table.select(list(columns))


def _may_hold(metadata: Any, least: int, most: int) -> bool:
    """Whether a segment may have rows about a request with a number from ``least`` to ``most``."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for i in range(row_group.num_columns):
            column = row_group.column(i)
            if column.path_in_schema == "number":
                known = column.statistics
                if known is None or not known.has_min_max or (known.min <= most and known.max >= least):
                    return True
    return metadata.num_row_groups > 0 and not any(
        metadata.row_group(0).column(i).path_in_schema == "number" for i in range(metadata.row_group(0).num_columns)
    )


def conform(table: pa.Table, kind: str) -> pa.Table:
    """A table of another version with the columns of the current one: missing columns get their empty value, unknown ones are dropped."""
    columns = []
    for column, wanted in zip(schema.COLUMNS[kind], schema.arrow(kind), strict=True):
        if column.name in table.schema.names:
            values = table[column.name].cast(wanted.type)
            if values.null_count and column.type != schema.TIME:
                values = values.fill_null(column.nothing)
        elif column.type == schema.TIME:
            values = pa.nulls(table.num_rows, wanted.type)
        else:
            values = pa.repeat(pa.scalar(column.nothing, wanted.type), table.num_rows)
        columns.append(values)
    return pa.table(columns, schema=schema.arrow(kind))


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
