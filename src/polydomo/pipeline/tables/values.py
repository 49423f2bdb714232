"""``values``: published values, topic by topic."""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import hour_of, placed, sql
from polydomo.pipeline.tables.table import UNIT, Column, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUES = f"""
WITH published AS (SELECT *, {hour_of("time")} AS h FROM {{messages}} WHERE event = 'published'),
newest AS (SELECT broker, topic, h, max(struct(time, seq)) AS last FROM published GROUP BY broker, topic, h)
SELECT p.time, p.broker, p.run, p.seq, p.topic, p.peer, p.protocol, p.size, p.body, p.body_cut,
    n.last = struct(p.time, p.seq) AS last, {placed("p.time")}
FROM published p JOIN newest n ON n.broker = p.broker AND n.topic = p.topic AND n.h = p.h
"""


@table(
    "values",
    "one published value (level `messages`)",
    reads=["messages"],
    columns=(
        Column("time", "TIMESTAMP", "when the broker received it"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("seq", "BIGINT", "sequence number of the journal row"),
        Column("topic", "STRING", "the topic"),
        Column("peer", "STRING", "address of the publisher"),
        Column("protocol", "STRING", "its protocol"),
        Column("size", "BIGINT", "size of the value"),
        Column("body", "BINARY", "the value, of topics that the settings name"),
        Column("body_cut", "INT", "1 if `body` is only the beginning"),
        Column("last", "BOOLEAN", "whether it is the topic's last value in its hour"),
        *UNIT,
    ),
)
def values(messages: "DataFrame") -> "DataFrame":
    return sql(VALUES, messages=messages)
