"""SQL as a service: ``spark.sql`` takes a query and answers with Arrow record batches as partial replies, then a summary.

The request is the SQL itself, or JSON: ``{"sql": ..., "args": {...}, "format": "arrow" | "json" | "csv", "max_rows": ...}``. Executors turn
the result into bodies of at most ``SQL_BATCH_ROWS`` rows; the driver passes them on as they come and never holds the whole result.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from polydomo.client.blocking import Client
from polydomo.errors import CallFailed, PolydomoError
from polydomo.journal.ids import NUMBER_CHARACTERS, decode
from polydomo.limits import SQL_BATCH_ROWS, SQL_LEAST_ROWS, SQL_LOOK, SQL_MAX_BYTES, SQL_MAX_ROWS, SQL_MAX_TIME
from polydomo.spark.bodies import arrow_body, to_json
from polydomo.worker.call import Call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("polydomo.spark")

FORMATS = ("arrow", "json", "csv")
READING = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(select|with|values|describe|desc|show|explain|table|from)\b", re.IGNORECASE
)
CHANGING = re.compile(  # nodes of a plan, wherever they are in it
    r"^[\s:+|'-]*(Insert|Create|Replace|Drop|Alter|Merge|Update|Delete|Truncate|Load|Overwrite|Append|Cache|Call|Set)\w*",
    re.MULTILINE,
)
UNSAFE = re.compile(r"\b(reflect|try_reflect|java_method)\s*\(", re.IGNORECASE)  # they call any function of the JVM


@dataclass(frozen=True)
class Limits:
    rows: int = SQL_MAX_ROWS
    bytes: int = SQL_MAX_BYTES
    seconds: float = SQL_MAX_TIME


@dataclass(frozen=True)
class Query:
    sql: str
    args: dict[str, Any]
    format: str
    max_rows: int

    @staticmethod
    def of(call: Call, limits: Limits) -> "Query":
        text = call.text.strip()
        given: dict[str, Any] = {"sql": text}
        if text.startswith("{"):
            try:
                given = json.loads(text)
            except ValueError as error:
                raise CallFailed("bad-query", f"the request begins like JSON and is none: {error}") from None
        if not isinstance(given.get("sql"), str) or not given["sql"].strip():
            raise CallFailed("bad-query", "the request has no SQL: send it as text, or as JSON with the key sql")
        format = given.get("format", "arrow")
        if format not in FORMATS:
            raise CallFailed("bad-query", f"format: {format!r} is none of {', '.join(FORMATS)}")
        args = given.get("args", {})
        if not isinstance(args, dict):
            raise CallFailed("bad-query", "args: an object of names and values is needed")
        most = given.get("max_rows", limits.rows)
        if not isinstance(most, int) or most < 1:
            raise CallFailed("bad-query", "max_rows: a whole number from 1 on is needed")
        return Query(given["sql"].strip().rstrip(";"), args, format, min(most, limits.rows))


class SqlService:
    """The function of the service. Calls run in threads of the worker, each as a group of jobs of Spark."""

    def __init__(
        self, spark: "SparkSession", to: str, limits: Limits | None = None, writable: bool = False, **client: Any
    ) -> None:
        self._spark = spark
        self._limits = limits or Limits()
        self._writable = writable
        self._client = Client(to, **client)
        logging.getLogger("SQLQueryContextLogger").disabled = True  # it would print every mistake as a page of JSON

    def close(self) -> None:
        self._client.close()

    def __call__(self, call: Call) -> Generator[bytes, None, bytes]:
        query = Query.of(call, self._limits)
        began = time.monotonic()
        group = f"polydomo-{call.request or id(call)}"
        watch = Watch(self._spark, group, self._client, str(call.request or ""), self._limits.seconds)
        watch.start()
        rows = size = 0
        schema: Any = None
        try:
            frame = self._ask(query, group)
            schema = frame.schema
            for count, body in self._bodies(frame, query, group):
                size += len(body)
                if size > self._limits.bytes:
                    raise CallFailed(
                        "too-large", f"the result is larger than {self._limits.bytes:,} bytes; select less"
                    )
                rows += count
                if body:
                    yield body
        except CallFailed:
            raise
        except Exception as error:
            raise CallFailed(*watch.reason or ("bad-query", said(error))) from None
        finally:
            watch.stop()
        cut = rows > query.max_rows
        return to_json(
            {
                "rows": min(rows, query.max_rows), "truncated": cut, "bytes": size, "seconds": round(time.monotonic() - began, 3),
                "schema": schema.jsonValue() if schema is not None else None,
            }
        )  # fmt: skip

    def _ask(self, query: Query, group: str) -> "DataFrame":
        if not self._writable:
            if not READING.match(query.sql) or UNSAFE.search(query.sql) or self._is_command(query.sql):
                raise CallFailed("read-only", "only queries are allowed: SELECT, WITH, VALUES, DESCRIBE, SHOW, EXPLAIN")
        self._spark.sparkContext.setJobGroup(group, query.sql[:100], interruptOnCancel=True)
        frame = self._spark.sql(query.sql, args=query.args or None)
        # a limit brings everything to one task: worth it for few rows; of many, the rest is just not read
        return frame.limit(query.max_rows + 1) if query.max_rows <= SQL_BATCH_ROWS else frame

    def _is_command(self, sql: str) -> bool:
        """Whether Spark would change something: ``WITH a AS (...) INSERT INTO ...`` begins like a query."""
        jvm: Any = self._spark._jvm
        session: Any = self._spark._jsparkSession
        plan = session.sessionState().sqlParser().parsePlan(sql)
        if any(word in str(plan.getClass().getSimpleName()) for word in ("Describe", "Show", "Explain")):
            return False
        command = jvm.py4j.reflection.TypeUtil.isInstanceOf("org.apache.spark.sql.catalyst.plans.logical.Command", plan)
        return bool(command) or CHANGING.search(plan.treeString()) is not None

    def _bodies(self, frame: "DataFrame", query: Query, group: str) -> Iterator[tuple[int, bytes]]:
        """The rows as bodies, in pieces, with their numbers. Executors make them; partition after partition comes to the driver."""
        format, names, most = query.format, frame.columns, query.max_rows

        def bodies(batches: "Iterable[Any]") -> "Iterator[Any]":
            from polydomo.spark.sql_service import encoded

            return encoded(batches, format)

        made = frame.mapInArrow(bodies, "rows BIGINT, body BINARY")
        sent = 0
        if format == "csv":
            yield 0, (",".join(names) + "\n").encode()
        held: list[bytes] = []  # small pieces are sent together
        rows = 0
        for row in made.toLocalIterator(prefetchPartitions=True):
            body = bytes(row.body)
            if sent + row.rows > most:
                body = _first_rows(body, most - sent, format)
            held.append(body)
            rows += row.rows
            sent += row.rows
            if rows >= SQL_LEAST_ROWS or sent > most:
                yield rows, _joined(held, format)
                held, rows = [], 0
            if sent > most:
                return
        if held:
            yield rows, _joined(held, format)


def _first_rows(body: bytes, rows: int, format: str) -> bytes:
    if format != "arrow":
        return b"".join(body.splitlines(keepends=True)[:rows])
    table = pa.ipc.open_stream(body).read_all().slice(0, rows)
    return arrow_body(table.combine_chunks().to_batches()[0]) if table.num_rows else b""


def _joined(held: list[bytes], format: str) -> bytes:
    found = [body for body in held if body]
    if len(found) < 2 or format != "arrow":
        return b"".join(found)
    table = pa.concat_tables([pa.ipc.open_stream(body).read_all() for body in found]).combine_chunks()
    return arrow_body(table.to_batches()[0])


def encoded(batches: "Iterable[Any]", format: str) -> "Iterator[Any]":
    """On an executor: record batches as rows of (number of rows, body)."""
    for batch in batches:
        for start in range(0, batch.num_rows, SQL_BATCH_ROWS):
            piece = batch.slice(start, SQL_BATCH_ROWS)
            if format == "arrow":
                body = arrow_body(piece)
            elif format == "json":
                body = b"".join(to_json(row) + b"\n" for row in piece.to_pylist())
            else:
                import pyarrow.csv as csv

                sink = pa.BufferOutputStream()
                csv.write_csv(pa.Table.from_batches([piece]), sink, csv.WriteOptions(include_header=False))
                body = bytes(sink.getvalue())
            yield pa.RecordBatch.from_arrays(
                [pa.array([piece.num_rows], pa.int64()), pa.array([body], pa.binary())], ["rows", "body"]
            )


class Watch(threading.Thread):
    """Cancels a query whose time is over, or whose client has gone: the broker lists its request as abandoned then."""

    def __init__(self, spark: "SparkSession", group: str, client: Client, request: str, seconds: float) -> None:
        super().__init__(name="polydomo-sql-watch", daemon=True)
        self._spark, self._group, self._client, self._request, self._seconds = spark, group, client, request, seconds
        self._over = threading.Event()
        self.reason: tuple[str, str] | None = None

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        end = time.monotonic() + self._seconds
        while not self._over.wait(SQL_LOOK):
            if time.monotonic() >= end:
                self._cancel("timeout", f"the query took longer than {self._seconds:g} s")
            elif self._request and self._abandoned():
                self._cancel("cancelled", "the client has gone")

    def _abandoned(self) -> bool:
        try:
            listed = self._client.call("polydomo.requests", timeout=5.0).json()
        except (PolydomoError, ValueError):
            return False
        return any(row["state"] == "abandoned" and _same(row["request"], self._request) for row in listed)

    def _cancel(self, code: str, text: str) -> None:
        self.reason = (code, text)
        log.info("query cancelled: %s (%s)", text, self._group)
        self._spark.sparkContext.cancelJobGroup(self._group)


def _same(request: str, attempt: str) -> bool:
    """Whether an attempt, by which a worker knows its request, is one at the request with this id: both have the request's number."""
    try:
        return decode(request[-NUMBER_CHARACTERS:]) & 0xFFFFFFFFF == int(attempt[:9], 16)
    except (ValueError, KeyError, PolydomoError):
        return False


def said(error: Exception) -> str:
    """The first line of what Spark says, without codes."""
    text = getattr(error, "desc", None) or str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^\[[A-Z_.]+\] ", "", first.split(" SQLSTATE:")[0]).strip()
