"""``logs``: log records of services, joined to the requests for which they were written."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from polydomo.journal import schema
from polydomo.pipeline.tables.marks import marked, marks
from polydomo.pipeline.tables.table import UNIT, Column, Table, hour_of, unit

TABLE = Table(
    "logs",
    "one log record",
    (
        Column("time", "TIMESTAMP", "when the broker got it"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("seq", "BIGINT", "of the journal's row"),
        Column("service", "STRING", "the service that wrote it"),
        Column("level", "STRING", "how grave it is"),
        Column("message", "STRING", "its text"),
        Column("peer", "STRING", "address of the worker that sent it"),
        Column("number", "BIGINT", "number of the request in the run; 0 if it was written for none"),
        Column("request", "STRING", "id of the request, if it ended in this hour or the next; run and number find any"),
        Column("outcome", "STRING", "how that request ended"),
        *UNIT,
    ),
)


def build(messages: DataFrame, parts: DataFrame) -> DataFrame:
    records = messages.where(f"event = '{schema.LOG}'").selectExpr(
        "time", "broker", "run", "seq", "service", "outcome AS level", "reason AS message", "peer", "number"
    )
    ended = parts.selectExpr("run", "number", "request", "outcome", "time AS ended")
    known = marked(ended, marks(records.where("number != 0"))).alias("known")
    # bounded, so that it does not matter which hours are made at the same time
    hour = hour_of("records.time")
    near = f"records.run = known.run AND records.number = known.number AND ended >= {hour} AND ended < {hour} + INTERVAL 2 HOURS"
    return (
        records.alias("records")
        .join(known, f.expr(near), "left")
        .select("records.*", "request", "outcome")
        .na.fill("", ["request", "outcome"])
        .selectExpr("*", *unit("time"))
        .transform(TABLE.contract)
    )
