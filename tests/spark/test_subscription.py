"""Publications as a stream: offsets survive kill -9, gaps are reported, nothing is doubled in the sink."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

import polydomo.testing
from polydomo.client.publisher import Publisher
from polydomo.errors import SettingError
from polydomo.spark.live_source import Wanted
from polydomo.spark.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 240.0


def test_a_spool_keeps_order_drops_a_repeated_last_value_and_records_gaps(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "a.")
    first: set[str] = set()
    # The same value twice on one connection counts.
    spool.add_publications([("a.x", b"1"), ("a.y", b"1"), ("a.x", b"1")], first)
    spool.add_gap("not connected")
    # After a reconnect the last value comes again.
    spool.add_publications([("a.x", b"1"), ("a.y", b"2"), ("a.x", b"1")], set())
    rows = [(row.n, row.topic, row.body, row.gap) for row in spool.between(0, 99)]
    assert rows == [
        (1, "a.x", b"1", None),
        (2, "a.y", b"1", None),
        (3, "a.x", b"1", None),
        (4, None, None, "not connected"),
        (5, "a.y", b"2", None),
        (6, "a.x", b"1", None),
    ]
    spool.forget(5)
    spool.close()
    again = Spool(tmp_path / "spool", "a.")
    assert [row.n for row in again.between(0, 99)] == [6] and again.last() == 6
    again.add_publications([("a.z", b"3")], set())
    assert again.last() == 7  # numbers are never used again
    again.forget(7)
    assert again.last() == 7
    with pytest.raises(SettingError, match="belongs to a stream of a"):
        Spool(tmp_path / "spool", "b.")


def test_options_are_checked() -> None:
    with pytest.raises(SettingError, match="option to"):
        Wanted.of({"subscribe": "a.*"})
    with pytest.raises(SettingError, match="option spool"):
        Wanted.of({"subscribe": "a.*", "to": "tcp://127.0.0.1:1"})
    wanted = Wanted.of({"subscribe": "b.*, a.", "to": "tcp://127.0.0.1:1", "spool": "x"})
    assert wanted.prefixes == ("a.", "b.")


def until(condition: object, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def in_sink(out: Path) -> list[dict[str, object]]:
    if not any(out.glob("*.parquet")):
        return []
    # the sink's own log says which files are its
    files = []
    for entry in sorted((out / "_spark_metadata").glob("[0-9]*")):
        files += [json.loads(line)["path"].removeprefix("file://") for line in entry.read_text().splitlines()[1:]]
    rows: list[dict[str, object]] = (
        ds.dataset(sorted(set(files)), format="parquet").to_table().to_pylist() if files else []
    )
    return rows


@pytest.mark.long
def test_last_values_first_then_what_is_published(
    spark: "SparkSession", broker: polydomo.testing.Broker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with Publisher(broker.url) as publisher:
        publisher.publish("heard.a", "before")
        assert publisher.flush()
        query = (
            spark.readStream.format("polydomo")
            .option("subscribe", "heard.*")
            .option("to", broker.url)
            .option("spool", str(tmp_path / "spool"))
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(out))
        )
        try:
            until(lambda: len(in_sink(out)) == 1, "the last value")
            for n in range(20):
                publisher.publish("heard.b", str(n))
            publisher.publish("other.topic", "not wanted")
            until(lambda: len(in_sink(out)) == 21, "what is published")
        finally:
            query.stop()
    rows = sorted(in_sink(out), key=lambda row: int(str(row["n"])))
    assert [row["topic"] for row in rows] == ["heard.a"] + ["heard.b"] * 20
    assert [row["body"] for row in rows] == [b"before", *(str(n).encode() for n in range(20))]


PROGRAM = """
import sys
from polydomo.pipeline import session
url, home = sys.argv[1:]
spark = session.build(master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})
frame = spark.readStream.format("polydomo").option("subscribe", "kill.*").option("to", url).option("spool", home + "/spool").load()
frame.writeStream.format("parquet").option("checkpointLocation", home + "/checkpoint").start(home + "/out").awaitTermination()
"""


@pytest.mark.long
def test_killed_five_times_it_misses_nothing_that_the_broker_had_and_doubles_nothing(
    broker: polydomo.testing.Broker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    number = 0
    with Publisher(broker.url) as publisher:
        for kill in range(6):
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, broker.url, str(tmp_path)], start_new_session=True
            )
            try:
                wanted = number
                until(
                    lambda wanted=wanted: (
                        not wanted or any(row["body"] == str(wanted).encode() for row in in_sink(out))
                    ),
                    "the last value of the time it was dead",
                )
                heard = len(in_sink(out))
                for _ in range(30):
                    number += 1
                    publisher.publish("kill.topic", str(number))
                    time.sleep(0.02)
                if kill < 5:
                    until(lambda heard=heard: len(in_sink(out)) > heard, "some of it")
                else:
                    last = str(number).encode()
                    until(lambda last=last: any(row["body"] == last for row in in_sink(out)), "all of it")
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            number += 1
            publisher.publish("kill.topic", str(number))  # nobody hears it: the last value has it
            assert publisher.flush()
    rows = sorted(in_sink(out), key=lambda row: int(str(row["n"])))
    bodies = [int(row["body"]) for row in rows if isinstance(row["body"], bytes)]
    assert bodies == sorted(set(bodies))  # in order, none twice
    gaps = [row for row in rows if row["gap"]]
    assert len(gaps) >= 5 and all("not connected" in str(row["gap"]) for row in gaps)
    missing = set(range(1, number)) - set(bodies)
    assert set(range(31, number, 31)) <= set(bodies)  # the values at each restart
    assert len([row["n"] for row in rows]) == len({row["n"] for row in rows})
    assert len(missing) < number / 2, missing
