"""Each table from a few rows whose figures can be told by hand."""

import math
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from polydomo.journal import histogram, schema
from tests.pipeline.journals import NOON, at, collected, frame, frames, message, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
from polydomo.pipeline.tables import TABLES, capacity, hops, logs, requests, services, topology, values, workers
from polydomo.pipeline.tables.capacity import Objective
from polydomo.pipeline.tables.histograms import percentile

# A request at broker 1 that goes over a bridge to broker 2, one that is given back and taken again, one passed on, one nobody serves.
CROSSED = record(1, 1, 0.0, 0.1, 1.0, worker_protocol="bridge")
FAR = record(1, 7, 0.2, 0.3, 0.9, run=2, parent=CROSSED["request"], worker_protocol="memo01", worker=5)
TWICE = record(9, 2, 2.0, 4.0, 5.0, worker=2, attempts=2, dispatches=2, first_dispatched=at(2.5), wait_us=500_000)
PASSED = record(
    20,
    3,
    10.0,
    12.0,
    13.0,
    service="echo",
    last_service="resize",
    hops=1,
    attempts=1,
    dispatches=2,
    worker=3,
    first_dispatched=at(10.5),
    wait_us=500_000,
)
REFUSED = record(30, 4, 20.0, None, 20.5, service="nobody", outcome="no-service", reason="nobody offers it")
RECORDS = [CROSSED, FAR, TWICE, PASSED, REFUSED]
MESSAGES = [
    message(2, schema.DISPATCHED, 2.5, number=2, attempt=1, worker=1, service="echo", client=1),
    message(
        3,
        schema.REQUEUED,
        3.0,
        number=2,
        attempt=1,
        worker=1,
        service="echo",
        client=1,
        queue=4,
        workers=2,
        peer="tcp://w:1",
    ),
    message(4, schema.DISPATCHED, 4.0, number=2, attempt=2, worker=2, service="echo", client=1),
    message(10, schema.DISPATCHED, 10.5, number=3, attempt=1, worker=1, service="echo", client=1),
    message(11, schema.FORWARDED, 11.5, number=3, attempt=1, worker=1, service="resize", client=1),
    message(12, schema.DISPATCHED, 12.0, number=3, attempt=1, hop=1, worker=3, service="resize", client=1),
    message(40, schema.LOG, 2.7, number=2, service="echo", outcome="warn", reason="disk is slow"),
    message(41, schema.LOG, 2.8, service="echo", outcome="info", reason="up"),
    message(42, schema.PUBLISHED, 1.0, topic="load", size=3, body=b"abc"),
    message(43, schema.PUBLISHED, 2.0, topic="load", size=3, body=b"def"),
    message(44, schema.REGISTERED, 0.05, worker=1, service="echo", peer="tcp://10.0.0.2:6000", protocol="dcp"),
    message(45, schema.LOST, 3.0, worker=1, service="echo"),
]


@pytest.fixture(scope="module")
def made(spark: "SparkSession") -> "dict[str, DataFrame]":
    messages, rows = frames(spark, [*RECORDS, *MESSAGES])
    parts = requests.parts(rows, requests.twice(rows)).localCheckpoint()
    links = requests.doubled(requests.links(parts)).localCheckpoint()
    found = {
        "requests": requests.build(parts, links).localCheckpoint(),
        "hops": hops.build(parts, links, messages).localCheckpoint(),
        "services": services.build(parts, messages).localCheckpoint(),
    }
    found["workers"] = workers.build(found["hops"], messages).localCheckpoint()
    found["topology"] = topology.build(found["requests"], found["hops"])
    found["capacity"] = capacity.build(found["services"], found["workers"], {"echo": Objective(2.5, 0.9)})
    found["logs"] = logs.build(messages, parts)
    found["values"] = values.build(messages)
    return found


def test_a_table_has_the_columns_it_states(made: "dict[str, DataFrame]") -> None:
    for name, table in made.items():
        stated = [(column.name, column.type.lower().replace(" ", "")) for column in TABLES[name].columns]
        assert [(n, t.lower()) for n, t in table.dtypes] == stated, name


def test_a_bridged_request_is_one(made: "dict[str, DataFrame]") -> None:
    assert collected(made["requests"], "broker", "number", "bridged", "far_broker", "far_protocol", "outcome") == [
        ("b1", 1, 1, "b2", "memo01", "ok"),
        ("b1", 2, 0, "", "", "ok"),
        ("b1", 3, 0, "", "", "ok"),
        ("b1", 4, 0, "", "", "no-service"),
    ]


def test_a_part_whose_parent_is_unknown_stands_for_itself(spark: "SparkSession") -> None:
    _, rows = frames(spark, [FAR])
    links = requests.links(rows)
    assert collected(requests.build(rows, links), "request", "parent", "bridged") == [
        (FAR["request"], FAR["parent"], 0)
    ]


def test_links_reach_over_eight_brokers(spark: "SparkSession") -> None:
    chain = [record(1, 1, 0.0, 0.1, 9.0)]
    for run in range(2, 9):
        chain.append(record(1, 1, 0.1 * run, 0.1 * run, 9.0 - 0.1 * run, run=run, parent=chain[-1]["request"]))
    _, rows = frames(spark, chain)
    links = requests.links(rows)
    for _ in range(requests.BRIDGES_DOUBLED):
        links = requests.doubled(links).localCheckpoint()
    assert collected(links, "root", "deep") == [(chain[0]["request"], deep) for deep in range(1, 8)]


def test_a_record_that_is_there_twice_counts_once(spark: "SparkSession") -> None:
    _, rows = frames(spark, [CROSSED, CROSSED | {"seq": 99, "outcome": "error"}, REFUSED])
    assert collected(requests.parts(rows, requests.twice(rows)), "number", "seq", "outcome") == [
        (1, 1, "ok"),
        (4, 30, "no-service"),
    ]


def test_hops_in_order(made: "dict[str, DataFrame]") -> None:
    found = made["hops"].join(made["requests"].selectExpr("request", "number AS of"), "request")
    assert collected(found, "of", "position", "broker", "service", "hop", "attempt", "worker", "ending", "run_us") == [
        (1, 1, "b1", "echo", 0, 1, 1, "final", 900_000),
        (1, 2, "b2", "echo", 0, 1, 5, "final", 600_000),
        (2, 1, "b1", "echo", 0, 1, 1, "requeued", 500_000),
        (2, 2, "b1", "echo", 0, 2, 2, "final", 1_000_000),
        (3, 1, "b1", "echo", 0, 1, 1, "forwarded", 1_000_000),
        (3, 2, "b1", "resize", 1, 1, 3, "final", 1_000_000),
    ]


def test_hops_of_a_journal_of_requests_only(spark: "SparkSession") -> None:
    """Without the rows of level ``messages`` it is known that there was a hop, not when it began."""
    kept = [row for row in MESSAGES if row["event"] not in schema.ONLY_MESSAGES]
    messages, rows = frames(spark, [*RECORDS, *kept])
    found = hops.build(rows, requests.links(rows), messages).where("number IN (2, 3)")
    assert collected(found, "number", "position", "service", "ending", "run_us") == [
        (2, 1, "echo", "requeued", None),
        (2, 2, "echo", "final", 1_000_000),
        (3, 1, "echo", "forwarded", None),
        (3, 2, "resize", "final", 1_000_000),
    ]


def test_windows_of_services(made: "dict[str, DataFrame]") -> None:
    ten = made["services"].where("seconds = 10 AND broker = 'b1'")
    names = ("service", "requests", "ok", "retried", "passed_on", "request_bytes", "reply_bytes", "queued", "queue_max")
    assert collected(ten, "window", *names) == sorted(
        [
            (NOON.astimezone(UTC).replace(tzinfo=None), "echo", 2, 2, 1, 0, 20, 40, 1, 4),
            (at(10).replace(tzinfo=None), "echo", 1, 1, 0, 1, 10, 20, 0, 0),
            (at(20).replace(tzinfo=None), "nobody", 1, 0, 0, 0, 10, 20, 0, 0),
        ],
        key=repr,
    )
    hour = made["services"].where("seconds = 3600 AND broker = 'b1' AND service = 'echo'").collect()[0]
    assert (hour.requests, hour.total_us, hour.outcomes) == (3, 7_000_000, {"ok": 3})
    assert hour.wait_histogram == {histogram.bucket(100_000): 1, histogram.bucket(500_000): 2}
    assert math.isclose(hour.total_p50_us, 3_000_000, rel_tol=0.01)
    assert hour.busy == pytest.approx((0.9 + 1.0 + 1.0) / 3600)


@pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_percentiles_are_the_brokers(spark: "SparkSession", part: float) -> None:
    counts = {histogram.bucket(us): us % 7 + 1 for us in range(1, 90_000, 97)}
    frame = spark.createDataFrame([(counts,), ({},)], "counts MAP<INT, BIGINT>")
    got = [row[0] for row in frame.selectExpr(percentile("counts", part)).collect()]
    assert got == pytest.approx([histogram.percentile(counts, part), 0.0])


def test_workers(made: "dict[str, DataFrame]") -> None:
    found = made["workers"].where("broker = 'b1'")
    assert collected(
        found, "worker", "service", "turns", "finals", "given_back", "lost", "run_us", "fellows", "outlier"
    ) == [
        (1, "echo", 3, 1, 1, 1, 2_400_000, 2, ""),
        (2, "echo", 1, 1, 0, 0, 1_000_000, 2, ""),
        (3, "resize", 1, 1, 0, 0, 1_000_000, 1, ""),
    ]


def test_an_hour_is_the_same_whatever_hours_are_made_with_it(spark: "SparkSession") -> None:
    """A worker that registered an hour ago; a request that was given back before the hour and ended in it; what was logged for it."""
    early = [
        message(1, schema.REGISTERED, 10.0, worker=1, service="echo", peer="tcp://10.0.0.2:6000", protocol="dcp"),
        message(2, schema.LOG, 3599.0, number=7, service="echo", outcome="info", reason="half done"),
        message(3, schema.LOG, 3599.0, number=8, service="echo", outcome="info", reason="long to go"),
        message(4, schema.REQUEUED, 3599.5, number=7, attempt=1, worker=1, service="echo", peer="tcp://10.0.0.2:6000"),
    ]
    later = [
        record(5, 7, 3598.0, 3599.6, 3601.0, attempts=2, dispatches=2),
        record(6, 8, 3598.0, 3601.0, 7201.0),
    ]
    messages, parts = frames(spark, early + later)
    turns = hops.build(parts, None, messages)
    none = frame(spark, schema.MESSAGES, [])
    columns = ("hour", "worker", "peer", "protocol", "turns", "given_back", "present_us")
    second = collected(workers.build(turns, messages).where("hour = 13"), *columns)
    assert second == collected(workers.build(turns.where("hour = 13"), none), *columns)
    assert [row[:6] for row in second] == [(13, 1, "tcp://10.0.0.2:6000", "dcp", 2, 1)]
    said = logs.build(messages, parts)
    assert collected(said, "number", "outcome") == [(7, "ok"), (8, "")]


def test_a_slow_worker_is_an_outlier(spark: "SparkSession") -> None:
    rows = [record(i, i, i, i + 0.1, i + (0.9 if i % 3 == 0 else 0.3), worker=1 + i % 3) for i in range(1, 100)]
    messages, parts = frames(spark, rows)
    found = workers.build(hops.build(parts, requests.links(parts), messages), messages)
    assert collected(found, "worker", "turns", "outlier") == [(1, 33, "slow"), (2, 33, ""), (3, 33, "")]


def test_topology(made: "dict[str, DataFrame]") -> None:
    assert collected(made["topology"], "kind", "source", "target", "requests", "failed") == [
        ("asks", "mdp01 tcp://10.0.0.1", "echo", 3, 0),
        ("asks", "mdp01 tcp://10.0.0.1", "nobody", 1, 1),
        ("bridges", "b1", "b2", 1, 0),
        ("passes", "echo", "resize", 1, 0),
        ("serves", "echo", "bridge tcp://10.0.0.2", 1, 0),
        ("serves", "echo", "dcp tcp://10.0.0.2", 1, 0),
        ("serves", "resize", "dcp tcp://10.0.0.2", 1, 0),
    ]


def test_the_budget_of_an_objective(made: "dict[str, DataFrame]") -> None:
    """Of three requests of ``echo`` two took 3 s; 2.5 s are allowed, to 9 of 10."""
    (row,) = made["capacity"].where("broker = 'b1' AND service = 'echo'").collect()
    assert (row.requests, row.within, row.objective_us) == (3, 1, 2_500_000)
    assert row.budget_used == pytest.approx((2 / 3) / 0.1)
    assert row.capacity is None  # too few to tell


def test_capacity_is_near_what_erlang_says(spark: "SparkSession") -> None:
    """Poisson arrivals and exponential service at one worker: the wait passes 4 times the service time at 80 % utilisation."""
    import random

    dice = random.Random(5)
    clock, free, rows = 0.0, 0.0, []
    for i in range(1, 3001):
        clock += dice.expovariate(1.0)
        began = max(clock, free)
        free = began + dice.expovariate(2.0)
        rows.append(record(i, i, clock, began, free))
    messages, parts = frames(spark, rows)
    made = services.build(parts, messages)
    turns = hops.build(parts, requests.links(parts), messages)
    (row,) = capacity.build(made, workers.build(turns, messages), {"*": Objective(2.0, 0.99)}).collect()
    assert row.service_us == pytest.approx(500_000, rel=0.1)
    assert row.service_scv == pytest.approx(1.0, abs=0.25)
    assert row.utilisation == pytest.approx(0.5, abs=0.06)
    assert row.capacity == pytest.approx(1.6, rel=0.12)


def test_logs_know_their_requests(made: "dict[str, DataFrame]") -> None:
    assert collected(made["logs"], "level", "message", "request", "outcome") == [
        ("info", "up", "", ""),
        ("warn", "disk is slow", TWICE["request"], "ok"),
    ]


def test_values_and_the_last(made: "dict[str, DataFrame]") -> None:
    assert collected(made["values"], "topic", "size", "last") == [("load", 3, False), ("load", 3, True)]
    assert bytes(made["values"].where("last").collect()[0].body) == b"def"
