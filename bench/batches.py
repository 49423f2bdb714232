"""What batches bring for a model: a matrix product in numpy, one request at a time and 32 at once.

    python -m bench.batches [--rounds 3] [--seconds 10] [--batch 32] [--wait 5ms] [--size 4096]

The worker is a process with one BLAS thread; the clients send vectors of float32 and keep as many calls open as a batch has. Each round
measures both forms in turn. Latencies are those of the clients. The last column is what they should stay below at p99: ``wait``, plus the
time of the slowest batch in the worker, measured there, plus the way of the messages: the p99 of the same calls to a function that only
returns, in batches as well.
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
NOTHING = "bench.nothing"
LEAST = 1.0  # seconds of warming up, and of calls to NOTHING


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
        worker.add(NOTHING, lambda calls: [call.body[:64] for call in calls], batch=batch, wait=wait)
    else:
        worker.add(SERVICE, lambda call: model([call.body])[0])
        worker.add(NOTHING, lambda call: call.body[:64])

    def slowest_since(call: Call) -> str:
        found, slowest[0] = slowest[0], 0.0
        return str(found)

    worker.add("bench.slowest", slowest_since)
    worker.run()


def percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[int(len(taken) * share)]


async def load(url: str, size: int, clients: int, seconds: float) -> tuple[float, list[float], float, float]:
    """Requests/s, latencies, the time of the slowest batch, and the p99 of calls that compute nothing."""
    body = np.ones(size, np.float32).tobytes()
    async with AsyncClient(url, timeout=120) as client:

        async def calls(service: str, seconds: float) -> list[float]:
            taken: list[float] = []
            until = time.perf_counter() + seconds

            async def ask() -> None:
                while (began := time.perf_counter()) < until:
                    await client.call(service, body)
                    taken.append(time.perf_counter() - began)

            await asyncio.gather(*(ask() for _ in range(clients)))
            return taken

        await calls(SERVICE, LEAST)  # warms up
        way = percentile(await calls(NOTHING, LEAST), 0.99)
        await client.call("bench.slowest")
        began = time.perf_counter()
        taken = await calls(SERVICE, seconds)
        passed = time.perf_counter() - began
        return len(taken) / passed, taken, float((await client.call("bench.slowest")).text), way


def measure(asked: argparse.Namespace, batch: int) -> tuple[float, float, float, float]:
    """Requests/s, p50 and p99 of the latency, and the time of the slowest batch and of the messages."""
    with testing.broker() as broker:
        process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(broker.url, asked.size, batch, asked.wait)
        )
        process.start()
        try:
            broker.wait_until(lambda server: bool(server.broker.services[SERVICE.encode()].workers))
            rate, taken, slowest, way = asyncio.run(load(broker.url, asked.size, asked.batch, asked.seconds))
        finally:
            process.terminate()
            process.join()
    return rate, percentile(taken, 0.5), percentile(taken, 0.99), slowest + way


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
    print(f"{'batch':>5}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'wait + slowest batch + messages ms':>37}")
    rates: dict[int, list[float]] = {1: [], asked.batch: []}
    for _ in range(asked.rounds):
        for batch, found in rates.items():
            rate, middle, most, slowest = measure(asked, batch)
            found.append(rate)
            bound = f"{(wait + slowest) * 1000:37.1f}" if batch > 1 else ""
            print(f"{batch:5}{rate:12.1f}{middle * 1000:9.1f}{most * 1000:9.1f}{bound}", flush=True)
    print(f"{statistics.median(rates[asked.batch]) / statistics.median(rates[1]):.1f} times the requests/s (medians)")


if __name__ == "__main__":
    main()
