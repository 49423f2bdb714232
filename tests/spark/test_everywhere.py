"""DataFrames through services, sinks and sources on a standalone cluster of two workers, and over Spark Connect."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from tests.pipeline.test_connect import connect_server
from tests.spark.conftest import SERVICES
from tests.spark.test_fleet import cluster

ROOT = Path(__file__).parents[2]


@contextmanager
def services() -> Iterator[polydomo.testing.Broker]:
    """A broker with jobs, and the workers."""
    runs: Counter[str] = Counter()
    lock = threading.Lock()

    def booked(call: polydomo.Call) -> str:
        with lock:
            runs[f"{call.key.split('/')[0][:36]} {call.text}"] += 1
        return call.text

    with polydomo.testing.broker(jobs=True) as broker:
        worker = polydomo.Worker(broker.url, concurrency=2)
        for name, function in {**SERVICES, "booked": booked, "runs": lambda call: json.dumps(runs)}.items():
            worker.add(name, function)
        with worker:
            yield broker


def check(kind: str, url: str, broker: polydomo.testing.Broker, scratch: Path) -> None:
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.everywhere", kind, url, broker.url, str(scratch)],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batches"] == {
        "arrow": True,
        "null": True,
        "collect": [49, [["bad", True]]],
        "typed": [[3.0, ["pen"]]],
        "sql": True,
        "flows": 49,
    }
    assert found["streams"] == {"through": 100, "foreachBatch": 100, "subscribe": 1, "jobs": 149}
    runs = found["runs"]  # by the name of the write, and by query: 49 rows written twice, and 100 of the stream
    assert len(runs) == 149 and set(runs.values()) == {1}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_on_a_standalone_cluster_of_two_workers(tmp_path: Path) -> None:
    with services() as broker, cluster(tmp_path, cores=2) as master:
        check("master", master, broker, tmp_path / "scratch")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_over_spark_connect(tmp_path: Path) -> None:
    with services() as broker, connect_server(tmp_path) as remote:
        check("remote", remote, broker, tmp_path / "scratch")
