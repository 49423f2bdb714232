"""``topology``: which clients, services, workers and brokers call each other: the edges of a graph, hour by hour."""

from polydomo.pipeline.tables.table import UNIT, Column, Table

TABLE = Table(
    "topology",
    "one edge in one hour",
    (
        Column("window", "TIMESTAMP", "when the hour begins"),
        Column(
            "kind",
            "STRING",
            "`asks`: client to service; `serves`: service to worker; `passes`: service to service; `bridges`: broker to broker",
        ),
        Column("broker", "STRING", "the broker that recorded it"),
        Column("source", "STRING", "for a client or worker its protocol and host"),
        Column("target", "STRING", "for a client or worker its protocol and host"),
        Column("requests", "BIGINT", "requests that went this way"),
        Column("failed", "BIGINT", "... and did not end with `ok`"),
        Column("total_us", "BIGINT", "sum of their durations"),
        Column("p50_us", "DOUBLE", "their median duration"),
        Column("p99_us", "DOUBLE", "99th percentile"),
        *UNIT,
    ),
)
