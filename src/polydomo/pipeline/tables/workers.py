"""``workers``: what each worker did in each hour, beside its fellows.

The rule by which a worker is an outlier, among the workers of the same service at the same broker in the same hour,
of which there must be at least two with at least 20 turns: it is *slow* if the median of its turns is at least twice
that of its median fellow; it *gives back* if at least 3 of its turns, and at least one in ten, ended without a reply
because it was lost or left.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import histogram, schema
from polydomo.pipeline.tables.histograms import as_map, gathered, percentile_of
from polydomo.pipeline.tables.table import UNIT, Column, Table, hour_of, unit

LEAST_TURNS = 20
SLOW = 2.0
GIVEN_BACK = 3
GIVEN_BACK_SHARE = 0.1

TABLE = Table(
    "workers",
    "one worker at one service in one hour",
    (
        Column("window", "TIMESTAMP", "when the hour begins"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("worker", "INT", "number of the worker in the run"),
        Column("service", "STRING", "the service; all it offers, if it had nothing to do"),
        Column("peer", "STRING", "its address"),
        Column("protocol", "STRING", "its protocol"),
        Column("turns", "BIGINT", "turns it had at requests that ended in the hour"),
        Column("finals", "BIGINT", "... with a final reply"),
        Column("given_back", "BIGINT", "... because it was gone"),
        Column("run_us", "BIGINT", "time it worked at them, where the journal tells"),
        Column("present_us", "BIGINT", "time it was there in the hour, as far as the journal tells"),
        Column("utilisation", "DOUBLE", "the one by the other"),
        Column("run_histogram", "MAP<INT, BIGINT>", "times of its turns by logarithmic bucket"),
        Column("run_p50_us", "DOUBLE", "their median"),
        Column("run_p99_us", "DOUBLE", "their 99th percentile"),
        Column("fellows", "BIGINT", "workers of the service in the hour, itself included"),
        Column("fellows_p50_us", "DOUBLE", "the median of its median fellow"),
        Column("late", "BIGINT", "beats that it missed (all its services)"),
        Column("lost", "BIGINT", "times it was taken for dead (all its services)"),
        Column("stale", "BIGINT", "replies that came too late to count (all its services)"),
        Column("outlier", "STRING", "`slow`, `gives back`, or empty"),
        *UNIT,
    ),
)

# That of the request, not of the turn: an hour is made of what ended in it, whatever hours are made at the same time.
_WINDOW = "timestamp_seconds(unix_date(date) * 86400L + hour * 3600L) AS window"


def build(
    hops: DataFrame, messages: DataFrame, settle: Callable[[DataFrame], DataFrame] = lambda frame: frame
) -> DataFrame:
    """``settle`` may keep what each worker did, which is looked at four times."""
    key = ["window", "broker", "run", "worker"]
    bucket = f"CAST(floor(ln(greatest(run_us, 1)) / ln({histogram.RATIO}D)) AS INT)"
    turns = hops.selectExpr(
        _WINDOW, "broker", "run", "worker", "service", "ending", "run_us", f"{bucket} AS bucket",
        "IF(worker_peer = '', NULL, number) AS told", "ended",
    )  # fmt: skip
    cells = turns.groupBy(*key, "service", "bucket").agg(
        f.count("*").alias("turns"),
        f.expr("sum(IF(ending = 'final', 1, 0))").alias("finals"),
        f.expr(f"sum(IF(ending = '{schema.REQUEUED}', 1, 0))").alias("given_back"),
        f.expr("coalesce(sum(run_us), 0)").alias("run_us"),
        f.max("told").alias("told"),
        f.max("ended").alias("until"),
    )
    done = cells.groupBy(*key, "service").agg(
        f.max("told").alias("told"),
        f.max("until").alias("until"),
        *(f.sum(name).alias(name) for name in ("turns", "finals", "given_back", "run_us")),
        f.expr("sum(IF(bucket IS NULL, 0, turns))").alias("timed"),
        f.expr(gathered("bucket", "turns")).alias("cells"),
    )
    done = settle(done)
    rare = messages.where(
        f.col("event").isin(schema.REGISTERED, schema.LATE, schema.LOST, schema.LEFT, schema.STALE)
        & (f.col("worker") > 0)
    )
    came_and_went = rare.withColumn("window", f.expr(hour_of("time"))).groupBy(*key).agg(
        f.expr(f"min(IF(event = '{schema.REGISTERED}', time, NULL))").alias("came"),
        f.expr(f"max(IF(event IN ('{schema.LEFT}', '{schema.LOST}'), time, NULL))").alias("went"),
        *(f.expr(f"sum(IF(event = '{event}', 1, 0))").alias(event) for event in (schema.LATE, schema.LOST, schema.STALE)),
        f.max("service").alias("offers"),
    )  # fmt: skip
    # its address and protocol, from its rare rows and from one of its turns: strings are not aggregated over all of them
    one = done.groupBy("window", "run", "worker").agg(f.max("told").alias("number"))
    named = hops.selectExpr(_WINDOW, "run", "worker", "number", "worker_peer AS peer", "worker_protocol AS protocol")
    # looked up by one long integer, and compared then in a form that Spark does not take for keys
    which = f.broadcast(one.selectExpr("number", "window AS its_window", "run AS its_run", "worker AS its_worker"))
    same = "run - its_run = 0 AND worker - its_worker = 0 AND unix_seconds(window) - unix_seconds(its_window) = 0"
    told = named.join(which, "number").where(same).select("window", "run", "worker", "peer", "protocol")
    rarely = rare.selectExpr(f"{hour_of('time')} AS window", "run", "worker", "peer", "protocol")
    who = (
        told.unionByName(rarely)
        .groupBy("window", "run", "worker")
        .agg(f.max("peer").alias("peer"), f.max("protocol").alias("protocol"))
    )
    seen = done.groupBy("window", "run").agg(f.max("until").alias("until"))
    joined = (
        done.drop("told", "until")
        .join(came_and_went, key, "full")
        .join(f.broadcast(who), ["window", "run", "worker"], "left")
        .join(f.broadcast(seen), ["window", "run"], "left")
    )
    fellows = Window.partitionBy("window", "broker", "service")
    counted = f"turns >= {LEAST_TURNS}"
    present = "timestampdiff(MICROSECOND, coalesce(came, window), coalesce(went, until, window + INTERVAL 1 HOUR))"
    return (
        joined.na.fill(0, ["turns", "finals", "given_back", "run_us", schema.LATE, schema.LOST, schema.STALE])
        .na.fill("", ["peer", "protocol"])
        .withColumn("service", f.expr("coalesce(service, offers, '')"))
        .withColumn("cells", f.expr("coalesce(cells, array())"))
        .withColumn("run_histogram", f.expr(as_map("cells")))
        .withColumn("run_p50_us", f.expr(percentile_of("cells", "timed", 0.5)))
        .withColumn("run_p99_us", f.expr(percentile_of("cells", "timed", 0.99)))
        .withColumn("fellows", f.count("*").over(fellows))
        .withColumn("able", f.sum(f.expr(f"IF({counted}, 1, 0)")).over(fellows))
        .withColumn(
            "fellows_p50_us",
            f.coalesce(
                f.expr(f"percentile_disc(0.5) WITHIN GROUP (ORDER BY IF({counted}, run_p50_us, NULL))").over(fellows),
                f.lit(0.0),
            ),
        )
        .withColumn("present_us", f.expr(f"greatest(0, {present})"))
        .withColumn("utilisation", f.expr("IF(present_us > 0, least(1.0D, run_us / CAST(present_us AS DOUBLE)), 0.0D)"))
        .withColumn(
            "outlier",
            f.expr(
                f"CASE WHEN able < 2 OR NOT ({counted}) THEN '' WHEN run_p50_us >= {SLOW} * fellows_p50_us THEN 'slow' "
                f"WHEN given_back >= {GIVEN_BACK} AND given_back >= {GIVEN_BACK_SHARE} * turns THEN 'gives back' ELSE '' END"
            ),
        )
        .selectExpr("*", *unit("window"))
        .transform(TABLE.contract)
    )
