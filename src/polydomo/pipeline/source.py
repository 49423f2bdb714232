"""The journal as a Spark data source: ``spark.read.format("polydomo")`` and ``spark.readStream.format("polydomo")``.

Reads segments of every schema version as rows of the current version, in batch or as a stream. The driver selects segments by the hours in
their names, the executors by the statistics in their footers. Options:

* ``path``: directories of journals, separated by commas;
* ``kind``: ``requests`` (the default) or ``messages``;
* ``since``, ``until``: ISO times, UTC unless they have an offset;
* ``service``, ``outcome``: exact values;
* ``pushdown``: ``true`` derives the same from the conditions of the query. It needs the Spark setting
  ``spark.sql.python.filterPushdown.enabled``; without it, Spark fails on sources that offer pushdown, so it is an option.

Options filter rows. Pushed-down conditions only select segments; Spark filters the rows.

Spark's own Parquet reader is faster if all segments have the same schema version. Use this source for several versions, to select segments,
and for streams (``Trigger.AvailableNow`` works).
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from polydomo import limits
from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.journal.files.segments import Segment, journal_in
from polydomo.journal.ids import run_name
from polydomo.journal.reading.reader import Reader, conform, open_segment, read_rows

WORDS = ("service", "outcome")  # columns of text that a filter can name
Offset = dict[str, int]  # run -> the last row that was read of it


@dataclass(frozen=True)
class RowFilter:
    """A filter on rows."""

    kind: str = schema.REQUESTS
    since: datetime | None = None
    until: datetime | None = None
    # The values of WORDS that match; without an entry, any value does.
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(options: Mapping[str, str]) -> "RowFilter":
        kind = options.get("kind", schema.REQUESTS)
        if kind not in schema.KINDS:
            raise SettingError(f"option kind: {kind!r} is none of {', '.join(schema.KINDS)}")
        since, until = (_moment(name, options.get(name)) for name in ("since", "until"))
        return RowFilter(kind, since, until, {name: (options[name],) for name in WORDS if name in options})

    def rows(self) -> Any:
        """The condition on rows, for pyarrow; None if there is none."""
        made = [pc.field("time") >= pa.scalar(self.since)] if self.since else []
        made += [pc.field("time") <= pa.scalar(self.until)] if self.until else []
        made += [pc.field(name).isin(list(values)) for name, values in self.words.items()]
        return reduce(and_, made) if made else None

    def may_be_in(self, metadata: Any) -> bool:
        """Whether a segment with this footer may have such rows, by the statistics of its columns."""
        return any(self._may_be_in_group(metadata.row_group(i)) for i in range(metadata.num_row_groups))

    def _may_be_in_group(self, group: Any) -> bool:
        bounds = {}
        for column in map(group.column, range(group.num_columns)):
            known = column.statistics
            if known is not None and known.has_min_max:
                bounds[column.path_in_schema] = (known.min, known.max)
        low, high = bounds.get("time", (None, None))
        if self.since and high is not None and _aware(high) < self.since:
            return False
        if self.until and low is not None and _aware(low) > self.until:
            return False
        return all(
            any(bounds[name][0] <= value <= bounds[name][1] for value in values)
            for name, values in self.words.items()
            if name in bounds
        )

    def narrowed(self, filters: Iterable[Filter]) -> "RowFilter":
        """This filter combined (AND) with the conditions of a query."""
        made = self
        for one in filters:
            name = ".".join(getattr(one, "attribute", ()))
            value = getattr(one, "value", None)
            if name == "time" and isinstance(value, datetime):
                if isinstance(one, GreaterThan | GreaterThanOrEqual):
                    made = replace(made, since=max(_aware(value), made.since or _aware(value)))
                elif isinstance(one, LessThan | LessThanOrEqual):
                    made = replace(made, until=min(_aware(value), made.until or _aware(value)))
            elif name in WORDS and isinstance(one, EqualTo):
                made = replace(made, words={**made.words, name: (one.value,)})
            elif name in WORDS and isinstance(one, In):
                made = replace(made, words={**made.words, name: tuple(one.value)})
        return made


class JournalSource(DataSource):
    """``format("polydomo")``."""

    @classmethod
    def name(cls) -> str:
        return "polydomo"

    def schema(self) -> str:
        return schema.ddl(RowFilter.of(self.options).kind)

    def reader(self, schema: Any) -> DataSourceReader:
        kind = PushingReader if self.options.get("pushdown", "false").lower() == "true" else JournalReader
        return kind(self, RowFilter.of(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return JournalStreamReader(self, RowFilter.of(self.options))

    def find(self) -> list[str]:
        """The directories of the journals to read."""
        path = self.options.get("path", "")
        if not path:
            raise SettingError("format polydomo: name a journal with load(DIRECTORY) or with the option broker")
        found = []
        for name in path.split(","):
            directory = Path(name.strip().removeprefix("file://"))
            if not directory.is_dir():
                raise SettingError(f"there is no journal in {directory}: no such directory")
            found.append(str(journal_in(directory)))
        return found


@dataclass(frozen=True)
class Part:
    """One segment, or those of its rows whose sequence numbers lie after ``after`` and not after ``last``."""

    path: str
    rows: int  # at most
    after: int = 0
    last: int = 0  # 0: to the end


@dataclass
class Group(InputPartition):
    """The segments that one task reads."""

    parts: tuple[Part, ...]


class JournalReader(DataSourceReader):
    def __init__(self, source: JournalSource, wanted: RowFilter) -> None:
        self.source = source
        self.wanted = wanted  # which segments
        self.rows = wanted  # which rows of these

    def partitions(self) -> list[Group]:
        found = segments(self.source.find(), self.wanted)
        groups = grouped(Part(str(segment.path), segment.last - segment.first + 1) for segment in found)
        return groups or [Group(())]  # Spark replaces an empty list by a partition of its own class

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self.wanted, self.rows)


class PushingReader(JournalReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.wanted = self.wanted.narrowed(filters)
        return filters  # Spark filters the rows


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset says how far each run has been read: the segments of a run are published in the order of its sequence."""

    def __init__(self, source: JournalSource, wanted: RowFilter) -> None:
        self.source = source
        self.wanted = wanted
        self.target: Offset | None = None  # the last offset of a query with Trigger.AvailableNow

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._there()

    def _there(self) -> Offset:
        found: Offset = {}
        for segment in segments(self.source.find(), self.wanted):
            run = run_name(segment.run)
            found[run] = max(segment.last, found.get(run, 0))
        return found

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: Any) -> Offset:
        found = self._there() if self.target is None else self.target
        there = {run: max(last, start.get(run, 0)) for run, last in found.items()}
        # a run of which no segment is left is forgotten, so that offsets do not grow for ever; with nothing new the offset must not change
        fresh = any(last > start.get(run, 0) for run, last in there.items())
        return there if fresh else start

    def partitions(self, start: Offset, end: Offset) -> list[Group]:
        """A segment that was merged since the last batch may reach over an end of this one: then some of its rows are read."""
        between = []
        for segment in segments(self.source.find(), self.wanted):
            run = run_name(segment.run)
            after, last = start.get(run, 0), end.get(run, 0)
            if after < segment.last and segment.first <= last:
                low, high = after if segment.first <= after else 0, last if segment.last > last else 0
                between.append(Part(str(segment.path), segment.last - segment.first + 1, low, high))
        return grouped(between)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read(partition, self.wanted)


def segments(journals: Iterable[str], wanted: RowFilter) -> list[Segment]:
    """The segments of matching hours; a segment that is in several journals counts once."""
    known: dict[tuple[str, str], Segment] = {}
    for segment in Reader([Path(journal) for journal in journals]).find(wanted.kind, wanted.since, wanted.until):
        known.setdefault((segment.hour, segment.path.name), segment)
    return list(known.values())


def grouped(parts: Iterable[Part]) -> list[Group]:
    """Groups segments into tasks by rows: brokers write a segment every few seconds, and a task costs more than reading one."""
    made: list[Group] = []
    some: list[Part] = []
    rows = 0
    for part in parts:
        if some and rows + part.rows > limits.SOURCE_TASK_ROWS:
            made.append(Group(tuple(some)))
            some, rows = [], 0
        some.append(part)
        rows += part.rows
    return [*made, Group(tuple(some))] if some else made


def read(group: Group, wanted: RowFilter, rows: RowFilter | None = None) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of a group. Segments whose statistics rule out what is ``wanted`` are not read; their rows are filtered
    by ``rows``."""
    for part in group.parts:
        try:
            file, _ = open_segment(Path(part.path))
            if file is None or not wanted.may_be_in(file.metadata):
                continue  # retention has removed it since it was listed, or it has no such rows
            yield from _rows(part, rows or wanted)
        except (OSError, pa.ArrowException) as error:
            warnings.warn(f"{part.path}: skipped: cannot be read: {str(error).splitlines()[0]}", stacklevel=2)


def _rows(part: Part, wanted: RowFilter) -> Iterator[pa.RecordBatch]:
    found = read_rows(part.path)
    if found is None:
        return  # retention has removed it since it was listed
    table = conform(found, wanted.kind)
    condition = wanted.rows()
    if part.after:
        table = table.filter(pc.field("seq") > part.after)
    if part.last:
        table = table.filter(pc.field("seq") <= part.last)
    chosen = table.filter(condition) if condition is not None else table
    # Spark requires identical schemas, and all its columns are nullable
    yield from chosen.cast(pa.schema([pa.field(column.name, column.type) for column in chosen.schema])).to_batches()


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return _aware(datetime.fromisoformat(text))
    except ValueError:
        raise SettingError(f"option {name}: {text!r} is not a time such as 2026-01-31T07:30") from None
