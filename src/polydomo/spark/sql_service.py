"""SQL as a service: ``spark.sql`` takes a query and replies with the rows as partial replies, then a summary.

Executors encode the result as bodies of at most ``SQL_BATCH_ROWS`` rows; the driver forwards them as they arrive and never holds the whole
result. A query is a group of Spark jobs in its own scheduler pool. It is cancelled when its timeout passes or its client disconnects.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from polydomo.errors import CallFailed
from polydomo.limits import SQL_BATCH_ROWS, SQL_LAST_WORDS, SQL_LEAST_ROWS, SQL_LOOK, SQL_STUCK
from polydomo.spark import sql_formats
from polydomo.spark.row_bodies import to_json
from polydomo.spark.spark_errors import failure, has_ended, jvm_process, said
from polydomo.spark.sql_guard import Guard
from polydomo.spark.sql_query import HTML, MEDIA, Query, QueryLimits
from polydomo.worker.call import Call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("polydomo.spark")

WARM_UP = "SELECT count(*) AS rows FROM range(1)"
DESCRIPTION = """SQL on Spark.

The request is the SQL, or a JSON object with sql, args, format (arrow, jsonl, csv, html) and max_rows."""
SCHEMA: dict[str, Any] = {
    "description": DESCRIPTION,
    "input": {"type": "object", "properties": {"body": {"type": "string", "description": "SQL"}}, "required": ["body"]},
    "output": {},
    "encoding": "text",
    "streams": True,
}


class SqlService:
    """The function of the service. Calls run in threads of the worker."""

    def __init__(
        self,
        spark: "SparkSession",
        limits: QueryLimits | None = None,
        writable: bool = False,
        concurrency: int = 4,
        ends_jvm: bool = False,
    ) -> None:
        """``ends_jvm``: whether Spark's JVM is ended if a query cannot be cancelled; then the caller opens a new session."""
        self._spark = spark
        self._limits = limits or QueryLimits()
        self._guard = None if writable else Guard(spark)
        self._ends_jvm = ends_jvm
        self._pools: queue.SimpleQueue[str] = queue.SimpleQueue()
        for n in range(concurrency):
            # Pools share the cores fairly; jobs of one pool would run one after the other.
            self._pools.put(f"polydomo-{n}")
        logging.getLogger("SQLQueryContextLogger").disabled = True  # otherwise it prints every error as a page of JSON

    @property
    def schema(self) -> "dict[str, Any]":
        """The schema of the service. GET is available only if the service changes nothing."""
        return SCHEMA if self._guard is None else {**SCHEMA, "media": list(MEDIA)}

    def warm_up(self) -> None:
        """Runs a small query, so that the first request does not wait until Spark has loaded its classes and started a Python worker."""
        query = Query.of(WARM_UP, self._limits)
        try:
            for _ in self._bodies(self._frame(query), query):
                pass
        except Exception as error:
            log.warning("the first query, which warms up Spark, failed; the service starts anyway: %s", said(error))

    def __call__(self, call: Call) -> Generator[bytes, None, bytes]:
        query = Query.of(call.text, self._limits)
        if query.by_get and not query.sql:
            if query.format != HTML:
                raise CallFailed("bad-query", "the parameter q, with the SQL, is missing")
            return sql_formats.page("").encode()
        pool = self._pools.get()
        try:
            return (yield from self._run(query, call, pool))
        finally:
            self._pools.put(pool)

    def _run(self, query: Query, call: Call, pool: str) -> Generator[bytes, None, bytes]:
        began = time.monotonic()
        group = f"polydomo-{call.request or id(call)}"
        watch = Watch(self._spark, group, call, self._limits.seconds, self._ends_jvm)
        watch.start()
        rows = size = 0
        schema: Any = None
        try:
            frame = self._ask(query, group, pool)
            schema = frame.schema
            if first := sql_formats.head(query.format, frame.columns, query.sql):
                yield first
            for count, body in self._bodies(frame, query):
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
            raise CallFailed(*watch.reason or failure(self._spark, error)) from None
        finally:
            watch.stop()
            # stops what still runs: the rest of a result that was cut, or everything if the client has disconnected
            cancel(self._spark, group)
        cut = rows > query.max_rows
        rows, seconds = min(rows, query.max_rows), time.monotonic() - began
        last = sql_formats.tail(query.format, rows, cut, seconds)
        if not query.summary:
            return last
        if last:
            yield last
        return to_json(
            {
                "rows": rows, "truncated": cut, "bytes": size, "seconds": round(seconds, 3),
                "schema": schema.jsonValue() if schema is not None else None,
            }
        )  # fmt: skip

    def _ask(self, query: Query, group: str, pool: str) -> "DataFrame":
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.setJobGroup(group, query.sql[:100], interruptOnCancel=True)
        frame = self._frame(query)
        # A limit moves everything to one task, which pays off for few rows. For many, the rest is simply not read.
        return frame.limit(query.max_rows + 1) if query.max_rows <= SQL_BATCH_ROWS else frame

    def _frame(self, query: Query) -> "DataFrame":
        args = query.args or None
        return self._spark.sql(query.sql, args=args) if self._guard is None else self._guard.ask(query.sql, args)

    def _bodies(self, frame: "DataFrame", query: Query) -> Iterator[tuple[int, bytes]]:
        """Yields the rows as encoded bodies with their numbers of rows. Executors encode them; the driver gets one partition after the
        other."""
        format, most = query.format, query.max_rows
        names = frame.columns

        def bodies(batches: "Iterable[Any]") -> "Iterator[Any]":
            from polydomo.spark.sql_formats import encoded

            return encoded(batches, format, names)

        # Spark looks columns up by name there, which fails for names such as `1.5` and for equal names.
        numbered = frame.toDF(*(f"c{n}" for n in range(len(names))))
        made = numbered.mapInArrow(bodies, "rows BIGINT, body BINARY")
        sent = 0
        held: list[bytes] = []  # small pieces are sent together
        rows = 0
        for row in made.toLocalIterator(prefetchPartitions=True):
            body = bytes(row.body)
            if sent + row.rows > most:
                body = sql_formats.first_rows(body, most - sent, format)
            held.append(body)
            rows += row.rows
            sent += row.rows
            if rows >= SQL_LEAST_ROWS or sent > most:
                yield rows, sql_formats.joined(held, format)
                held, rows = [], 0
            if sent > most:
                return
        if held:
            yield rows, sql_formats.joined(held, format)


class Watch(threading.Thread):
    """Cancels a query when its timeout passes or its client disconnects.

    Spark ends a query only where its code looks for that; an expression that takes hours does not. Such queries would take all cores, and
    all threads of the service. So Spark's JVM is ended, with ``ends_jvm``, if a query has not stopped some time after it was cancelled.
    """

    def __init__(self, spark: "SparkSession", group: str, call: Call, seconds: float, ends_jvm: bool) -> None:
        super().__init__(name="polydomo-sql-watch", daemon=True)
        self._ends_jvm = ends_jvm
        self._spark, self._group, self._call, self._seconds = spark, group, call, seconds
        self._over = threading.Event()
        self.reason: tuple[str, str] | None = None

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        end = time.monotonic() + self._seconds
        while not self._over.wait(SQL_LOOK):
            if time.monotonic() >= end:
                self._cancel("timeout", f"the query took longer than {self._seconds:g} s")
            elif self._call.cancelled:
                self._cancel("cancelled", "the client disconnected")
            if self.reason is not None:
                break
        else:
            return
        end = time.monotonic() + SQL_STUCK if self._ends_jvm else math.inf
        while not self._over.wait(SQL_LOOK) or has_tasks(self._spark, self._group):
            if time.monotonic() >= end:
                end_jvm(self._group)
                return
            time.sleep(SQL_LOOK)
            cancel(self._spark, self._group)

    def _cancel(self, code: str, text: str) -> None:
        log.info("query cancelled: %s (%s)", text, self._group)
        self.reason = (code, text)
        cancel(self._spark, self._group)


def end_jvm(group: str) -> None:
    process = jvm_process()
    if process is not None and process.poll() is None:
        log.error("a query still runs %g s after it was cancelled (%s): ending Spark's JVM", SQL_STUCK, group)
        process.kill()


def has_tasks(spark: "SparkSession", group: str) -> bool:
    """Whether tasks of a query still run."""
    tracker = spark.sparkContext.statusTracker()
    try:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    except Exception:  # the JVM has ended
        return False
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def cancel(spark: "SparkSession", group: str) -> None:
    """Cancels the jobs of a query, and those that it would start next: every partition that the driver reads is a job."""
    context: Any = spark.sparkContext
    try:
        context._jsc.sc().cancelJobGroupAndFutureJobs(group)
    except Exception as error:
        if not has_ended(wait=SQL_LAST_WORDS):
            log.warning("cannot cancel %s: %s", group, said(error))
