"""``hops``: the parts of a request in order, over services (chains) and brokers (bridges): one row for each worker
that had it.

Most requests went to one worker once: the journal's record of the request says all about that. Only the others are
put together from messages: where an attempt ended without ending the request (given back, passed on) there is a row
at every level of the journal, and when it began is in a row at level ``messages`` only.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import schema
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

TABLE = Table(
    "hops",
    "one worker's turn at a request",
    (
        Column("request", "STRING", "id of the request in `requests`"),
        Column("position", "INT", "its place among the request's hops, from 1"),
        Column("broker", "STRING", "the broker at which it was"),
        Column("run", "BIGINT", "that broker's run"),
        Column("number", "BIGINT", "the request's number in that run"),
        Column("service", "STRING", "the service of this hop"),
        Column("hop", "INT", "how often the request had been passed on before, at this broker"),
        Column("attempt", "INT", "which attempt at this hop, from 1"),
        Column("worker", "INT", "number of the worker in the run"),
        Column("worker_peer", "STRING", "its address, where the journal has it"),
        Column("worker_protocol", "STRING", "its protocol, where the journal has it"),
        Column("began", "TIMESTAMP", "when the worker got it; null where the journal's level does not tell"),
        Column("ended", "TIMESTAMP", "when this turn ended"),
        Column("run_us", "BIGINT", "the time between; null where it does not tell"),
        Column("ending", "STRING", "`final`, `failed`, `forwarded` (passed on) or `requeued` (given back)"),
        *UNIT,
    ),
)


def build(parts: DataFrame, links: DataFrame, messages: DataFrame) -> DataFrame:
    ending = "IF(outcome = 'ok', 'final', 'failed') AS ending"
    last = ["worker", "worker_peer", "worker_protocol", "dispatched AS began", "time AS ended", ending]
    bridged = links.selectExpr("part AS request").unionByName(links.selectExpr("root AS request")).distinct()
    single = "dispatches = 1 AND hops = 0 AND attempts = 1"
    simple = (
        parts.where(single)
        .join(bridged, "request", "left_anti")
        .selectExpr("request", "1 AS position", "broker", "run", "number", "service", "0 AS hop", "1 AS attempt", *last, *unit("time"))
    )
    between = ["request AS part", "broker", "run", "number"]
    several = parts.where(f"dispatches > 0 AND NOT ({single})").unionByName(parts.where(single).join(bridged, "request", "left_semi"))
    ends = several.selectExpr(*between, "last_service AS service", "hops AS hop", "attempts AS attempt", *last, "'' AS target", "seq")
    keys = several.selectExpr("run", "number", "request AS part").where("true")
    steps = messages.where(f.col("event").isin(schema.REQUEUED, schema.FORWARDED)).join(keys, ["run", "number"])
    passed = f"event = '{schema.FORWARDED}'"
    early = steps.selectExpr(
        "part", "broker", "run", "number", f"IF({passed}, '', service) AS service", "hop", "attempt", "worker", "peer AS worker_peer",
        "protocol AS worker_protocol", "CAST(NULL AS TIMESTAMP) AS began", "time AS ended", "event AS ending",
        f"IF({passed}, service, '') AS target", "seq",
    )  # fmt: skip
    starts = (
        messages.where(f.col("event") == schema.DISPATCHED)
        .join(keys.drop("part"), ["run", "number"], "left_semi")
        .selectExpr("run", "number", "hop", "attempt", "time AS start", "service AS start_service")
        .dropDuplicates(["run", "number", "hop", "attempt"])
    )
    turns = ends.unionByName(early).join(starts, ["run", "number", "hop", "attempt"], "left")
    asked = several.selectExpr("run", "number", "service AS asked", "time AS done")
    order = Window.partitionBy("run", "number").orderBy("hop", "attempt", "seq")
    named = (
        turns.join(asked, ["run", "number"])
        # the service of a hop is where the hop before it passed the request on to
        .withColumn("came_to", f.last(f.expr("nullif(target, '')"), True).over(order.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumn("service", f.expr("coalesce(nullif(service, ''), start_service, came_to, asked)"))
        .withColumn("began", f.expr("coalesce(began, start)"))
    )
    whole = named.join(links.select("part", "root"), "part", "left").withColumn("request", f.expr("coalesce(root, part)"))
    over = Window.partitionBy("request")
    placed = (
        whole.withColumn("position", f.row_number().over(over.orderBy(f.expr("coalesce(began, ended)"), "run", "hop", "attempt", "seq")))
        .withColumn("time", f.max("done").over(over))
        .selectExpr(*simple.columns[:-2], *unit("time"))
    )
    return simple.unionByName(placed).withColumn("run_us", f.expr("timestampdiff(MICROSECOND, began, ended)")).transform(TABLE.contract)
