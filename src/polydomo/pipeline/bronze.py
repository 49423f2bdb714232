"""The journal as DataFrames, and what a run must know about its rows before it computes tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.pipeline.combined import Combined
from polydomo.pipeline.sql import (
    BRIDGE,
    BROKERS_OWN,
    GATHER,
    by_run,
    describe,
    gathered,
    hour_of,
    is_gathered,
    is_local,
    sql,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTHING = {schema.TEXT: "''", schema.BYTES: "X''"}
BLOCK = 60  # keys in a block: a block of keys that occur is the bits of a long


@dataclass
class JournalFrames:
    """The segments of a batch as DataFrames, between two times."""

    spark: "SparkSession"
    combined: Combined = field(default_factory=Combined)
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        self._frames: dict[tuple[str, ...], DataFrame] = {}
        self._lock = Lock()  # the audit runs in a thread of its own

    def frame(self, kind: str, paths: Sequence[str]) -> "DataFrame":
        """The rows of segments, with the columns of the current version; what a segment lacks is empty."""
        with self._lock:
            key = kind, *paths
            if key not in self._frames:
                self._frames[key] = self._frame(kind, paths)
            return self._frames[key]

    def _frame(self, kind: str, paths: Sequence[str]) -> "DataFrame":
        if not paths:
            return empty(self.spark, schema.ddl(kind))
        if is_gathered(self.spark) and is_local(self.spark):
            paths = self.combined.files(kind, paths, lambda some, place: self._write(kind, some, place))
        made = frame(self.spark, kind, paths)
        for moment, sign in ((self.since, ">="), (self.until, "<=")):
            if moment is not None:
                made = made.where(f"time {sign} timestamp'{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'")
        return made

    def _write(self, kind: str, paths: Sequence[str], place: str) -> None:
        describe(self.spark, f"journal: {kind} of an hour in one file")
        frame(self.spark, kind, paths).write.option("compression", "snappy").parquet(place)


def frame(spark: "SparkSession", kind: str, paths: Sequence[str]) -> "DataFrame":
    columns = []
    for column in schema.COLUMNS[kind]:
        if column.since > 1 and column.type != schema.TIME:
            columns.append(f"coalesce({column.name}, {_NOTHING.get(column.type, '0')}) AS {column.name}")
        else:
            columns.append(column.name)
    return gathered(spark.read.schema(schema.ddl(kind)).parquet(*paths)).selectExpr(*columns)


def empty(spark: "SparkSession", ddl: str) -> "DataFrame":
    """A DataFrame without rows; Spark's optimizer removes joins with it."""
    from pyspark.sql.types import StructType

    fields: Any = StructType.fromDDL(ddl)
    made: DataFrame = spark.sql(
        "SELECT "
        + ", ".join(f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in fields)
        + " WHERE false"
    )
    return made


def local(spark: "SparkSession", ddl: str, rows: Iterable[Sequence[Any]]) -> "DataFrame":
    """A small DataFrame of the driver, in any number of partitions."""
    import pyarrow as pa

    from polydomo.pipeline.tables.table import arrow_type

    found = list(rows)
    if not found:
        return empty(spark, ddl)
    fields = [part.split(" ", 1) for part in ddl.split(", ")]
    columns = zip(*found, strict=True)
    made = [pa.array(column, arrow_type(kind)) for column, (_, kind) in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(dict(zip([name for name, _ in fields], made, strict=True))))


# --- the contents of the journal in blocks of its sequence ---------------------------------------------------------------

# A flow has ended: its nodes may have rows in all hours since its start.
ENDED = "event = 'flow' AND outcome IN ('done', 'failed', 'cancelled')"
# Rows of the life of workers and runs, and statements of losses: few.
IS_LIFE = f"(event IN ('{schema.REGISTERED}', '{schema.LEFT}', '{schema.LOST}') AND worker > 0 OR covers_run != 0)"
_ONLY = ", ".join(repr(event) for event in schema.ONLY_MESSAGES)
_COUNTED = {
    "steps": "event IN ('requeued', 'forwarded')",
    "bridge_steps": f"event IN ('requeued', 'forwarded') AND protocol = '{BRIDGE}'",
    "shared": "event IN ('memo', 'keyed')",
    "logs": "event = 'log'",
    "asking": "event = 'log' AND number != 0",
    "published": "event = 'published'",
    "jobs": "event = 'job'",
    "flows": ENDED,
    "once": "once != '' OR flow != ''",
    "bodies": "length(body) > 0",
    "lives": IS_LIFE,
}
COUNTS = (*_COUNTED, "parts", "bridges")
# Requests of which an hour needs messages of earlier hours: they may have been requeued or forwarded then, or share a run.
BACK = f"(dispatches > 1 OR hops > 0 OR (outcome != 'ok' AND dispatches > 0) OR worker_protocol IN {BROKERS_OWN})"
BASE = "/*base*/"  # the sequence number up to which the rows of a run were audited
PROBE = f"""
SELECT run, broker, h, fresh, seq div {BLOCK} AS block, bit_or(shiftleft(1L, int(seq % {BLOCK}))) AS mask, count(*) AS n, min(us) AS first,
    max(us) AS last, max(level) AS level, sum(stopped) AS stopped, sum(started) AS started, max(checked) AS checked, min(back) AS back,
        min(flow_back) AS flow_back,
        {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}
FROM (SELECT {GATHER} * FROM (
    SELECT run, broker, {hour_of("time")} AS h, seq > base AS fresh, seq, unix_micros(time) AS us,
        IF(level = '{schema.MESSAGES}' OR event IN ({_ONLY}), 2, 1) AS level, int(event = 'stopped') AS stopped,
        int(event = 'started') AS started,
        int(event = '{schema.ACCESS}') AS checked, CAST(NULL AS BIGINT)
            AS back,
        IF({ENDED} AND {hour_of("created")} < {hour_of("time")}, {hour_of("created")}, NULL) AS flow_back,
        {", ".join(f"int({text}) AS {name}" for name, text in _COUNTED.items())}, 0 AS parts, 0 AS bridges
    FROM (SELECT *, {BASE} AS base FROM {{messages}})
    UNION ALL
    SELECT run, broker, {hour_of("time")}, seq > base, seq, unix_micros(time), 1, 0, 0, 0,
        IF({BACK} AND {hour_of("accepted")} < {hour_of("time")}, {hour_of("accepted")}, NULL), NULL, {", ".join("0" for _ in _COUNTED)},
        int(parent != ''), int(worker_protocol = '{BRIDGE}')
    FROM (SELECT *, {BASE} AS base FROM {{records}})
))
GROUP BY run, broker, h, fresh, block
"""


def based(text: str, bases: Mapping[int, int]) -> str:
    """The query with the bases of runs: those that are not named have 0."""
    return text.replace(BASE, by_run(bases))


def probe(messages: "DataFrame", records: "DataFrame", bases: Mapping[int, int]) -> list[dict[str, Any]]:
    """A row for each run, hour and block of sequence numbers. ``fresh`` rows come after the run's base: they were not audited yet."""
    rows: list[dict[str, Any]] = sql(based(PROBE, bases), messages=messages, records=records).toArrow().to_pylist()
    return rows


LIVES = f"""
SELECT run, seq, unix_micros(time) AS us, event, worker, peer, protocol, principal, service, covers_run, covers_first, covers_last
FROM {{messages}}
WHERE {IS_LIFE} AND seq > {BASE}
"""


def lives(messages: "DataFrame", bases: Mapping[int, int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = sql(based(LIVES, bases), messages=messages).toArrow().to_pylist()
    rows.sort(key=lambda row: (row["run"], row["seq"]))
    return rows
