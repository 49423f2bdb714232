"""Workers and an executor are killed with -9 while a DataFrame goes through a service: every row once; and with a durable or memoised
service, no request runs to completion twice. A stream that writes durable jobs is killed five times: no row is lost, none runs twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from tests.spark.test_fleet import cluster, executors, until

ROOT = Path(__file__).parents[2]
ROWS = 2_000
SERVICES = ("plain", "durable", "memoised")

WORKER = """
import os, signal, sys, time, polydomo

url, directory = sys.argv[1:]
log = os.open(f"{directory}/completed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def work(call):
    time.sleep(0.02)
    if int(call.text) % 97 == 7:  # the first time, its worker dies in the middle of it
        try:
            os.close(os.open(f"{directory}/{call.service}-{call.text}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    os.write(log, f"{call.service} {call.text}\\n".encode())
    return str(2 * int(call.text))

worker = polydomo.Worker(url)  # one call at a time: a worker that dies takes no finished call with it
for service in ("plain", "durable", "memoised", "booked"):
    worker.add(service, work)
worker.run()
"""

THROUGH = """
import json, sys
from polydomo.pipeline import session
from polydomo.spark import through

master, url, service, rows = sys.argv[1:]
spark = session.build(master=master, conf={"spark.executor.memory": "600m", "spark.task.maxFailures": "20"})
words = spark.range(int(rows), numPartitions=8).selectExpr("CAST(id AS STRING) AS word")
made = through(
    words, service, to=url, schema="twice STRING", body="word", outstanding=8, retries=10, timeout=300, durable=service == "durable"
)
print(json.dumps(sorted((int(row.word), int(row.twice)) for row in made.collect())))
session.close(spark)
"""

STREAM = """
import sys
from polydomo.pipeline import session

url, directory = sys.argv[1:]
spark = session.build(master="local[2]", conf={"spark.driver.extraJavaOptions": session.QUICK})
rows = spark.readStream.schema("word STRING").option("maxFilesPerTrigger", "1").parquet(f"{directory}/in")
sink = rows.writeStream.format("polydomo").option("to", url).option("service", "booked").option("durable", "true")
sink.option("checkpointLocation", f"{directory}/checkpoint").option("outstanding", "8").start().awaitTermination()
"""


@contextmanager
def workers(url: str, scratch: Path, count: int = 5) -> Iterator[None]:
    """Processes of workers; each that dies is replaced."""
    over = threading.Event()

    def keep() -> None:
        while not over.is_set():
            with subprocess.Popen(
                [sys.executable, "-c", WORKER, url, str(scratch)], stderr=subprocess.DEVNULL
            ) as process:
                while process.poll() is None and not over.wait(0.05):
                    pass
                process.kill()

    threads = [threading.Thread(target=keep) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def completed(scratch: Path, service: str) -> "Counter[int]":
    try:
        lines = (scratch / "completed").read_text().splitlines()
    except FileNotFoundError:
        return Counter()
    return Counter(int(line.split()[1]) for line in lines if line.startswith(f"{service} "))


def some(scratch: Path, service: str) -> bool:
    return len(completed(scratch, service)) > ROWS // 10


def environment() -> dict[str, str]:
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.timeout(1800)
def test_an_executor_and_workers_are_killed_during_a_job(tmp_path: Path) -> None:
    settings = {"service": {"memoised": {"memo": True}}}
    with polydomo.testing.broker(jobs=True, settings=settings) as broker, cluster(tmp_path, cores=2) as master:
        with workers(broker.url, tmp_path):
            for service in SERVICES:
                words = [sys.executable, "-c", THROUGH, master, broker.url, service, str(ROWS)]
                with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as program:
                    try:
                        until(
                            partial(some, tmp_path, service),
                            f"some rows of {service}",
                        )
                        os.kill(executors(tmp_path)[0], signal.SIGKILL)
                        out, _ = program.communicate(timeout=900)
                    finally:
                        program.kill()
                assert program.returncode == 0
                assert json.loads(out.splitlines()[-1]) == [[n, 2 * n] for n in range(ROWS)], service
                runs = completed(tmp_path, service)
                twice = sum(count > 1 for count in runs.values())
                print(f"{service}: {len(runs)} rows, {twice} of them ran to completion more than once")
                assert sorted(runs) == list(range(ROWS))
                assert service == "plain" or twice == 0


@pytest.mark.timeout(1800)
def test_a_stream_of_durable_jobs_is_killed_five_times(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()

    def add(file: int) -> None:
        table = pa.table({"word": [str(file * 100 + n) for n in range(100)]})
        pq.write_table(table, tmp_path / "in" / f"_{file}")  # Spark does not see it before it has its name
        (tmp_path / "in" / f"_{file}").rename(tmp_path / "in" / f"{file}.parquet")

    def stream(enough: "Callable[[], bool]") -> None:
        words = [sys.executable, "-c", STREAM, broker.url, str(tmp_path)]
        with subprocess.Popen(words, env=environment(), start_new_session=True) as program:
            try:
                until(enough, "rows")
            finally:
                os.killpg(program.pid, signal.SIGKILL)

    with polydomo.testing.broker(jobs=True) as broker, workers(broker.url, tmp_path, 2):
        for kill in range(5):
            for file in range(4):
                add(kill * 4 + file)
            began = len(completed(tmp_path, "booked"))
            stream(lambda began=began, kill=kill: len(completed(tmp_path, "booked")) > began + 30 + 50 * kill)  # type: ignore[misc]
        stream(lambda: len(completed(tmp_path, "booked")) == 2_000)
        time.sleep(1.0)
    runs = completed(tmp_path, "booked")
    assert sorted(runs) == list(range(2_000)) and set(runs.values()) == {1}
