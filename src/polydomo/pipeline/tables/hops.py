"""``hops``: the parts of a request in order, over services (chains) and brokers (bridges): one row for each worker
that had it.

Most requests went to one worker once: the journal's record of the request says all about that. Only the others are
put together from messages: where an attempt ended without ending the request (given back, passed on) there is a row
at every level of the journal, and when it began is in a row at level ``messages`` only.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import schema
from polydomo.pipeline.tables.marks import marked, marks
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


def build(
    parts: DataFrame,
    links: DataFrame | None,
    messages: DataFrame,
    settle: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> DataFrame:
    """``settle`` may keep the few requests that need a closer look: they are looked at four times."""
    ending = "IF(outcome = 'ok', 'final', 'failed') AS ending"
    last = ["worker", "worker_peer", "worker_protocol", "dispatched AS began", "time AS ended", ending]
    single = "dispatches = 1 AND hops = 0 AND attempts = 1"
    plain, several = parts.where(single), parts.where(f"dispatches > 0 AND NOT ({single})")
    if links is not None:
        bridged = links.selectExpr("explode(array(part, root)) AS request").distinct()
        several = several.unionByName(plain.join(bridged, "request", "left_semi"))
        plain = plain.join(bridged, "request", "left_anti")
    simple = plain.selectExpr(
        "request",
        "1 AS position",
        "broker",
        "run",
        "number",
        "service",
        "0 AS hop",
        "1 AS attempt",
        *last,
        *unit("time"),
    )
    few = several.selectExpr(
        "request AS part", "broker", "run", "number", "service AS asked", "last_service AS service", "hops AS hop", "attempts AS attempt",
        *last, "seq", "time AS done",
    )  # fmt: skip
    placed = of_several(settle(few), links, messages)
    return (
        simple.unionByName(placed)
        .withColumn("run_us", f.expr("unix_micros(ended) - unix_micros(began)"))
        .transform(TABLE.contract)
    )


_OF_RECORDS = {"part": "STRING", "broker": "STRING", "asked": "STRING", "done": "TIMESTAMP"}  # what no message tells


def of_several(few: DataFrame, links: DataFrame | None, messages: DataFrame) -> DataFrame:
    """The turns of requests that had several workers, or went over bridges."""
    steps = messages.where(f.col("event").isin(schema.DISPATCHED, schema.REQUEUED, schema.FORWARDED)).selectExpr(
        "run", "number", "hop", "attempt", "event", "seq", "time", "service", "worker", "peer", "protocol"
    )
    # what a request's record tells, what its messages tell of turns that ended before, and when turns began (``start``): sent
    # around once, by request
    passed, began = f"event = '{schema.FORWARDED}'", f"event = '{schema.DISPATCHED}'"
    told = marked(steps, marks(few)).selectExpr(
        "run", "number", "hop", "attempt", "seq", f"NOT {began} AS turn", "worker", "peer AS worker_peer", "protocol AS worker_protocol",
        f"IF({began} OR {passed}, '', service) AS service", f"IF({passed}, nullif(service, ''), NULL) AS target", "time AS ended",
        "event AS ending", "CAST(NULL AS TIMESTAMP) AS began", f"IF({began}, struct(time, service), NULL) AS start",
        *(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _OF_RECORDS.items()),
    )  # fmt: skip
    no_start = "CAST(NULL AS STRUCT<time: TIMESTAMP, service: STRING>) AS start"
    recorded = few.selectExpr("*", "true AS turn", "CAST(NULL AS STRING) AS target", no_start)
    request = Window.partitionBy("run", "number")
    order = request.orderBy("hop", "attempt", "turn", "seq")
    same = Window.partitionBy("run", "number", "hop", "attempt").orderBy("turn", "seq")
    turns = (
        recorded.unionByName(told)
        .withColumn(
            "start", f.first("start", True).over(same.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        )
        # the service of a hop is where the hop before it passed the request on to
        .withColumn("came_to", f.last("target", True).over(order.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumns({name: f.max(name).over(request) for name in _OF_RECORDS})
        .where("turn")
    )
    named = turns.withColumn(
        "service", f.expr("coalesce(nullif(service, ''), start.service, came_to, asked)")
    ).withColumn("began", f.expr("coalesce(began, start.time)"))
    if links is None:
        whole = named.withColumnRenamed("part", "request")
    else:
        whole = named.join(links.select("part", "root"), "part", "left").withColumn(
            "request", f.expr("coalesce(root, part)")
        )
    over = Window.partitionBy("request")
    placed = whole.withColumn(
        "position", f.row_number().over(over.orderBy(f.expr("coalesce(began, ended)"), "run", "hop", "attempt", "seq"))
    ).withColumn("time", f.max("done").over(over))  # fmt: skip
    return placed.selectExpr(
        "request", "position", "broker", "run", "number", "service", "hop", "attempt", "worker", "worker_peer", "worker_protocol",
        "began", "ended", "ending", *unit("time"),
    )  # fmt: skip
