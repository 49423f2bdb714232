"""``requests``: one row per request. What a request did on other brokers, over bridges, belongs to the one row of the
request it continues."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.pipeline.tables.marks import BIT, PLACE
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

TABLE = Table(
    "requests",
    "one request, from the broker that accepted it from its client",
    (
        Column("request", "STRING", "its id: 26 characters, sorting by the time of acceptance"),
        Column("broker", "STRING", "the broker that accepted it from the client"),
        Column("run", "BIGINT", "that broker's run"),
        Column("number", "BIGINT", "its number in the run"),
        Column("seq", "BIGINT", "of the journal's row that records it"),
        Column("service", "STRING", "the service the client asked for"),
        Column("last_service", "STRING", "the service at which it ended, if it was passed on"),
        Column("client", "INT", "number of the client's connection in the run"),
        Column("client_peer", "STRING", "the client's address"),
        Column("client_protocol", "STRING", "the client's protocol"),
        Column("worker", "INT", "number of the last worker that had it; 0 if none had"),
        Column("worker_peer", "STRING", "that worker's address"),
        Column("worker_protocol", "STRING", "that worker's protocol"),
        Column("accepted", "TIMESTAMP", "when the broker took it"),
        Column("first_dispatched", "TIMESTAMP", "when a worker first got it"),
        Column("dispatched", "TIMESTAMP", "when the last worker got it"),
        Column("first_partial", "TIMESTAMP", "when the first partial reply came"),
        Column("ended", "TIMESTAMP", "when it ended"),
        Column("wait_us", "BIGINT", "from acceptance to the first worker, or to the end if none got it"),
        Column("run_us", "BIGINT", "from the last worker's getting it to the end"),
        Column("total_us", "BIGINT", "from acceptance to the end"),
        Column("wait_bucket", "INT", "logarithmic bucket of `wait_us`"),
        Column("run_bucket", "INT", "logarithmic bucket of `run_us`"),
        Column("total_bucket", "INT", "logarithmic bucket of `total_us`"),
        Column("attempts", "INT", "workers that got it at its last hop"),
        Column("max_attempts", "INT", "how many were allowed; 0 is any"),
        Column("dispatches", "INT", "workers that got it, over all hops"),
        Column("hops", "INT", "how often it was passed on"),
        Column("partials", "INT", "partial replies that reached the client"),
        Column("request_bytes", "BIGINT", "its body as framed"),
        Column("reply_bytes", "BIGINT", "all replies that reached the client, as framed"),
        Column("outcome", "STRING", "`ok`, or the kind of failure"),
        Column("reason", "STRING", "of a failure, in words"),
        Column("trace", "STRING", "W3C trace context it came with"),
        Column(
            "parent", "STRING", "id of the request it continues on another broker, of which these tables have no row"
        ),
        Column("bridged", "INT", "how many other brokers it went through"),
        Column("far_broker", "STRING", "the last of them; empty if none"),
        Column("far_protocol", "STRING", "protocol of the worker that had it there"),
        *UNIT,
    ),
)

UNIT_NAMES = tuple(column.name for column in UNIT)
LINK = ("part", "root", "deep", "broker", "protocol")
BRIDGES_DOUBLED = 3  # a way over bridges has at most 8 brokers: 2 ** 3


def survey(rows: DataFrame) -> DataFrame:
    """One row about many: whether any went over a ``bridge``, when the ``earliest`` that had several workers was accepted,
    and ``doubtful``, the words (``marks.py``) in which a request is on record more than once: hardly ever any."""
    words = rows.selectExpr(
        "run", PLACE, f"{BIT} AS bit", "parent != '' AS bridge", "IF(dispatches > 1, accepted, NULL) AS earliest"
    ).groupBy("run", "word").agg(
        f.expr("bit_or(bit)").alias("bits"), f.count("*").alias("n"), f.max("bridge").alias("bridge"), f.min("earliest").alias("earliest")
    )  # fmt: skip
    return words.agg(
        f.max("bridge").alias("bridge"),
        f.min("earliest").alias("earliest"),
        f.expr("collect_list(IF(n > bit_count(bits), struct(run, word, bits), NULL))").alias("doubtful"),
    )


def twice(rows: DataFrame) -> DataFrame:
    """The requests (run, number) that are on record more than once, and at which sequence numbers (``seqs``), the first of them first."""
    return rows.groupBy("run", "number").agg(f.sort_array(f.collect_list("seq")).alias("seqs")).where("size(seqs) > 1")


def without(rows: DataFrame, records: Sequence[tuple[int, int, int]]) -> DataFrame:
    """The rows but for a few, ``run, number, seq`` each. Said in the plan's own words: hardly any row gets past the first comparison."""
    seqs = ", ".join(str(seq) for seq in sorted({seq for _, _, seq in records}))
    names = ", ".join(f"'{run} {number} {seq}'" for run, number, seq in records)
    return rows.where(f"NOT (seq IN ({seqs}) AND concat(run, ' ', number, ' ', seq) IN ({names}))")


def parts(rows: DataFrame, twice: DataFrame, some: DataFrame | None = None) -> DataFrame:
    """The journal's rows of kind ``requests``, each request of each run once: its first record counts.

    The few that are there twice are taken apart from the rest; ``some`` are rows among which they all are.
    """
    key = ["run", "number"]
    once = rows.join(f.broadcast(twice), key, "left_anti")
    order = Window.partitionBy(*key).orderBy("seq")
    more = (rows if some is None else some).join(f.broadcast(twice), key, "left_semi")
    return once.unionByName(more.withColumn("rank", f.row_number().over(order)).where("rank = 1").drop("rank"))


def links(parts: DataFrame) -> DataFrame:
    """Parts that continue a request of another broker (``part``), and that request (``root``), ``deep`` 1 below it.

    A part whose parent is in no journal given stands for itself, and is not here. ``broker`` and ``protocol`` are the
    part's own.
    """
    found = parts.where("parent != ''").selectExpr(
        "request AS part", "parent AS root", "1 AS deep", "broker", "worker_protocol AS protocol"
    )
    wanted = found.selectExpr("root AS request").distinct()
    known = (
        parts.select("request")
        .join(f.broadcast(wanted), "request", "left_semi")
        .selectExpr("request AS root")
        .distinct()
    )
    return found.join(f.broadcast(known), "root", "left_semi").select(*LINK)


def doubled(links: DataFrame) -> DataFrame:
    """The same, each reaching up to twice as far: done ``BRIDGES_DOUBLED`` times, ``root`` is the request that a client made.

    Whoever calls this settles what it returns before calling it again: the plan would double each time too.
    """
    up = links.selectExpr("part AS root", "root AS above", "deep AS more")
    return links.join(up, "root", "left").selectExpr(
        "part", "coalesce(above, root) AS root", "deep + coalesce(more, 0) AS deep", "broker", "protocol"
    )


def build(parts: DataFrame, links: DataFrame | None = None) -> DataFrame:
    """``links`` that are told to be broadcast, few as they are, spare every other row its way through a shuffle."""
    far = ["0 AS bridged", "'' AS far_broker", "'' AS far_protocol"]
    if links is not None:
        last = links.groupBy("root").agg(
            f.count("*").alias("bridged"),
            f.max_by(f.struct("broker", "protocol"), f.struct("deep", "part")).alias("far"),
        )
        parts = parts.join(links.selectExpr("part AS request"), "request", "left_anti").join(
            last.withColumnRenamed("root", "request"), "request", "left"
        )
        far = [
            "coalesce(bridged, 0) AS bridged",
            "coalesce(far.broker, '') AS far_broker",
            "coalesce(far.protocol, '') AS far_protocol",
        ]
    kept = [
        column.name
        for column in TABLE.columns
        if column.name in parts.columns and column.name not in ("bridged", *UNIT_NAMES)
    ]
    return parts.selectExpr(*kept, "time AS ended", *far, *unit("time")).transform(TABLE.contract)
