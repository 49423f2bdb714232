"""The journal of a real broker that serves requests with idempotency keys: Spark makes the same tables as plain Python."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import polydomo
from polydomo.errors import CallFailed
from polydomo.journal import schema
from polydomo.journal.reading.reader import conform, read_rows
from polydomo.pipeline import batch
from polydomo.pipeline.tables import TABLES
from tests.cli.shell import Broker
from tests.pipeline.comparing import comparable, content, hours_are_right, table_rows
from tests.pipeline.journals import Row
from tests.pipeline.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 30


def slow(call: polydomo.Call) -> str:
    time.sleep(0.05)
    if call.text.endswith("fails"):
        raise CallFailed("no", "the request asks for a failure")
    return call.text.upper()


def send(url: str) -> None:
    """Sends each key three times at once, and each body once without a key. Every third one fails."""
    worker = polydomo.Worker(url, concurrency=4)
    worker.add("slow", slow)
    with worker, polydomo.Client(url, timeout=60.0) as one, polydomo.Client(url, timeout=60.0) as other:
        for n in range(KEYS):
            body = f"{n} fails" if n % 3 == 0 else f"{n}"
            calls = [client.submit("slow", body, key=f"order-{n}") for client in (one, other, one)]
            calls.append(other.submit("slow", body))
            for call in calls:
                if n % 3:
                    assert call.result().text == body.upper()
                else:
                    with pytest.raises(CallFailed):
                        call.result()


def rows_of(path: Path, kind: str) -> list[Row]:
    found = read_rows(str(path))
    assert found is not None
    return conform(found, kind).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", [schema.MESSAGES, schema.REQUESTS])
def test_spark_makes_the_same_tables(spark: "SparkSession", tmp_path: Path, level: str) -> None:
    with Broker(tmp_path / "data", "--journal", level) as broker:
        send(broker.url)
    journal, tables = tmp_path / "data" / "journal", tmp_path / "tables"
    assert not batch.run([str(journal)], str(tables), session=spark).problems
    hours_are_right(tables)
    rows = [
        row
        for kind in schema.KINDS
        for path in journal.glob(f"kind={kind}/**/*.parquet")
        for row in rows_of(path, kind)
    ]
    found, expected = content(tables), Reference(rows).tables
    for name in TABLES:
        assert found[name] == comparable(name, expected[name]), name
    keyed = [row for row in table_rows(tables, "requests") if row["key"]]
    assert keyed and {row["keyed"] for row in keyed} <= {"first", "joined"}
    if level == schema.MESSAGES:  # at level requests, the journal has no row for the first one
        assert Counter(row["key"] for row in keyed) == {f"order-{n}": 3 for n in range(KEYS)}
