"""What keeps the audit from sorting every row by request, by worker, by connection and by service: aggregates of fixed
width that prove most keys to be without a breach of the rules they know. Only what a screen lets through is looked at
row by row."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import rules, schema
from polydomo.journal.rules import CONNECTION, REQUEST, SERVICE
from polydomo.pipeline.tables.marks import BIT, PLACE

# The rules that each screen knows. A rule that none knows is searched for among all rows.
KNOWN: dict[tuple[str, ...], tuple[str, ...]] = {
    REQUEST: (
        "one-outcome", "one-record", "some-outcome", "outcome-recorded", "nothing-after-outcome", "one-holder", "fenced", "to-the-asker",
    ),
    CONNECTION: ("nothing-after-closing",),
    SERVICE: ("given-back-first",),
}  # fmt: skip

_STEPS = {
    schema.ACCEPTED: 1, schema.DISPATCHED: 2, schema.FINAL: 3, schema.QUEUED: 4, schema.PARTIAL: 5, schema.FAILED: 6, schema.REQUEUED: 7,
    schema.FORWARDED: 8,
}  # fmt: skip
_STEP = f"CASE event {' '.join(f'WHEN {event!r} THEN {code}' for event, code in _STEPS.items())} END"
_HOLDS = "step IN (2, 3, 5, 8)"  # says which worker has the request


def lives(messages: DataFrame) -> DataFrame:
    """Rows ``run, number, plain``: whether all that the messages say of a request is its plainest life.

    It was accepted, then handed out at most once, that worker alone replied to it, and then it had its outcome; all
    with one client, and nothing else happened before or after.
    """
    rows = messages.where(f.col("event").isin(*_STEPS) & (f.col("number") != 0)).selectExpr(
        "run", "number", f"{_STEP} AS step", "seq", "client", "worker * 65536L + attempt AS holder"
    )
    # what a row is stands beside its sequence number, so that the first and the last of some tell what they are: two
    # acceptances, or none, leave another row first, and so on
    digits = {1: 0, 2: 16, 3: 32, 6: 32, 7: 48, 8: 48}
    counts = f"CASE step {' '.join(f'WHEN {step} THEN {1 << digit}L' for step, digit in digits.items())} ELSE 0L END"
    once = 1 + (1 << 32)  # accepted, and ended
    lived = rows.groupBy("run", "number").agg(
        f.expr(f"sum({counts})").alias("counts"),
        f.expr("min(2 * seq + IF(step = 1, 0, 1))").alias("first"),
        f.expr("max(2 * seq + IF(step IN (3, 6), 1, 0))").alias("last"),
        f.expr(f"min(IF({_HOLDS}, 2 * seq + IF(step = 2, 0, 1), NULL))").alias("held"),
        f.min("client").alias("least_client"),
        f.max("client").alias("most_client"),
        f.expr(f"min(IF({_HOLDS}, holder, NULL))").alias("least_holder"),
        f.expr(f"max(IF({_HOLDS}, holder, NULL))").alias("most_holder"),
    )
    return lived.selectExpr(
        "run", "number",
        f"first % 2 = 0 AND last % 2 = 1 AND least_client = most_client AND ((counts = {once} AND held IS NULL) "
        f"OR (counts = {once + (1 << 16)} AND held % 2 = 0 AND least_holder = most_holder)) AS plain",
    )  # fmt: skip


def records(requests: DataFrame) -> DataFrame:
    """Rows ``run, word, bits, n``: which requests of each word are on record, and how many records there are."""
    return requests.selectExpr("run", PLACE, f"{BIT} AS bit").groupBy("run", "word").agg(
        f.expr("bit_or(bit)").alias("bits"), f.count("*").alias("n")
    )  # fmt: skip


def suspects(messages: DataFrame, requests: DataFrame) -> DataFrame:
    """The marks of requests that may be in breach."""
    lived = lives(messages).selectExpr("run", PLACE, f"{BIT} AS bit", "plain").groupBy("run", "word").agg(
        f.expr("bit_or(bit)").alias("seen"), f.expr("bit_or(IF(plain, bit, 0L))").alias("plain")
    )  # fmt: skip
    both = lived.selectExpr("run", "word", "seen", "plain", "0L AS recorded", "0L AS n").unionByName(
        records(requests).selectExpr("run", "word", "0L AS seen", "0L AS plain", "bits AS recorded", "n")
    )
    compared = both.groupBy("run", "word").agg(
        *(f.expr(f"bit_or({name})").alias(name) for name in ("seen", "plain", "recorded")), f.sum("n").alias("n")
    )
    return compared.selectExpr(
        "run", "word", "(seen & ~(plain & recorded)) | IF(n > bit_count(recorded), recorded, 0L) AS bits"
    ).where("bits != 0")  # fmt: skip


BLOCK = 1024  # sequence numbers


def passed(messages: DataFrame, rare: DataFrame) -> DataFrame:
    """Rows ``run, seq, connection, service``: of a ``connection`` that was closed before, or of a new request that a ``service`` took
    while one given back was waiting; null what it is not. ``rare`` are the messages of which there are few (``rare.py``).

    All that closes a connection, and that changes how many wait, is among the few; what was done meanwhile is held
    against them as it is read.
    """
    gone = closed(rare)
    blocks = waiting(messages, rare)
    new = f"event = '{schema.DISPATCHED}' AND attempt = 1"
    return (
        messages.where(f.col("event").isin(schema.ACCEPTED, schema.DISPATCHED, schema.REGISTERED))
        .selectExpr("run", "seq", "connection", "service", f"IF({new}, seq DIV {BLOCK}, NULL) AS block")
        .join(f.broadcast(gone), ["run", "connection"], "left")
        .join(f.broadcast(blocks), ["run", "service", "block"], "left")
        .selectExpr(
            "run", "seq", "IF(closed < seq, connection, NULL) AS connection", "IF(start < seq AND seq < until, service, NULL) AS service"
        )
        .where("connection IS NOT NULL OR service IS NOT NULL")
        .distinct()
    )  # fmt: skip


def closed(rare: DataFrame) -> DataFrame:
    """Rows ``run, connection, closed``: connections and when each was first closed."""
    ends = rare.where(f"event = '{schema.DISCONNECTED}' AND connection != 0")
    return ends.groupBy("run", "connection").agg(f.min("seq").alias("closed"))


def waiting(messages: DataFrame, rare: DataFrame) -> DataFrame:
    """Rows ``run, service, block, start, until``: the stretches of the sequence in which requests that were given back wait for a
    service, in every block of the sequence that they touch.

    How many wait changes at few rows: these are walked through.
    """
    returned, *less = (counter for counter in rules.COUNTERS if counter.scope == SERVICE)
    change = f"IF({rules.counted(returned)}, 1, 0)" + "".join(
        f" - IF({rules.counted(counter)}, 1, 0)" for counter in less
    )
    order = Window.partitionBy("run", "service").orderBy("seq")
    stretches = (
        rare.where(" OR ".join(f"({rules.counted(counter)})" for counter in (returned, *less)))
        .selectExpr("run", "service", "seq", f"{change} AS change")
        .withColumn("left", f.sum("change").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("until", f.lead("seq").over(order))
        .where("left > 0 AND (until IS NULL OR until > seq + 1)")
        .localCheckpoint()
    )
    if not stretches.where("until IS NULL").isEmpty():
        ends = messages.groupBy("run").agg(f.max("seq").alias("end"))
        stretches = stretches.join(f.broadcast(ends), "run").withColumn("until", f.expr("coalesce(until, end + 1)"))
    return stretches.selectExpr(
        "run", "service", f"explode(sequence(seq DIV {BLOCK}, until DIV {BLOCK})) AS block", "seq AS start", "until"
    )
