"""``services``: what each service did in windows of 10 seconds, a minute and an hour.

A request belongs to the window in which it ended. Counts and histograms of a coarser window are the sums of those of
the finer ones, so any other window can be had by adding up rows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from polydomo.journal import schema
from polydomo.pipeline.tables.histograms import as_map, gathered, percentile_of
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

WINDOWS = (10, 60, 3600)

TABLE = Table(
    "services",
    "one service at one broker in one window",
    (
        Column("window", "TIMESTAMP", "when the window begins"),
        Column("seconds", "INT", "its length: 10, 60 or 3600"),
        Column("broker", "STRING", "the broker"),
        Column("service", "STRING", "the service that clients asked for"),
        Column("requests", "BIGINT", "requests that ended in the window"),
        Column("ok", "BIGINT", "... with a final reply"),
        Column("outcomes", "MAP<STRING, BIGINT>", "... by outcome"),
        Column("retried", "BIGINT", "... after more than one attempt at a hop"),
        Column("passed_on", "BIGINT", "... after they were passed on to another service"),
        Column("request_bytes", "BIGINT", "bytes of their bodies"),
        Column("reply_bytes", "BIGINT", "bytes of their replies"),
        Column("wait_us", "BIGINT", "their waits in all"),
        Column("run_us", "BIGINT", "their service times in all"),
        Column("run_us2", "DOUBLE", "the squares of their service times in all: the spread follows from it"),
        Column("total_us", "BIGINT", "their durations in all"),
        Column("worked", "BIGINT", "requests that a worker had: those that `run_us` is of"),
        Column("busy", "DOUBLE", "workers busy on average: service time of the window's requests by its length"),
        Column("queued", "BIGINT", "times that a request had to wait (level `messages`; what was given back at any)"),
        Column("queue_max", "INT", "the longest queue seen then"),
        Column("workers_max", "INT", "the most workers seen then"),
        Column("wait_histogram", "MAP<INT, BIGINT>", "waits by logarithmic bucket"),
        Column("total_histogram", "MAP<INT, BIGINT>", "durations by logarithmic bucket"),
        Column("wait_p50_us", "DOUBLE", "median wait, to within 1 %"),
        Column("wait_p99_us", "DOUBLE", "99th percentile of the waits"),
        Column("total_p50_us", "DOUBLE", "median duration"),
        Column("total_p90_us", "DOUBLE", "90th percentile"),
        Column("total_p99_us", "DOUBLE", "99th percentile"),
        Column("total_p999_us", "DOUBLE", "99.9th percentile"),
        *UNIT,
    ),
)

KEY = ["window", "seconds", "broker", "service"]
_SUMS = (
    "requests",
    "retried",
    "passed_on",
    "request_bytes",
    "reply_bytes",
    "wait_us",
    "run_us",
    "run_us2",
    "total_us",
    "worked",
)


def window(time: str, seconds: int) -> str:
    return f"timestamp_seconds({seconds} * (unix_seconds({time}) DIV {seconds}))"


def coarser(cells: DataFrame) -> DataFrame:
    """Cells of 10 seconds once more for each longer window that they are in."""
    each = f.expr(f"explode(array({', '.join(str(seconds) for seconds in WINDOWS)}))").alias("seconds")
    moved = f.expr("timestamp_seconds(seconds * (unix_seconds(window) DIV seconds))")
    return cells.select("*", each).withColumn("window", moved)


def build(parts: DataFrame, messages: DataFrame) -> DataFrame:
    rows = parts.selectExpr(
        f"{window('time', WINDOWS[0])} AS window", "broker", "service", "outcome", "wait_bucket", "total_bucket",
        "1L AS requests", "CAST(dispatches > hops + 1 AS BIGINT) AS retried", "CAST(hops > 0 AS BIGINT) AS passed_on",
        "request_bytes", "reply_bytes", "wait_us", "run_us", "CAST(run_us AS DOUBLE) * run_us AS run_us2", "total_us",
        "CAST(worker > 0 AS BIGINT) AS worked",
    )  # fmt: skip
    # cells of 10 seconds first, which need few of what is sent around; longer windows are added up from them
    cells = coarser(
        rows.groupBy("window", "broker", "service", "outcome").agg(*(f.sum(name).alias(name) for name in _SUMS))
    )
    by_outcome = cells.repartition(*KEY).groupBy(*KEY, "outcome").agg(*(f.sum(name).alias(name) for name in _SUMS))
    counts = by_outcome.groupBy(*KEY).agg(
        *(f.sum(name).alias(name) for name in _SUMS),
        f.sum(f.expr("IF(outcome = 'ok', requests, 0)")).alias("ok"),
        f.expr("map_from_entries(sort_array(collect_list(struct(outcome, requests))))").alias("outcomes"),
    )
    # one row for each bucket; which of the two histograms it is of stands in its sign, so that there is one group-by
    buckets = rows.selectExpr(
        "window", "broker", "service", "explode(array(CAST(wait_bucket AS INT), -1 - total_bucket)) AS bucket"
    )
    buckets = buckets.groupBy("window", "broker", "service", "bucket").agg(f.count("*").alias("n"))
    # all windows that a cell is in are in one hour: cells are sent around once, and added up where they are
    place = ["hour", "broker", "service"]
    partitions = int(
        parts.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1
    )  # Spark would make one of them, so small are they
    buckets = coarser(
        buckets.withColumn("hour", f.expr("unix_seconds(window) DIV 3600")).repartition(partitions, *place)
    )
    buckets = buckets.groupBy(*place, "window", "seconds", "bucket").agg(f.sum("n").alias("n"))
    histograms = (
        buckets.groupBy(*place, "window", "seconds")
        .agg(
            f.expr(gathered("bucket", "n", "bucket >= 0")).alias("waits"),
            f.expr(gathered("-1 - bucket", "n", "bucket < 0")).alias("totals"),
        )
        .drop("hour")
    )
    queues = coarser(
        messages.where(f.col("event").isin(schema.QUEUED, schema.REQUEUED, schema.FORWARDED))
        .selectExpr(f"{window('time', WINDOWS[0])} AS window", "broker", "service", "queue", "workers")
        .groupBy("window", "broker", "service")
        .agg(f.count("*").alias("queued"), f.max("queue").alias("queue_max"), f.max("workers").alias("workers_max"))
    )
    queues = queues.groupBy(*KEY).agg(
        f.sum("queued").alias("queued"),
        f.max("queue_max").alias("queue_max"),
        f.max("workers_max").alias("workers_max"),
    )
    joined = counts.join(histograms, KEY).join(queues, KEY, "left")
    return (
        joined.na.fill(0, ["queued", "queue_max", "workers_max"])
        .withColumn("busy", f.expr("run_us / (seconds * 1e6D)"))
        .selectExpr(
            "*",
            f"{as_map('waits')} AS wait_histogram",
            f"{as_map('totals')} AS total_histogram",
            f"{percentile_of('waits', 'requests', 0.5)} AS wait_p50_us",
            f"{percentile_of('waits', 'requests', 0.99)} AS wait_p99_us",
            f"{percentile_of('totals', 'requests', 0.5)} AS total_p50_us",
            f"{percentile_of('totals', 'requests', 0.9)} AS total_p90_us",
            f"{percentile_of('totals', 'requests', 0.99)} AS total_p99_us",
            f"{percentile_of('totals', 'requests', 0.999)} AS total_p999_us",
            *unit("window"),
        )
        .transform(TABLE.contract)
    )
