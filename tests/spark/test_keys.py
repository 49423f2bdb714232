"""Requests of a task that Spark runs twice at a time: each runs once. ``through``, the SQL function and the sink."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import TaskContext

import polydomo
import polydomo.testing
from polydomo.server.server import BrokerServer
from polydomo.spark.concurrent_calls import Target
from polydomo.spark.keys import RequestKeys, job_prefix, run_prefix
from polydomo.spark.sink import Sink
from polydomo.spark.sql_function import run_calls
from polydomo.spark.through import ThroughPlan, run_task
from tests.spark.test_fleet import cluster

WAIT = 60.0  # seconds: far more than anything here takes
ROWS = 20


@pytest.fixture
def task() -> Iterator[TaskContext]:
    """This process is a Python worker of Spark in a task, as far as a task can see."""
    before = TaskContext._taskContext
    context = TaskContext()  # from now on it is the current one
    context._stageId, context._partitionId, context._localProperties = 3, 5, {}
    yield context
    TaskContext._taskContext = before


@pytest.fixture
def counted() -> Iterator["tuple[polydomo.testing.Broker, Counter[str]]"]:
    """A worker that counts its runs, and lets none end before every request of a second copy has joined the first one's."""
    runs: Counter[str] = Counter()
    go_on = threading.Event()
    with polydomo.testing.broker() as broker:
        worker = polydomo.Worker(broker.url, concurrency=2 * ROWS)

        @worker.service("counted")
        def count(call: polydomo.Call) -> str:
            runs[call.text] += 1
            assert go_on.wait(WAIT)
            return call.text.upper()

        with worker:

            def let_go() -> None:
                broker.wait_until(joined(ROWS), WAIT)
                go_on.set()

            threading.Thread(target=let_go).start()
            yield broker, runs
            go_on.set()


def joined(count: int) -> "Callable[[BrokerServer], bool]":
    """Whether that many requests have joined others."""
    return lambda server: server.broker.keyed is not None and server.broker.keyed.joined >= count


def by_through(to: str) -> int:
    text = pa.schema([("shout", pa.string())])
    plan = ThroughPlan(Target(to), "counted", ("word",), 7, "raise", (), "bytes", text, text, "a-run")
    words = pa.record_batch({"word": [f"w{n % (ROWS // 2)}" for n in range(ROWS)]})  # each of them twice
    return sum(batch.num_rows for batch in run_task(plan, [words]))


def by_sql(to: str) -> int:
    words = pa.array([f"w{n % (ROWS // 2)}" for n in range(ROWS)])
    columns = iter([(pa.array(["counted"] * ROWS), words)])
    return sum(len(found) for found in run_calls(Target(to), columns, "a-run"))


def by_sink(to: str) -> int:
    words = pa.record_batch({"word": [f"w{n % (ROWS // 2)}" for n in range(ROWS)]})
    return Sink(Target(to), "counted", "", "", ("word",), "a-run").write(iter([words]))


@pytest.mark.parametrize("way", [by_through, by_sql, by_sink])
def test_a_second_copy_of_a_task_runs_nothing_again(
    way: Callable[[str], int], task: TaskContext, counted: "tuple[polydomo.testing.Broker, Counter[str]]"
) -> None:
    broker, runs = counted
    with ThreadPoolExecutor(2) as threads:
        copies = [threads.submit(way, broker.url) for _ in range(2)]
        assert [copy.result(WAIT) for copy in copies] == [ROWS, ROWS]
    assert runs == {f"w{n}": 2 for n in range(ROWS // 2)}  # twice in the data


def test_which_keys_are_equal(task: Any) -> None:
    first = run_prefix("name")
    assert first == "name/3/5" and job_prefix("name") == "name/5"
    task._partitionId = 6
    assert run_prefix("name") == "name/3/6"
    task._stageId = 4  # the DataFrame is computed once more
    assert run_prefix("name") == "name/4/6" and job_prefix("name") == "name/6"
    task._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    assert run_prefix("name") == run_prefix("other") == job_prefix("name") == "q/7/6"


def test_outside_of_a_task_there_is_no_key() -> None:
    assert TaskContext.get() is None
    assert not run_prefix("name") and not RequestKeys("").key_of([b"x"])


SPECULATIVE = """
import sys
from polydomo.pipeline import session
from polydomo.spark import through

master, url = sys.argv[1:]
conf = {"spark.executor.memory": "600m", "spark.speculation": "true", "spark.speculation.quantile": "0.5",
        "spark.speculation.interval": "200ms", "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "500ms"}
spark = session.build(master=master, conf=conf)
words = spark.range(4, numPartitions=4).selectExpr("CAST(id AS STRING) AS word")
print(sorted(row.twice for row in through(words, "slow", to=url, schema="twice STRING", body="word", timeout=600).collect()))
session.close(spark)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_speculative_task_on_a_cluster_joins_the_first_one(tmp_path: Path) -> None:
    """The slowest row ends only when a speculative copy of its task has asked for it too."""
    runs: Counter[str] = Counter()
    hosts = ("127.0.0.1", "127.0.0.2")  # Spark starts no second copy of a task on the same host
    with polydomo.testing.broker() as broker, cluster(tmp_path, cores=2, hosts=hosts) as master:
        worker = polydomo.Worker(broker.url, concurrency=8)

        @worker.service("slow")
        def slow(call: polydomo.Call) -> str:
            runs[call.text] += 1
            if call.text == "3":
                broker.wait_until(joined(1), 600.0)
            return str(2 * int(call.text))

        with worker:
            program = subprocess.run(
                [sys.executable, "-c", SPECULATIVE, master, broker.url],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                timeout=900,
                check=True,
            )
    assert program.stdout.splitlines()[-1] == "['0', '2', '4', '6']"
    assert runs == {str(n): 1 for n in range(4)}
