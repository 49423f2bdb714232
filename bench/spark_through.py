"""What a service in the way of a DataFrame costs: rows through an echo service beside an identity ``mapInArrow``, in one run.

    python -m bench.spark_through [--rows 2000000] [--single 20000]

Also one request per row, beside what ``polydomo bench`` reaches with as many connections.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import polydomo.testing
from polydomo.pipeline import session
from polydomo.spark import through

TASKS = 2
WORKER = """
import asyncio, sys, polydomo
async def main():
    worker = polydomo.AsyncWorker(sys.argv[1], concurrency=8)
    async def echo(call): return call.body
    worker.add("echo", echo)
    await worker.run()
asyncio.run(main())
"""


@contextmanager
def broker_process() -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """A broker without a journal: its address and its process."""
    up = subprocess.Popen(
        [sys.executable, "-m", "polydomo", "up", "--listen", "tcp://127.0.0.1:0", "--journal", "off", "--log-json"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stderr is not None
    url = ""
    try:
        for line in up.stderr:
            entry = json.loads(line) if line.startswith("{") else {}
            url = next((str(v) for v in entry.values() if str(v).startswith("tcp://127.0.0.1:")), "")
            if url:
                break
        threading.Thread(target=up.stderr.read, daemon=True).start()  # or it would wait when the pipe is full
        yield url, up
    finally:
        up.terminate()
        up.wait()


@contextmanager
def broker() -> Iterator[str]:
    """A broker, and a worker that offers ``echo``."""
    with broker_process() as (url, _):
        worker = subprocess.Popen([sys.executable, "-c", WORKER, url])
        try:
            with polydomo.Client(url) as client:
                while not client.offered("echo"):
                    time.sleep(0.1)
            yield url
        finally:
            worker.terminate()
            worker.wait()


def timed(what: str, rows: int, frame: object) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
    seconds = time.perf_counter() - began
    print(f"{what:<50} {seconds:7.2f} s {rows / seconds:12,.0f} rows/s", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--single", type=int, default=20_000)
    given = parser.parse_args()
    with broker() as url:
        spark = session.build(master=f"local[{TASKS}]")
        try:
            rows = spark.range(given.rows, numPartitions=TASKS)
            for size in (1_000, 10_000):
                made = through(rows, "echo", to=url, schema="id BIGINT", batch_rows=size)
                plain = rows.mapInArrow(lambda batches: batches, "id BIGINT")
                timed("warm-up", given.rows, plain)
                timed("warm-up", given.rows, made)
                base = min(timed("identity mapInArrow", given.rows, plain) for _ in range(2))
                best = min(timed(f"through, {size:,} rows per request", given.rows, made) for _ in range(2))
                print(f"  {best / base:.2f} times the identity")
            single = spark.range(given.single, numPartitions=TASKS).selectExpr("CAST(id AS STRING) AS word")
            for _ in range(2):
                each = timed(
                    "through, one request per row",
                    given.single,
                    through(single, "echo", to=url, schema="reply STRING", body="word"),
                )
            bench = [sys.executable, "-m", "polydomo", "bench", "--to", url]
            bench += ["--clients", str(TASKS), "--outstanding", "64", "--duration", "5", "--json"]
            done = subprocess.run(bench, capture_output=True, text=True, check=False)
            print(
                f"  one request per row: {given.single / each:,.0f} per second; polydomo bench: {done.stdout[:400]}{done.stderr[:300]}"
            )
        finally:
            session.close(spark)


if __name__ == "__main__":
    main()
