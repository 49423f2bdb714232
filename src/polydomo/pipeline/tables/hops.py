"""``hops``: the dispatches of each request in order, over services (chains) and brokers (bridges)."""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOPS = """
SELECT request, position, broker, run, number, service, hop, attempt, worker, worker_peer, worker_protocol, principal,
    worker_principal, arrived,
    began, ended, unix_micros(began) - unix_micros(arrived) AS wait_us, unix_micros(ended) - unix_micros(began) AS run_us, ending,
        date, hour
FROM (
    SELECT request, 1 AS position, broker, run, number, last_service AS service, int(hops) AS hop, int(attempts) AS attempt, worker,
        worker_peer,
        worker_protocol, principal, worker_principal, accepted AS arrived, dispatched AS began, ended,
        IF(outcome = 'ok', 'final', 'failed') AS ending, date, hour
    FROM {requests} WHERE turns IS NULL AND dispatches > 0 AND attempts > 0 AND dispatched IS NOT NULL
    UNION ALL
    SELECT request, i + 1, x.broker, x.run, x.number, x.service, x.hop, x.attempt, x.worker, x.worker_peer, x.worker_protocol, x.principal,
        x.worker_principal, x.arrived, x.began, x.ended, x.ending, date, hour
    FROM {requests} LATERAL VIEW posexplode(turns) v AS i, x WHERE turns IS NOT NULL
)
"""


@table(
    "hops",
    "one dispatch of a request to a worker (a turn)",
    reads=["requests"],
    columns=columns(
        """
        request STRING -- id of the request in `requests`
        position INT -- its place among the request's turns, from 1
        broker STRING -- the broker that dispatched it
        run BIGINT -- that broker's run
        number BIGINT -- the request's number in that run
        service STRING -- the service of this turn
        hop INT -- how often the request had been forwarded before, at this broker
        attempt INT -- which attempt at this hop, from 1
        worker INT -- number of the worker in the run
        worker_peer STRING -- its address, if the journal has it
        worker_protocol STRING -- its protocol, if the journal has it
        principal STRING -- the client's principal, by the access file
        worker_principal STRING -- the worker's principal
        arrived TIMESTAMP -- when it came to this service's queue: accepted, requeued or forwarded
        began TIMESTAMP -- when it was dispatched; null if the journal's level does not record it
        ended TIMESTAMP -- when this turn ended
        wait_us BIGINT -- from `arrived` to `began`; null if that is not recorded
        run_us BIGINT -- from `began` to `ended`; null if that is not recorded
        ending STRING -- `final`, `failed`, `forwarded` or `requeued` (the worker was lost or left)
        """
    ),
)
def hops(requests: "DataFrame") -> "DataFrame":
    return sql(HOPS, requests=requests)
