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


def closed(messages: DataFrame) -> DataFrame:
    """Connections ``run, connection`` with anything after they were closed."""
    events = (schema.DISCONNECTED, schema.ACCEPTED, schema.DISPATCHED, schema.REGISTERED)
    ends = f"event = '{schema.DISCONNECTED}'"
    return (
        messages.where(f.col("event").isin(*events) & (f.col("connection") != 0))
        .groupBy("run", "connection")
        .agg(f.expr(f"min(IF({ends}, seq, NULL))").alias("closed"), f.expr(f"max(IF({ends}, 0L, seq))").alias("active"))
        .where("closed < active")
        .select("run", "connection")
    )


BLOCK = 4096  # sequence numbers


def waiting(rows: DataFrame) -> DataFrame:
    """Rows ``run, service, seq`` of new requests that a service took while one given back was waiting.

    How many wait changes at few rows: these are walked through, and new requests are held against the stretches of the
    sequence in which any wait, block by block.
    """
    returned, *less = (counter for counter in rules.COUNTERS if counter.scope == SERVICE)
    change = f"IF({rules.counted(returned)}, 1, 0)" + "".join(f" - IF({rules.counted(counter)}, 1, 0)" for counter in less)
    order = Window.partitionBy("run", "service").orderBy("seq")
    stretches = (
        rows.where(" OR ".join(f"({rules.counted(counter)})" for counter in (returned, *less)))
        .selectExpr("run", "service", "seq", f"{change} AS change")
        .withColumn("left", f.sum("change").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("until", f.lead("seq").over(order))
        .where("left > 0")
    )
    taken = rows.where(f"event = '{schema.DISPATCHED}' AND attempt = 1")
    ends = taken.groupBy("run").agg(f.max("seq").alias("end"))
    blocks = (
        stretches.join(f.broadcast(ends), "run")
        .withColumn("until", f.expr("coalesce(until, end + 1)"))
        .where("until > seq + 1")
        .selectExpr("run", "service", "seq AS start", "until", f"explode(sequence(seq DIV {BLOCK}, until DIV {BLOCK})) AS block")
    )
    return (
        taken.selectExpr("run", "service", "seq", f"seq DIV {BLOCK} AS block")
        .join(f.broadcast(blocks), ["run", "service", "block"])
        .where("start < seq AND seq < until")
        .select("run", "service", "seq")
    )
