"""A million rows through ``spark.sql`` over MDX, MDP/0.2 and HTTP: the first before the last is computed, the broker's memory flat,
the query cancelled when its client has gone."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import polydomo
from bench.spark_through import broker_process
from polydomo.spark.sql_query import QueryLimits
from polydomo.spark.sql_service import SqlService

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_000_000
SQL = f"SELECT id, id * 2 AS twice, concat('row number ', id) AS name FROM range(0, {ROWS}, 1, 16)"
GROWTH = 48 * 1024  # KiB that the broker may grow by while 30 MB pass through it
PATIENCE = 400.0


@pytest.fixture(scope="module")
def served(spark: "SparkSession") -> Iterator[tuple[str, int]]:
    """The address and the process of a broker, with the service."""
    with broker_process() as (url, process):
        service = SqlService(spark, QueryLimits(seconds=PATIENCE), concurrency=2)
        worker = polydomo.Worker(url, concurrency=2)
        worker.add("spark.sql", service.__call__, schema=service.schema)
        with worker, polydomo.Client(url) as client:
            while not client.call("polydomo.schema", "spark.sql").json():
                time.sleep(0.1)
            list(client.stream("spark.sql", SQL.replace(str(ROWS), "50000"), timeout=PATIENCE))  # warm
            yield url, process.pid


def memory(pid: int) -> tuple[int, int]:
    """KiB: now, and the most there ever was."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        found = {line.split(":")[0]: line.split()[1] for line in file if line.startswith("Vm")}
    return int(found["VmRSS"]), int(found["VmHWM"])


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_over_the_majordomo_protocols(served: tuple[str, int], protocol: str) -> None:
    url, pid = served
    before, _ = memory(pid)
    rows = size = 0
    began = time.monotonic()
    first = 0.0
    with polydomo.Client(url, protocol, timeout=PATIENCE) as client:
        for part in client.stream("spark.sql", SQL):
            if part.final:
                assert part.json()["rows"] == ROWS
                break
            first = first or time.monotonic() - began
            size += len(part.body)
            rows += pa.ipc.open_stream(part.body).read_all().num_rows
    whole = time.monotonic() - began
    after, most = memory(pid)
    print(
        f"{protocol}: first {first:.2f} s, all {whole:.2f} s, {size:,} bytes; broker {before:,} to {after:,} KiB, most {most:,}"
    )
    assert rows == ROWS and first < whole / 2
    assert most - before < GROWTH


def test_over_http(served: tuple[str, int]) -> None:
    url, pid = served
    before, _ = memory(pid)
    lines = size = 0
    began = time.monotonic()
    first = 0.0
    with httpx.stream(
        "GET", url.replace("tcp", "http") + "/v1/call/spark.sql", params={"q": SQL}, timeout=PATIENCE
    ) as found:
        assert found.status_code == 200
        for chunk in found.iter_raw():
            first = first or time.monotonic() - began
            size += len(chunk)
            lines += chunk.count(b"\n")
    whole = time.monotonic() - began
    after, most = memory(pid)
    print(
        f"http: first {first:.2f} s, all {whole:.2f} s, {size:,} bytes; broker {before:,} to {after:,} KiB, most {most:,}"
    )
    assert lines == ROWS and first < whole / 2
    assert most - before < GROWTH


@pytest.mark.parametrize("way", ["mdx", "mdp2", "http"])
def test_the_query_ends_when_its_client_has_gone(spark: "SparkSession", served: tuple[str, int], way: str) -> None:
    url, _ = served
    sql = "SELECT id FROM range(0, 10000000, 1, 500) WHERE sha2(CAST(id AS STRING), 512) > ''"
    program = (
        f"import polydomo\nfor part in polydomo.Client({url!r}, {way!r}).stream('spark.sql', {sql!r}, timeout=300): print(1, flush=True)"
        if way != "http"
        else f"import httpx\nwith httpx.stream('GET', {url.replace('tcp', 'http')!r} + '/v1/call/spark.sql', params={{'q': {sql!r}}}, "
        "timeout=300) as found:\n    for chunk in found.iter_raw(): print(1, flush=True)"
    )
    tracker = spark.sparkContext.statusTracker()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None and client.stdout.readline()
        client.kill()
    gone = last = time.monotonic()
    while time.monotonic() < last + 1.0:  # no job for a second: every partition is a job
        if tracker.getActiveJobsIds():
            last = time.monotonic()
        assert last < gone + 60, "the query still runs"
        time.sleep(0.01)
    took = last - gone
    print(f"{way}: cancelled {took:.2f} s after its client was killed")
    assert took < 5.0  # on an idle machine it is below one second
    with polydomo.Client(url, timeout=PATIENCE) as again:
        assert json.loads(list(again.stream("spark.sql", "SELECT 1"))[-1].body)["rows"] == 1
