"""``values``: what was published, topic by topic."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import schema
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

TABLE = Table(
    "values",
    "one value that was published (level `messages`)",
    (
        Column("time", "TIMESTAMP", "when the broker got it"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("seq", "BIGINT", "of the journal's row"),
        Column("topic", "STRING", "the topic"),
        Column("peer", "STRING", "address of the publisher"),
        Column("protocol", "STRING", "its protocol"),
        Column("size", "BIGINT", "bytes of the value"),
        Column("body", "BINARY", "the value, of topics that the settings name"),
        Column("body_cut", "INT", "1 if `body` is only the beginning"),
        Column(
            "last",
            "BOOLEAN",
            "whether it is the topic's last in its hour: the newest such row has the topic's last value",
        ),
        *UNIT,
    ),
)


def build(messages: DataFrame) -> DataFrame:
    newest = Window.partitionBy("broker", "topic", "date", "hour").orderBy(f.desc("time"), f.desc("seq"))
    return (
        messages.where(f"event = '{schema.PUBLISHED}'")
        .selectExpr(
            "time", "broker", "run", "seq", "topic", "peer", "protocol", "size", "body", "body_cut", *unit("time")
        )
        .withColumn("last", f.row_number().over(newest) == 1)
        .transform(TABLE.contract)
    )
