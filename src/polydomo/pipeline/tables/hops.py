"""``hops``: the dispatches of each request in order, over services (chains) and brokers (bridges)."""

from polydomo.pipeline.tables.table import UNIT, Column, Table

TABLE = Table(
    "hops",
    "one dispatch of a request to a worker (a turn)",
    (
        Column("request", "STRING", "id of the request in `requests`"),
        Column("position", "INT", "its place among the request's turns, from 1"),
        Column("broker", "STRING", "the broker that dispatched it"),
        Column("run", "BIGINT", "that broker's run"),
        Column("number", "BIGINT", "the request's number in that run"),
        Column("service", "STRING", "the service of this turn"),
        Column("hop", "INT", "how often the request had been forwarded before, at this broker"),
        Column("attempt", "INT", "which attempt at this hop, from 1"),
        Column("worker", "INT", "number of the worker in the run"),
        Column("worker_peer", "STRING", "its address, if the journal has it"),
        Column("worker_protocol", "STRING", "its protocol, if the journal has it"),
        Column("principal", "STRING", "the client's principal, by the access file"),
        Column("worker_principal", "STRING", "the worker's principal"),
        Column("arrived", "TIMESTAMP", "when it came to this service's queue: accepted, requeued or forwarded"),
        Column("began", "TIMESTAMP", "when it was dispatched; null if the journal's level does not record it"),
        Column("ended", "TIMESTAMP", "when this turn ended"),
        Column("wait_us", "BIGINT", "from `arrived` to `began`; null if that is not recorded"),
        Column("run_us", "BIGINT", "from `began` to `ended`; null if that is not recorded"),
        Column("ending", "STRING", "`final`, `failed`, `forwarded` or `requeued` (the worker was lost or left)"),
        *UNIT,
    ),
)
