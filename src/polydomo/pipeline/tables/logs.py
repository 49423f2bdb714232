"""``logs``: log records of services, joined to the requests for which they were written."""

from polydomo.pipeline.tables.table import UNIT, Column, Table

TABLE = Table(
    "logs",
    "one log record",
    (
        Column("time", "TIMESTAMP", "when the broker received it"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("seq", "BIGINT", "sequence number of the journal row"),
        Column("service", "STRING", "the service that wrote it"),
        Column("level", "STRING", "its level"),
        Column("message", "STRING", "its text"),
        Column("peer", "STRING", "address of the worker that sent it"),
        Column("number", "BIGINT", "number of the request in the run; 0 if it was written for none"),
        Column("request", "STRING", "id of the request, if it ended in this hour or the next; run and number find any"),
        Column("outcome", "STRING", "how that request ended"),
        *UNIT,
    ),
)
