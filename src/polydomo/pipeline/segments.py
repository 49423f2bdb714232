"""The journal as the pipeline finds it: segments by name, the same one seen twice counted once, odd and torn ones
named and left out.

Local directories are looked at from here, and every new segment's footer is read. Anything with a scheme (hdfs://,
s3a://) is looked at by Spark itself, which needs no library of ours for it and works over Spark Connect too.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo.errors import PolydomoError
from polydomo.journal import schema
from polydomo.journal.ids import decode
from polydomo.journal.segments import SEGMENT, Range, Ranges, superseded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE = re.compile(r"kind=(\w+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/([^/]+)$")
MAGIC = b"PAR1"  # both ends of a whole Parquet file


class NoJournal(PolydomoError):
    """There is no journal where it was said to be."""


@dataclass(frozen=True)
class Segment:
    path: str
    kind: str
    unit: str  # its hour: ``2026-01-31/07``
    name: str  # RUN-FIRST-LAST.parquet, the same in whatever directory it is
    run: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many rows it has at most, by its name."""
        return self.last - self.first + 1

    @property
    def id(self) -> str:
        """What the same segment has in common wherever it is seen."""
        return f"{self.kind}/{self.unit}/{self.name}"


@dataclass
class Found:
    """The segments of some journals. ``problems`` has a line about each file that was left out."""

    segments: list[Segment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def units(self) -> dict[str, list[Segment]]:
        """By hour, oldest first."""
        made: dict[str, list[Segment]] = {}
        for segment in sorted(self.segments, key=lambda segment: (segment.unit, segment.id)):
            made.setdefault(segment.unit, []).append(segment)
        return made


def has_scheme(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def find(
    spark: "SparkSession", journals: Sequence[str], since: datetime | None = None, until: datetime | None = None
) -> Found:
    """Every segment that may hold rows from ``since`` until ``until``."""
    found = Found()
    seen: dict[str, Segment] = {}
    first = f"{since:%Y-%m-%d/%H}" if since else ""
    last = f"{until:%Y-%m-%d/%H}" if until else "~"
    for journal in journals:
        paths = _remote(spark, journal) if has_scheme(journal) else _local(journal)
        for path in paths:
            segment = parse(path)
            if segment is None:
                found.problems.append(f"{path}: left out: not the name of a segment")
            elif first <= segment.unit <= last:
                seen.setdefault(segment.id, segment)
    found.segments = current(seen.values())
    return found


def current(found: Iterable[Segment]) -> list[Segment]:
    """Without those that were merged into another one."""
    groups: dict[tuple[str, str, int], list[Segment]] = {}
    for segment in found:
        groups.setdefault((segment.kind, segment.unit, segment.run), []).append(segment)
    kept = []
    for group in groups.values():
        old = superseded((segment.first, segment.last) for segment in group)
        kept += [segment for segment in group if (segment.first, segment.last) not in old]
    return kept


def ranges(ids: Iterable[str]) -> dict[tuple[str, int], Ranges]:
    """The sequence numbers that segments with these ids (of one hour) account for, by kind and run."""
    made: dict[tuple[str, int], Ranges] = {}
    for name in ids:
        segment = parse("kind={}/date={}/hour={}/{}".format(*name.split("/")))
        if segment is not None:
            made.setdefault((segment.kind, segment.run), Ranges()).add(segment.first, segment.last)
    return made


def covered(segment: Segment, known: Mapping[tuple[str, int], Ranges]) -> bool:
    there = known.get((segment.kind, segment.run))
    return there is not None and there.covers(segment.first, segment.last)


def merged_of(segment: Segment) -> list[Range]:
    """The parts of a merged segment on this machine, by its footer; none if it was not merged, or is elsewhere."""
    if has_scheme(segment.path):
        return []
    text = (pq.read_metadata(segment.path).metadata or {}).get(b"polydomo.parts", b"").decode()
    return [(int(a), int(b)) for a, _, b in (name.partition("-") for name in text.split(",") if name)]


def parse(path: str) -> Segment | None:
    place = PLACE.search(path)
    name = SEGMENT.fullmatch(place[4]) if place else None
    if place is None or name is None or place[1] not in schema.KINDS:
        return None
    return Segment(path, place[1], f"{place[2]}/{place[3]}", place[4], decode(name[2]), int(name[3]), int(name[4]))


def _local(journal: str) -> list[str]:
    directory = Path(journal.removeprefix("file://"))
    if not directory.is_dir():
        raise NoJournal(f"there is no journal in {directory}: no such directory")
    if not list(directory.glob("kind=*")) and (directory / "journal").is_dir():
        directory = directory / "journal"  # the data directory of a broker was named
    return [
        str(path.absolute())
        for path in sorted(directory.glob("kind=*/date=*/hour=*/*"))
        if not path.name.startswith((".", "_"))
    ]


def rows_at_most(journals: Sequence[str]) -> int | None:
    """How many rows the journals have, by the names of their segments; None if they are not all on this machine."""
    if any(map(has_scheme, journals)):
        return None
    found = {
        segment.id: segment for journal in journals for path in _local(journal) if (segment := parse(path)) is not None
    }
    return sum(segment.rows for segment in current(found.values()) if segment.kind == schema.MESSAGES)


def _remote(spark: "SparkSession", journal: str) -> list[str]:
    try:
        listed = (
            spark.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(journal.rstrip("/"))
            .select("path")
            .collect()
        )
    except Exception as error:  # each file system has its own
        raise NoJournal(f"there is no journal in {journal}: {str(error).splitlines()[0]}") from error
    return sorted(row.path for row in listed if "/kind=" in row.path)


def whole(spark: "SparkSession", segments: Iterable[Segment], problems: list[str]) -> list[Segment]:
    """Those of the segments that can be read; a line about each of the others goes to ``problems``."""
    good = []
    remote = []
    for segment in segments:
        if has_scheme(segment.path):
            remote.append(segment)
            continue
        try:
            footer = pq.read_metadata(segment.path)
            version = int((footer.metadata or {}).get(b"polydomo.version", b"1"))
        except FileNotFoundError:
            continue  # retention has taken it since it was found
        except (OSError, ValueError, pa.ArrowException) as error:
            problems.append(f"{segment.path}: left out: cannot be read: {str(error).splitlines()[0]}")
            continue
        if version > schema.VERSION:
            problems.append(
                f"{segment.path}: version {version} of the schema is newer than this program's: columns it does not know are not read"
            )
        elif version < schema.VERSION:
            line = f"some segments are of version {version} of the schema: columns that came later are nothing in their rows"
            problems.extend([] if line in problems else [line])
        good.append(segment)
    if remote:
        by_path = {segment.path: segment for segment in remote}
        ends = (
            spark.read.format("binaryFile")
            .load([*by_path])
            .selectExpr("path", "substring(content, 1, 4) AS head", "substring(content, -4, 4) AS tail")
        )
        for row in ends.collect():
            if bytes(row.head) == bytes(row.tail) == MAGIC:
                good.append(by_path[row.path])
            else:
                problems.append(f"{row.path}: left out: cannot be read: it is not a whole Parquet file")
    return good


def read(
    spark: "SparkSession",
    kind: str,
    segments: Sequence[Segment],
    since: datetime | None = None,
    until: datetime | None = None,
) -> "DataFrame":
    """The rows of one kind, of whatever version, with today's columns: what an earlier version lacks is nothing."""
    paths = [segment.path for segment in segments if segment.kind == kind]
    if not paths:
        return spark.createDataFrame([], schema.ddl(kind))
    rows = spark.read.schema(schema.ddl(kind)).parquet(*paths)
    columns = []
    for column in schema.COLUMNS[kind]:
        if column.since > 1 and column.type != schema.TIME:
            nothing = {schema.TEXT: "''", schema.BYTES: "X''"}.get(column.type, "0")
            columns.append(f"coalesce({column.name}, {nothing}) AS {column.name}")
        else:
            columns.append(column.name)
    rows = rows.selectExpr(*columns)
    if since is not None:
        rows = rows.where(f"time >= TIMESTAMP '{since:%Y-%m-%d %H:%M:%S.%f}+00:00'")
    if until is not None:
        rows = rows.where(f"time <= TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}+00:00'")
    return rows
