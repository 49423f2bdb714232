"""``logs``: log records of services, joined to the requests for which they were written."""

from pyspark.sql import DataFrame

from polydomo.journal import schema
from polydomo.pipeline.tables.marks import marked, marks
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

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
        Column("request", "STRING", "id of the request, once it has ended; run and number find it later"),
        Column("outcome", "STRING", "how that request ended"),
        *UNIT,
    ),
)


def build(messages: DataFrame, parts: DataFrame) -> DataFrame:
    records = messages.where(f"event = '{schema.LOG}'").selectExpr(
        "time", "broker", "run", "seq", "service", "outcome AS level", "reason AS message", "peer", "number"
    )
    known = marked(parts.select("run", "number", "request", "outcome"), marks(records.where("number != 0")))
    return (
        records.join(known, ["run", "number"], "left")
        .na.fill("", ["request", "outcome"])
        .selectExpr("*", *unit("time"))
        .transform(TABLE.contract)
    )
