"""One flow for each row of a DataFrame."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from polydomo.errors import SettingError
from polydomo.spark.row_flows import RowFlow
from polydomo.spark.sink import Sink
from polydomo.spark.sql_service import SqlService

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = """
name = "order"

[[node]]
name = "find"
service = "spark.sql"
kwargs = {sql = "SELECT name FROM items WHERE id = :id", args = {id = {column = "id"}}, format = "csv", summary = false}

[[node]]
name = "pages"
service = "upper"
map = {column = "pages"}

[[node]]
name = "book"
service = "book"
args = [{column = "client"}, {node = "find"}, {node = "pages"}]
"""


def described(text: str, row: dict[str, Any]) -> list[tuple[str, list[bytes]]]:
    """The nodes of the flow of a row, with their own frames."""
    found = RowFlow.of(text, list(row)).flow(row)
    return [
        (node.name, [*(str(one).encode() for one in node.row["args"] if isinstance(one, str)), *node.frames])  # type: ignore[attr-defined]
        for node in found.nodes
    ]


def test_columns_are_arguments() -> None:
    text = json.dumps(
        {
            "node": [
                {"name": "a", "service": "s", "args": [{"column": "text"}, {"column": "number"}, {"column": "raw"}, 7, "plain"]},
                {"name": "b", "service": "s", "args": [{"x": [{"column": "number"}, 2], "when": {"column": "when"}}]},
                {"name": "c", "service": "s", "kwargs": {"given": {"column": "text"}, "struct": {"column": "struct"}}},
                {"name": "d", "service": "s", "map": {"column": "list"}, "group": {"column": "text"}},
            ]
        }
    )  # fmt: skip
    row = {
        "text": "w",
        "number": 5,
        "raw": b"\xff",
        "when": datetime(2026, 1, 2),
        "struct": {"node": "a"},  # a value that looks like a reference is none
        "list": ["x", {"nodes": ["a"]}],
    }
    assert described(text, row) == [
        ("a", [b"w", b"plain", b"5", b"\xff", b"7"]),
        ("b", [b'{"x":[5,2],"when":"2026-01-02T00:00:00"}']),
        ("c", [b'"w"', b'{"node":"a"}']),
        ("d-1", [b"x"]),
        ("d-2", [b'{"nodes":["a"]}']),
    ]
    assert [node.row.get("group") for node in RowFlow.of(text, list(row)).flow(row).nodes][-1] == "w"


def test_the_key_of_a_flow_may_be_a_column() -> None:
    text = '{"key": {"column": "id"}, "node": [{"service": "s", "args": [{"column": "word"}]}]}'
    flow = RowFlow.of(text, ["id", "word", "more"])
    assert [flow.key({"id": value, "word": ""}) for value in ("a7", 7, None)] == ["a7", "7", ""]
    assert flow.columns == ("id", "word")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no-such.toml", "no-such.toml: cannot be read"),
        ("name = \n", "the text: cannot be read"),
        ('{"node": [{"service": "s", "args": [{"column": "x"}]}]}', "unknown column 'x'; the columns are a, b"),
        ('{"node": [{"service": "s", "args": [{"node": "x"}]}]}', "needs 'x', which is not a node"),
        ('{"node": [{"service": {"column": "a"}}]}', "service: must be text"),
        ('{"name": "empty"}', "it has no nodes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_any_task(text: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Sink.of({"to": "tcp://127.0.0.1:1", "flow": text}, ["a", "b"])


def test_options_of_requests_are_refused() -> None:
    with pytest.raises(SettingError, match="option body is for requests"):
        Sink.of({"to": "tcp://127.0.0.1:1", "flow": '{"node": [{"service": "s"}]}', "body": "a"}, ["a"])


def test_a_map_needs_an_array() -> None:
    flow = RowFlow.of('{"node": [{"name": "n", "service": "s", "map": {"column": "a"}}]}', ["a"])
    with pytest.raises(SettingError, match="node 'n': map: column 'a' must be an array, not 5"):
        flow.flow({"a": 5})


@pytest.fixture
def served(spark: "SparkSession") -> Any:
    """A broker with jobs, and workers of the services: ``spark.sql`` is one of them."""
    with polydomo.testing.broker(jobs=True) as broker:
        worker = polydomo.Worker(broker.url, concurrency=4)
        own = spark.newSession()
        own.createDataFrame([(1, "pen"), (2, "ink")], "id INT, name STRING").createOrReplaceTempView("items")
        service = SqlService(own, concurrency=2)
        worker.add("spark.sql", service.__call__, schema=service.schema)
        worker.add("upper", lambda call: call.text.upper())
        worker.add("book", lambda call: b"|".join(call.frames))
        with worker:
            yield broker


def bookings(broker: polydomo.testing.Broker, flows: int) -> list[str]:
    """What the flows have booked, when they have ended. There are no other flows."""
    with polydomo.Client(broker.url, timeout=240) as client:
        runs = [client.flow(row["flow"]) for row in client.flows()]
        assert len(runs) == flows
        return sorted(run.result("book", 240).text for run in runs)


def test_every_row_starts_one_flow_though_it_is_written_again(
    spark: "SparkSession", served: polydomo.testing.Broker, tmp_path: Path
) -> None:
    (tmp_path / "order.toml").write_text(ORDER)
    orders = spark.createDataFrame(
        [(1, "ann", ["a", "b"]), (2, "bob", [])], "id INT, client STRING, pages ARRAY<STRING>"
    ).repartition(1)
    written = orders.write.format("polydomo").mode("append").option("to", served.url)
    for _ in range(2):  # as when Spark repeats a task
        written.option("flow", str(tmp_path / "order.toml")).option("job_name", "nightly").save()
    assert bookings(served, 2) == ["ann|name\npen\n|A|B", "bob|name\nink\n"]
    bad = orders.write.format("polydomo").mode("append").option("to", served.url)
    with pytest.raises(Exception, match="map: column 'client' must be an array"):
        bad.option("flow", ORDER.replace('map = {column = "pages"}', 'map = {column = "client"}')).save()


def test_a_stream_starts_each_flow_once(spark: "SparkSession", served: polydomo.testing.Broker, tmp_path: Path) -> None:
    """As after a crash between the start of the flows and Spark's commit, with a file that was changed meanwhile."""
    spark.createDataFrame([(n, f"c{n}") for n in range(6)], "id INT, client STRING").write.parquet(str(tmp_path / "in"))
    text = 'name = "book"\n[[node]]\nname = "book"\nservice = "book"\nretries = 3\nargs = [{column = "client"}]\n'

    def run(text: str) -> None:
        rows = spark.readStream.schema("id INT, client STRING").parquet(str(tmp_path / "in"))
        sink = rows.writeStream.format("polydomo").option("to", served.url).option("flow", text)
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination(300)

    run(text)
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    run(text.replace("retries = 3", "retries = 4"))
    assert bookings(served, 6) == [f"c{n}" for n in range(6)]
