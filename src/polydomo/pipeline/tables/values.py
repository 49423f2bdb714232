"""``values``: published values, topic by topic."""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import hour_of, placed, sql
from polydomo.pipeline.tables.table import columns, table

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
    columns=columns(
        """
        time TIMESTAMP -- when the broker received it
        broker STRING -- the broker
        run BIGINT -- its run
        seq BIGINT -- sequence number of the journal row
        topic STRING -- the topic
        peer STRING -- address of the publisher
        protocol STRING -- its protocol
        size BIGINT -- size of the value
        body BINARY -- the value, of topics that the settings name
        body_cut INT -- 1 if `body` is only the beginning
        last BOOLEAN -- whether it is the topic's last value in its hour
        """
    ),
)
def values(messages: "DataFrame") -> "DataFrame":
    return sql(VALUES, messages=messages)
