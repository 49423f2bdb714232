"""``topology``: which clients, services, workers and brokers call each other: the edges of a graph, hour by hour."""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import GATHER, hour_of, percentile, placed, sql, window_of
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOST = "regexp_replace({peer}, ':[0-9]+$', '')"  # a peer without its port, which differs for every connection
# The edges of each request; ``passes`` are those between services.
EDGES = f"""
SELECT {hour_of("ended")} AS h, broker, int(total_bucket) AS bucket, int(outcome != 'ok') AS failed, total_us, e.kind, e.source,
    e.target FROM (
    SELECT *, array(
        struct('asks' AS kind, concat(client_protocol, ' ', {_HOST.format(peer="client_peer")}) AS source, service AS target),
        struct(IF(worker > 0, 'serves', NULL) AS kind, last_service AS source,
            concat(worker_protocol, ' ', {_HOST.format(peer="worker_peer")}) AS target),
        struct(IF(bridged > 0, 'bridges', NULL) AS kind, broker AS source, far_broker AS target)) AS edges
    FROM {{requests}}) LATERAL VIEW explode(edges) v AS e WHERE e.kind IS NOT NULL
UNION ALL
SELECT {hour_of("ended")}, broker, int(total_bucket), int(outcome != 'ok'), total_us, 'passes', turns[i].service, turns[i + 1].service
FROM {{requests}} LATERAL VIEW posexplode(turns) v AS i, x
WHERE turns IS NOT NULL AND x.ending = 'forwarded' AND i + 1 < size(turns)
"""
TOPOLOGY = f"""
WITH cells AS (
    SELECT h, kind, broker, source, target, bucket, count(*) AS n, sum(failed) AS failed, sum(total_us) AS total_us
    FROM (SELECT {GATHER} * FROM {{edges}}) GROUP BY h, kind, broker, source, target, bucket
),
summed AS (
    SELECT h, kind, broker, source, target, sum(n) AS requests, sum(failed) AS failed, sum(total_us) AS total_us,
        sort_array(collect_list(struct(bucket, n))) AS entries
    FROM cells GROUP BY h, kind, broker, source, target
)
SELECT {window_of("h")} AS window, kind, broker, source, target, requests, failed, total_us, {percentile("entries", "requests", 0.5)}
    AS p50_us,
    {percentile("entries", "requests", 0.99)} AS p99_us, {placed(window_of("h"))} FROM summed
"""


@table(
    "topology",
    "one edge in one hour",
    reads=["requests"],
    columns=columns(
        """
        window TIMESTAMP -- when the hour begins
        kind STRING -- `asks`: client to service; `serves`: service to worker; `passes`: service to service; `bridges`: broker to broker
        broker STRING -- the broker that recorded it
        source STRING -- for a client or worker its protocol and host
        target STRING -- for a client or worker its protocol and host
        requests BIGINT -- requests that went this way
        failed BIGINT -- ... and did not end with `ok`
        total_us BIGINT -- sum of their durations
        p50_us DOUBLE -- their median duration
        p99_us DOUBLE -- 99th percentile
        """
    ),
)
def topology(requests: "DataFrame") -> "DataFrame":
    return sql(TOPOLOGY, edges=sql(EDGES, requests=requests))
