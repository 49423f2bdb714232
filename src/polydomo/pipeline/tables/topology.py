"""``topology``: who calls what, through which service, how often and how slow: the edges of a graph, hour by hour."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from polydomo.pipeline.tables.histograms import percentile
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

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


def _who(peer: str, protocol: str) -> str:
    """A peer without its port, which is another one for every connection."""
    return f"concat({protocol}, ' ', regexp_replace({peer}, ':[0-9]+$', ''))"


def build(requests: DataFrame, hops: DataFrame) -> DataFrame:
    measured = ["broker", "total_bucket", "outcome", "total_us", "ended"]
    asks = requests.selectExpr("'asks' AS kind", f"{_who('client_peer', 'client_protocol')} AS source", "service AS target", *measured)
    served = requests.where("worker > 0")
    serves = served.selectExpr(
        "'serves' AS kind", "last_service AS source", f"{_who('worker_peer', 'worker_protocol')} AS target", *measured
    )
    bridges = requests.where("bridged > 0").selectExpr("'bridges' AS kind", "broker AS source", "far_broker AS target", *measured)
    passed = hops.where("ending = 'forwarded'").selectExpr("request", "position + 1 AS position", "service AS source")
    then = hops.where("position > 1").selectExpr("request", "position", "service AS target")
    passes = passed.join(then, ["request", "position"]).join(requests.select("request", *measured), "request")
    passes = passes.selectExpr("'passes' AS kind", "source", "target", *measured)
    key = ["window", "kind", "broker", "source", "target"]
    rows = asks.unionByName(serves).unionByName(bridges).unionByName(passes).withColumn("window", f.expr("date_trunc('HOUR', ended)"))
    cells = rows.groupBy(*key, "total_bucket").agg(
        f.count("*").alias("n"), f.expr("sum(IF(outcome = 'ok', 0, 1))").alias("failed"), f.sum("total_us").alias("total_us")
    )
    edges = cells.groupBy(*key).agg(
        f.sum("n").alias("requests"),
        f.sum("failed").alias("failed"),
        f.sum("total_us").alias("total_us"),
        f.expr("map_from_entries(collect_list(struct(total_bucket, n)))").alias("histogram"),
    )
    return edges.selectExpr(
        "*", f"{percentile('histogram', 0.5)} AS p50_us", f"{percentile('histogram', 0.99)} AS p99_us", *unit("window")
    ).transform(TABLE.contract)
