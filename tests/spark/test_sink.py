"""Rows as requests and publications, in batches and streams."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from polydomo.errors import SettingError
from polydomo.spark import through
from polydomo.spark.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Collector:
    """A worker that records its requests."""

    def __init__(self, broker: polydomo.testing.Broker, name: str) -> None:
        self.got: list[bytes] = []
        self.lock = threading.Lock()
        self.worker = polydomo.Worker(broker.url)
        self.worker.add(name, self.take)
        self.worker.start()
        broker.wait_for(name)

    def take(self, call: polydomo.Call) -> bytes:
        if call.body == b"bad":
            raise polydomo.CallFailed("bad", "no such row")
        with self.lock:
            self.got.append(call.body)
        return b""


@pytest.mark.long
def test_every_row_is_a_request(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    collector = Collector(broker, "collect")
    try:
        words = spark.createDataFrame([(n, f"word {n}") for n in range(300)], "id INT, word STRING").repartition(2)
        written = words.write.format("polydomo").mode("append").option("to", broker.url).option("service", "collect")
        written.option("body", "word").save()
        assert sorted(collector.got) == sorted(f"word {n}".encode() for n in range(300))
        collector.got.clear()
        written.option("body", "").save()
        assert sorted(json.loads(body)["id"] for body in collector.got) == list(range(300))
        bad = spark.createDataFrame([("bad",)], "word STRING").write.format("polydomo").mode("append")
        with pytest.raises(Exception, match=r"a request to `collect` failed: CallFailed: .*no such row"):
            bad.option("to", broker.url).option("service", "collect").save()
    finally:
        collector.worker.stop()


@pytest.mark.long
def test_a_stream_of_rows_as_requests(spark: "SparkSession", broker: polydomo.testing.Broker, tmp_path: Path) -> None:
    collector = Collector(broker, "streamed")
    try:
        for part in range(2):
            spark.range(part * 50, part * 50 + 50).selectExpr("CAST(id AS STRING) AS word").write.mode(
                "append"
            ).parquet(str(tmp_path / "in"))
            query = (
                spark.readStream.schema("word STRING")
                .parquet(str(tmp_path / "in"))
                .writeStream.format("polydomo")
                .option("to", broker.url)
                .option("service", "streamed")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(300)
        assert sorted(int(body) for body in collector.got) == list(range(100))
    finally:
        collector.worker.stop()


@pytest.mark.long
def test_every_row_is_a_publication(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    import asyncio

    from polydomo.client.subscriber import AsyncSubscriber

    async def last_values() -> dict[str, bytes]:
        async with AsyncSubscriber(broker.url, "sink.") as subscriber:
            return {topic: message.body for topic, message in [await subscriber.next() for _ in range(50)]}

    rows = spark.createDataFrame([(f"sink.{n}", n * 1.5) for n in range(50)], "topic STRING, celsius DOUBLE")
    write = rows.write.format("polydomo").mode("append").option("to", broker.url)
    write.option("topic_column", "topic").save()
    found = asyncio.run(asyncio.wait_for(last_values(), 60))
    assert found == {f"sink.{n}": json.dumps(n * 1.5).encode() for n in range(50)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"service": "a"}, "option to"),
        ({"to": "tcp://127.0.0.1:1"}, "one of the options"),
        ({"to": "tcp://127.0.0.1:1", "service": "a", "topic": "b"}, "one of the options"),
        ({"to": "tcp://127.0.0.1:1", "service": "a", "body": "x"}, "unknown column 'x'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Sink.of(options, ["a", "b"])


@pytest.mark.long
def test_durable_jobs_run_once_though_the_batch_is_written_again(spark: "SparkSession") -> None:
    with polydomo.testing.broker(jobs=True) as broker:
        collector = Collector(broker, "booked")
        try:
            rows = spark.range(40, numPartitions=2).selectExpr("CAST(id AS STRING) AS word")
            write = rows.write.format("polydomo").mode("append").option("to", broker.url).option("service", "booked")
            for _ in range(2):  # as when Spark repeats a task: the same name, partition and row
                write.option("durable", "true").option("job_name", "nightly").save()
            broker.wait_until(lambda _: len(collector.got) >= 40, 60.0)
            found = through(rows, "booked", to=broker.url, schema="reply STRING", body="word", durable=True)
            assert sorted(int(row.word) for row in found.collect()) == list(range(40))
            assert sorted(int(body) for body in collector.got) == sorted([*range(40), *range(40)])
        finally:
            collector.worker.stop()


@pytest.mark.long
def test_a_batch_that_a_stream_repeats_makes_no_second_job(spark: "SparkSession", tmp_path: Path) -> None:
    """As after a crash between the jobs and Spark's commit: the batch is written again under the same query and number."""
    with polydomo.testing.broker(jobs=True) as broker:
        collector = Collector(broker, "repeated")
        try:
            spark.range(60, numPartitions=3).selectExpr("CAST(id AS STRING) AS word").write.parquet(
                str(tmp_path / "in")
            )

            def run() -> None:
                rows = spark.readStream.schema("word STRING").parquet(str(tmp_path / "in"))
                sink = rows.writeStream.format("polydomo").option("to", broker.url).option("service", "repeated")
                sink = sink.option("durable", "true").option("checkpointLocation", str(tmp_path / "checkpoint"))
                sink.trigger(availableNow=True).start().awaitTermination(300)

            run()
            broker.wait_until(lambda _: len(collector.got) >= 60, 60.0)
            for file in (tmp_path / "checkpoint" / "commits").iterdir():
                file.unlink()
            run()
            broker.wait_until(
                lambda server: server.broker.durable is not None and not server.broker.durable.jobs.open, 60.0
            )
            assert sorted(int(body) for body in collector.got) == list(range(60))
        finally:
            collector.worker.stop()
