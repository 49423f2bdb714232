"""What batches bring for a model: a matrix product in numpy, one request at a time and 32 at once.

    python -m bench.batches [--rounds 3] [--seconds 10] [--batch 32] [--wait 5ms] [--size 4096]

The worker is a process with one BLAS thread; the clients send vectors of float32 and keep as many calls open as a batch has. Each round
measures both forms in turn. Latencies are those of the clients. The last column is what they should stay below at p99: ``wait`` plus the
time of the slowest batch in the worker, measured there.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time

import numpy as np

from polydomo import AsyncClient, Call, Worker, testing
from polydomo.model.durations import read_duration

SERVICE = "bench.model"


def serve(url: str, size: int, batch: int, wait: str) -> None:
    """The worker's process."""
    weights = np.random.default_rng(1).random((size, size), dtype=np.float32)
    worker = Worker(url)
    slowest = [0.0]

    def model(rows: list[bytes]) -> list[bytes]:
        began = time.perf_counter()
        answers = np.stack([np.frombuffer(row, np.float32) for row in rows]) @ weights
        found = [answer.tobytes()[:64] for answer in answers]
        slowest[0] = max(slowest[0], time.perf_counter() - began)
        return found

    if batch > 1:
        worker.add(SERVICE, lambda calls: model([call.body for call in calls]), batch=batch, wait=wait)
    else:
        worker.add(SERVICE, lambda call: model([call.body])[0])

    def slowest_since(call: Call) -> str:
        found, slowest[0] = slowest[0], 0.0
        return str(found)

    worker.add("bench.slowest", slowest_since)
    worker.run()


async def load(url: str, size: int, clients: int, seconds: float) -> tuple[float, list[float], float]:
    """Requests/s, latencies, and the time of the slowest batch."""
    body = np.ones(size, np.float32).tobytes()
    taken: list[float] = []
    async with AsyncClient(url, timeout=120) as client:

        async def ask(until: float) -> None:
            while (began := time.perf_counter()) < until:
                await client.call(SERVICE, body)
                taken.append(time.perf_counter() - began)

        await asyncio.gather(*(ask(time.perf_counter() + 1.0) for _ in range(clients)))  # warms up
        await client.call("bench.slowest")
        taken.clear()
        began = time.perf_counter()
        await asyncio.gather(*(ask(began + seconds) for _ in range(clients)))
        passed = time.perf_counter() - began
        return len(taken) / passed, sorted(taken), float((await client.call("bench.slowest")).text)


def measure(asked: argparse.Namespace, batch: int) -> tuple[float, float, float, float]:
    """Requests/s, p50 and p99 of the latency, and the slowest batch."""
    with testing.broker() as broker:
        process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(broker.url, asked.size, batch, asked.wait)
        )
        process.start()
        try:
            broker.wait_until(lambda server: bool(server.broker.services[SERVICE.encode()].workers))
            rate, taken, slowest = asyncio.run(load(broker.url, asked.size, asked.batch, asked.seconds))
        finally:
            process.terminate()
            process.join()
    return rate, taken[len(taken) // 2], taken[int(len(taken) * 0.99)], slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--wait", default="5ms")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrix")
    asked = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of the worker's process
    wait = read_duration(asked.wait) or 0.0
    print(f"{'batch':>5}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'wait + slowest batch ms':>26}")
    rates: dict[int, list[float]] = {1: [], asked.batch: []}
    for _ in range(asked.rounds):
        for batch, found in rates.items():
            rate, middle, most, slowest = measure(asked, batch)
            found.append(rate)
            bound = f"{(wait + slowest) * 1000:26.1f}" if batch > 1 else ""
            print(f"{batch:5}{rate:12.1f}{middle * 1000:9.1f}{most * 1000:9.1f}{bound}", flush=True)
    print(f"{statistics.median(rates[asked.batch]) / statistics.median(rates[1]):.1f} times the requests/s (medians)")


if __name__ == "__main__":
    main()
