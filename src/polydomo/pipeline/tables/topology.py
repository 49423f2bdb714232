"""``topology``: who calls what, through which service, how often and how slow: the edges of a graph, hour by hour."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from polydomo.pipeline.tables.histograms import gathered, percentile_of
from polydomo.pipeline.tables.table import UNIT, Column, Table, hour_of, unit

TABLE = Table(
    "topology",
    "one edge in one hour",
    (
        Column("window", "TIMESTAMP", "when the hour begins"),
        Column(
            "kind",
            "STRING",
            "`asks`: a client a service; `serves`: a service a worker; `passes`: a service a service; `bridges`: a broker a broker",
        ),
        Column("broker", "STRING", "the broker at which it was seen"),
        Column("source", "STRING", "where from: for a client or worker its protocol and host"),
        Column("target", "STRING", "where to"),
        Column("requests", "BIGINT", "how many requests went that way"),
        Column("failed", "BIGINT", "... and did not end well"),
        Column("total_us", "BIGINT", "how long they took in all"),
        Column("p50_us", "DOUBLE", "their median duration"),
        Column("p99_us", "DOUBLE", "99th percentile"),
        *UNIT,
    ),
)


# A peer without its port, which is another one for every connection. Done for every row, so without a regular expression.
TAIL = "substring_index(peer, ':', -1)"
HOST = (
    "IF(kind IN ('asks', 'serves') AND tail >= '0' AND tail < ':' AND try_cast(tail AS BIGINT) IS NOT NULL AND tail != peer, "
    "left(peer, length(peer) - length(tail) - 1), peer)"
)


def build(requests: DataFrame, hops: DataFrame) -> DataFrame:
    measured = ["broker", "total_bucket", "outcome", "total_us", "ended"]
    asks = requests.selectExpr(
        "'asks' AS kind", "client_protocol AS protocol", "client_peer AS peer", "service AS name", *measured
    )
    serves = requests.where("worker > 0").selectExpr(
        "'serves' AS kind", "worker_protocol AS protocol", "worker_peer AS peer", "last_service AS name", *measured
    )
    bridges = requests.where("bridged > 0").selectExpr(
        "'bridges' AS kind", "'' AS protocol", "far_broker AS peer", "broker AS name", *measured
    )
    passed = hops.where("ending = 'forwarded'").selectExpr("request", "position + 1 AS position", "service AS name")
    then = hops.where("position > 1").selectExpr("request", "position", "service AS peer")
    whose = requests.where("hops > 0 OR bridged > 0").select("request", *measured)
    passes = passed.join(then, ["request", "position"]).join(whose, "request")
    passes = passes.selectExpr("'passes' AS kind", "'' AS protocol", "peer", "name", *measured)
    rows = asks.unionByName(serves).unionByName(bridges).unionByName(passes).selectExpr("*", f"{TAIL} AS tail").selectExpr(
        f"{hour_of('ended')} AS window", "kind", "broker", "protocol", f"{HOST} AS host", "name", "total_bucket", "total_us",
        "CAST(outcome != 'ok' AS BIGINT) AS failed",
    )  # fmt: skip
    key = ["window", "kind", "broker", "protocol", "host", "name"]
    cells = rows.groupBy(*key, "total_bucket").agg(
        f.count("*").alias("n"), f.sum("failed").alias("failed"), f.sum("total_us").alias("total_us")
    )
    edges = cells.groupBy(*key).agg(
        f.sum("n").alias("requests"),
        f.sum("failed").alias("failed"),
        f.sum("total_us").alias("total_us"),
        f.expr(gathered("total_bucket", "n")).alias("cells"),
    )
    far = "IF(kind IN ('asks', 'serves'), concat(protocol, ' ', host), host)"
    return edges.selectExpr(
        "*",
        f"IF(kind = 'asks', {far}, name) AS source",
        f"IF(kind = 'asks', name, {far}) AS target",
        f"{percentile_of('cells', 'requests', 0.5)} AS p50_us",
        f"{percentile_of('cells', 'requests', 0.99)} AS p99_us",
        *unit("window"),
    ).transform(TABLE.contract)
