"""A DataFrame through a service: every row once, in batches or one by one, and what becomes of failures."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from polydomo.errors import SettingError
from polydomo.spark import register, through
from polydomo.spark.through import _pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from polydomo.server.server import BrokerServer


def test_batches_of_arrow_come_back_with_every_row_once(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    found = through(
        spark.range(10_000, numPartitions=2), "doubled", to=broker.url, schema="id BIGINT, twice BIGINT", batch_rows=700
    )
    assert [field.name for field in found.schema] == ["id", "twice"]
    rows = sorted((row.id, row.twice) for row in found.collect())
    assert rows == [(n, 2 * n) for n in range(10_000)]


def test_one_request_for_each_row_with_plain_text(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    words = spark.createDataFrame([(n, f"word {n}") for n in range(500)], "id INT, word STRING")
    found = through(words, "upper", to=broker.url, schema="shout STRING", body="word")
    before = keyed_runs(broker)
    assert sorted(map(tuple, found.collect())) == [(n, f"word {n}", f"WORD {n}") for n in range(500)]
    assert keyed_runs(broker) - before == 500, "each request has a key of its own"


def test_a_rate_holds_over_all_tasks(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    words = spark.createDataFrame([(n, f"word {n}") for n in range(12)], "id INT, word STRING").repartition(4)
    found = through(words, "upper", to=broker.url, schema="shout STRING", body="word", rate="5/200ms", group="words")
    try:
        assert len(found.collect()) == 12
        with polydomo.Client(broker.url) as client:
            limits = {row["name"]: row["limits"] for row in client.services()}
            assert limits["upper"] == {"rate": "5/200ms", "per": "group"}
    finally:
        with polydomo.Client(broker.url) as client:
            client.call("polydomo.limit", b'{"service": "upper", "remove": true}')
    with pytest.raises(SettingError, match="rate"):
        through(words, "upper", to=broker.url, schema="shout STRING", body="word", rate="fast")


def keyed_runs(broker: polydomo.testing.Broker) -> int:
    """How many requests with a key the broker has run."""
    found: list[int] = []

    def look(server: "BrokerServer") -> bool:
        keyed = server.broker.keyed
        found.append(keyed.started if keyed is not None else 0)
        return True

    broker.wait_until(look)
    return found[-1]


def test_several_columns_are_a_json_object_and_so_is_the_reply(
    spark: "SparkSession", broker: polydomo.testing.Broker
) -> None:
    rows = spark.createDataFrame([(3, "a"), (4, "b")], "id INT, name STRING")
    schema = "score DOUBLE, when TIMESTAMP, label STRING, missing INT"
    found = through(rows, "score", to=broker.url, schema=schema, body=["id", "name"], keep=["name"])
    assert found.columns == ["name", "score", "when", "label", "missing"]
    moment = datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    made = [(row.name, row.score, row.when.astimezone(UTC), row.label, row.missing) for row in found.collect()]
    assert sorted(made) == [("a", 1.5, moment, "a", None), ("b", 2.0, moment, "b", None)]


def test_failures_as_nulls_with_their_reason(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    words = spark.createDataFrame([("good",), ("bad",)], "word STRING")
    found = through(words, "upper", to=broker.url, schema="shout STRING", body="word", on_error="null")
    rows = {row.word: (row.shout, row.reason) for row in found.collect()}
    assert rows["good"] == ("GOOD", None)
    shout, reason = rows["bad"]
    assert shout is None and reason.startswith("CallFailed: ") and "no such word" in reason


def test_failures_as_a_second_data_frame(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    good, bad = through(
        spark.range(1, 2501, numPartitions=1),
        "choosy",
        to=broker.url,
        schema="id BIGINT, twice BIGINT",
        batch_rows=100,
        on_error="collect",
    )
    failed = bad.collect()
    assert sorted(row.id for row in failed) == [*range(901, 1001), *range(1901, 2001)]
    assert all("unlucky" in row.reason for row in failed)
    assert sorted(row.id for row in good.collect()) == [n for n in range(1, 2501) if (n - 1) // 100 not in (9, 19)]
    assert good.columns == ["id", "twice"] and bad.columns == ["id", "reason"]
    good.unpersist()


def test_the_columns_come_from_the_schema_of_a_typed_service(
    spark: "SparkSession", broker: polydomo.testing.Broker
) -> None:
    orders = spark.createDataFrame([("pen", 3, "x"), ("ink", 4, "y")], "item STRING, amount INT, other STRING")
    found = through(orders, "price", to=broker.url, keep=["item"])
    types = {field.name: field.dataType.simpleString() for field in found.schema}
    assert types == {
        "item": "string", "net": "double", "currency": "string", "when": "timestamp", "tags": "array<string>", "note": "string",
    }  # fmt: skip
    rows = sorted((row.item, row.net, row.currency, row.tags, row.note) for row in found.collect())
    assert rows == [("ink", 4.0, "EUR", ["ink"], None), ("pen", 3.0, "EUR", ["pen"], None)]
    totals = through(orders, "total", to=broker.url)  # one argument is an object, too; the reply is a number
    assert sorted(row.result for row in totals.collect()) == [6, 8]
    with pytest.raises(SettingError, match="needs the argument 'amount'"):
        through(orders, "price", to=broker.url, body=["item"])
    with pytest.raises(SettingError, match="no argument 'other'"):
        through(orders, "price", to=broker.url, body=["item", "amount", "other"])
    with pytest.raises(SettingError, match="the service has no schema"):
        through(orders, "upper", to=broker.url, body="item")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"body": "nothing"}, "there is no column 'nothing'"),
        ({"on_error": "shrug"}, "on_error"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"keep": ["id"], "schema": "id BIGINT"}, "two columns 'id'"),
        ({"reply": "xml"}, "reply"),
    ],
)
def test_invalid_options_are_refused_before_any_work(
    spark: "SparkSession", options: dict[str, object], words: str
) -> None:
    given: dict[str, object] = {"to": "tcp://127.0.0.1:1", "schema": "a INT", **options}
    with pytest.raises(SettingError, match=words):
        through(spark.range(1), "echo", **given)  # type: ignore[arg-type]


def test_a_failed_request_fails_the_job_with_its_reason(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    words = spark.createDataFrame([("bad",)], "word STRING")
    with pytest.raises(Exception, match=r"a request to `upper` failed: CallFailed: .*no such word"):
        through(words, "upper", to=broker.url, schema="shout STRING", body="word").collect()
    with pytest.raises(Exception, match="the reply has no column 'nonsense'"):
        through(spark.range(3), "doubled", to=broker.url, schema="nonsense INT").collect()


def test_a_worker_lost_in_the_middle_costs_no_row(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    lost: list[polydomo.Call] = []

    def fragile(call: polydomo.Call) -> bytes:
        if len(lost) < 3:
            lost.append(call)
            raise RuntimeError("over DCP this loses the worker")
        return call.body

    worker = polydomo.Worker(broker.url, "dcp")
    worker.add("fragile", fragile)
    with worker:
        broker.wait_for("fragile")
        words = spark.createDataFrame([(f"{n}",) for n in range(50)], "word STRING")
        found = through(words, "fragile", to=broker.url, schema="echo STRING", body="word")
        assert sorted(map(tuple, found.collect())) == sorted((f"{n}", f"{n}") for n in range(50))
    assert len(lost) == 3


def test_as_a_function_of_sql(spark: "SparkSession", broker: polydomo.testing.Broker) -> None:
    register(spark, broker.url)
    spark.createDataFrame([("a",), (None,), ("c",)], "word STRING").createOrReplaceTempView("words")
    rows = spark.sql("SELECT word, CAST(polydomo_call('upper', word) AS STRING) AS shout FROM words").collect()
    assert {row.word: row.shout for row in rows} == {"a": "A", None: None, "c": "C"}


def test_requests_have_the_wanted_number_of_rows() -> None:
    import pyarrow as pa

    batches = [pa.RecordBatch.from_arrays([pa.array(range(n))], ["id"]) for n in (3, 0, 10, 1, 6)]
    sizes = [piece.num_rows for piece in _pieces(batches, 4)]
    assert sizes == [4, 4, 4, 4, 4]
    assert [piece.num_rows for piece in _pieces(batches, 7)] == [7, 7, 6]
    assert [value for piece in _pieces(batches, 7) for value in piece.column(0).to_pylist()] == [
        n for batch in batches for n in batch.column(0).to_pylist()
    ]
