"""Items that must work on every kind of session, as a program: ``python -m tests.spark.everywhere master|remote URL BROKER DIRECTORY``.

Prints a JSON object of what it found. The services are those of ``conftest.py``, and ``booked``, which counts the runs of each body.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polydomo
from polydomo.client.publisher import Publisher
from polydomo.pipeline import session
from polydomo.spark import register, through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 240.0


def until(condition: "Callable[[], bool]", what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.2)


def batches(spark: "SparkSession", to: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    doubled = through(
        spark.range(2_000, numPartitions=2), "doubled", to=to, schema="id BIGINT, twice BIGINT", batch_rows=300
    )
    found["arrow"] = sorted((row.id, row.twice) for row in doubled.collect()) == [(n, 2 * n) for n in range(2_000)]
    words = spark.createDataFrame([(n, f"w{n}" if n else "bad") for n in range(50)], "id INT, word STRING")
    nulls = through(words, "upper", to=to, schema="shout STRING", body="word", on_error="null").collect()
    found["null"] = sorted((row.id, row.shout) for row in nulls if row.reason is None) == [
        (n, f"W{n}") for n in range(1, 50)
    ]
    good, bad = through(words, "upper", to=to, schema="shout STRING", body="word", on_error="collect")
    found["collect"] = (good.count(), [(row.word, "no such word" in row.reason) for row in bad.collect()])
    orders = spark.createDataFrame([("pen", 3)], "item STRING, amount INT")
    found["typed"] = [(row.net, row.tags) for row in through(orders, "price", to=to).collect()]
    register(spark, to)
    words.createOrReplaceTempView("words")
    called = spark.sql("SELECT CAST(polydomo_call('upper', word) AS STRING) AS shout FROM words WHERE id > 0")
    found["sql"] = sorted(row.shout for row in called.collect()) == sorted(f"W{n}" for n in range(1, 50))
    words.where("id > 0").write.format("polydomo").mode("append").option("to", to).option("service", "upper").option(
        "body", "word"
    ).save()
    job = words.where("id > 0").write.format("polydomo").mode("append").option("to", to).option("service", "booked")
    for _ in range(2):  # the second time finds the jobs of the first
        job.option("body", "word").option("durable", "true").option("job_name", "nightly").save()
    flow = json.dumps({"name": "words", "node": [{"service": "upper", "args": [{"column": "word"}]}]})
    each = words.where("id > 0").write.format("polydomo").mode("append").option("to", to).option("flow", flow)
    for _ in range(2):  # the second time finds the flows of the first
        each.option("job_name", "nightly").save()
    with polydomo.Client(to, timeout=PATIENCE) as client:
        found["flows"] = len(client.flows(limit=200))
    return found


def streams(spark: "SparkSession", to: str, scratch: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    spark.range(100, numPartitions=2).selectExpr("CAST(id AS STRING) AS word").write.parquet(str(scratch / "in"))

    def words() -> "DataFrame":
        return spark.readStream.schema("word STRING").parquet(str(scratch / "in"))

    shouts = through(words(), "upper", to=to, schema="shout STRING", body="word")
    query = shouts.writeStream.format("parquet").option("checkpointLocation", str(scratch / "c1"))
    query.trigger(availableNow=True).start(str(scratch / "shouts")).awaitTermination(int(PATIENCE))
    found["through"] = spark.read.parquet(str(scratch / "shouts")).select("word").distinct().count()

    out = str(scratch / "each")

    def each(batch: "DataFrame", number: int) -> None:
        made = through(batch, "upper", to=to, schema="shout STRING", body="word")
        made.write.mode("overwrite").parquet(f"{out}/batch={number}")

    query = words().writeStream.foreachBatch(each).option("checkpointLocation", str(scratch / "c2"))
    query.trigger(availableNow=True).start().awaitTermination(int(PATIENCE))
    found["foreachBatch"] = spark.read.parquet(out).count()

    sink = words().writeStream.format("polydomo").option("to", to).option("service", "booked").option("durable", "true")
    sink.option("checkpointLocation", str(scratch / "c3")).trigger(availableNow=True).start().awaitTermination(
        int(PATIENCE)
    )

    for kind in ("subscribe", "jobs"):
        name = "everywhere.*" if kind == "subscribe" else "booked"
        with Publisher(to) as publisher:
            publisher.publish("everywhere.a", "last value")
            publisher.flush()
        reader = spark.readStream.format("polydomo").option(kind, name).option("to", to)
        source = reader.option("spool", str(scratch / f"spool-{kind}")).load()
        table = str(scratch / f"read-{kind}")
        running = (
            source.writeStream.format("parquet").option("checkpointLocation", str(scratch / f"c-{kind}")).start(table)
        )

        def rows(table: str = table) -> int:
            try:
                return spark.read.parquet(table).count()
            except Exception:  # there is no file yet
                return 0

        wanted = 1 if kind == "subscribe" else 149
        try:
            until(lambda rows=rows, wanted=wanted: rows() >= wanted, kind)  # type: ignore[misc]
        finally:
            running.stop()
        found[kind] = rows()
    return found


def main() -> None:
    kind, url, to, scratch = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    conf = {"spark.sql.shuffle.partitions": "2"}
    if kind == "master":
        conf["spark.executor.memory"] = "600m"
    spark = session.build(conf=conf, **{kind: url})  # type: ignore[arg-type]
    try:
        found = {"batches": batches(spark, to), "streams": streams(spark, to, scratch)}
        with polydomo.Client(to, timeout=PATIENCE) as client:
            until(lambda: len(json.loads(client.call("runs").body)) == 149, "149 jobs")
            found["runs"] = json.loads(client.call("runs").body)
        print(json.dumps(found))
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
