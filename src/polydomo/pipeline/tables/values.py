"""``values``: published values, topic by topic."""

from polydomo.pipeline.tables.table import UNIT, Column, Table

TABLE = Table(
    "values",
    "one published value (level `messages`)",
    (
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
