"""``spark.readStream.format("polydomo")`` with the option ``subscribe``, ``jobs`` or ``logs``: data of a live broker as a stream.

A thread of the driver reads from the broker and writes to a spool on the driver's disk (``feeds.py``, ``spool.py``). Spark's offsets are
row numbers of the spool, so a batch can be repeated after a restart. If something may be missing, a row with ``gap`` says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import SPARK_HEARD
from polydomo.spark.feeds import Feed, JobFeed, Logs, Publications
from polydomo.spark.spool import Entry, Spool

SUBSCRIBE, JOBS, LOGS = "subscribe", "jobs", "logs"
KINDS = (SUBSCRIBE, JOBS, LOGS)
FEEDS: dict[str, type[Feed]] = {SUBSCRIBE: Publications, JOBS: JobFeed, LOGS: Logs}

SCHEMAS = {
    SUBSCRIBE: "n BIGINT, time TIMESTAMP, topic STRING, body BINARY, gap STRING",
    JOBS: "n BIGINT, time TIMESTAMP, service STRING, job STRING, key STRING, state STRING, outcome STRING, reason STRING, "
    "attempts BIGINT, body BINARY, gap STRING",
    LOGS: "n BIGINT, time TIMESTAMP, service STRING, level STRING, message STRING, request STRING, record BIGINT, broker STRING, "
    "fields STRING, gap STRING",
}
TYPES = {
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
}
NEEDS_SPOOL = (
    "format polydomo: option {} needs option spool: a directory of the driver, for rows that are not processed yet"
)


class DataLoss(PolydomoError):
    """Data may be missing in a stream, and ``failOnDataLoss`` is true."""


def kind_of(options: Mapping[str, str]) -> str:
    """Which of the three options is set; "" if none, for the journal. Raises SettingError."""
    found = [kind for kind in KINDS if kind in options]
    if len(found) > 1:
        raise SettingError(f"format polydomo: give one of the options {', '.join(KINDS)}, not {' and '.join(found)}")
    return found[0] if found else ""


def arrow_schema(kind: str) -> Any:
    return pa.schema([(name, TYPES[type]) for name, type in (part.split() for part in SCHEMAS[kind].split(", "))])


@dataclass(frozen=True)
class Wanted:
    """The options of a stream."""

    kind: str
    to: str
    prefixes: tuple[str, ...]
    spool: str
    max_rows: int
    fails: bool
    options: dict[str, Any]

    @staticmethod
    def of(options: Mapping[str, str]) -> "Wanted":
        kind = kind_of(options)
        to = options.get("to") or options.get("broker") or ""
        if not to:
            raise SettingError(f"format polydomo: option {kind} needs the broker's address in option to")
        if not options.get("spool"):
            raise SettingError(NEEDS_SPOOL.format(kind))
        prefixes = tuple(sorted(name.strip().removesuffix("*") for name in options[kind].split(",")))
        most = int(options.get("max_rows", SPARK_HEARD))
        fails = options.get("failOnDataLoss", "false").lower() == "true"
        client = {name: options[name] for name in ("key", "server_key", "context") if name in options}
        return Wanted(kind, to, prefixes, options["spool"], most, fails, client)

    @property
    def name(self) -> str:
        what = ", ".join(self.prefixes) or "everything"
        return f"{what} of {self.to}" if self.kind == SUBSCRIBE else f"{self.kind} {what} of {self.to}"

    def feed(self) -> Feed:
        return FEEDS[self.kind](self.to, self.prefixes, self.spool, self.name, self.options)


@dataclass
class SpooledRows(InputPartition):
    """The rows of one batch. They are sent with the task, because the spool is on the driver."""

    rows: list[Entry]


class LiveReader(DataSourceStreamReader):
    """Runs in a process of the driver for as long as the query. An offset is the number of the last row that was read."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._spool: Spool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"wanted": self.wanted, "_spool": None}

    def _reading(self) -> Spool:
        if self._spool is None:
            self._spool = Spool(self.wanted.spool, self.wanted.name)
            self.wanted.feed().start()
        return self._spool

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"n": min(self._reading().last(), int(start["n"]) + self.wanted.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> "list[SpooledRows]":
        found = self._reading().between(int(start["n"]), int(end["n"]))
        gap = next((row.gap for row in found if row.gap), None) if self.wanted.fails else None
        if gap is not None:
            raise DataLoss(
                f"{self.wanted.name}: {gap}; set option failOnDataLoss=false to continue, with a row that has this text in gap"
            )
        return [SpooledRows(found)] if found else []

    def read(self, partition: Any) -> "Iterator[Any]":
        schema = arrow_schema(self.wanted.kind)
        yield pa.RecordBatch.from_arrays(
            [pa.array([_value(row, field.name) for row in partition.rows], field.type) for field in schema],
            schema=schema,
        )

    def commit(self, end: dict[str, int]) -> None:
        self._reading().forget(int(end["n"]))


def _value(row: Entry, name: str) -> Any:
    if name == "service":
        return row.topic
    return getattr(row, name) if name in Entry._fields else row.more.get(name)
