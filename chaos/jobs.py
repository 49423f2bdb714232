"""Durable jobs on real processes that are killed: ``python -m chaos.jobs --jobs 50000 --store sqlite``.

Brokers, workers and clients are processes. Each is killed with SIGKILL and restarted repeatedly; with PostgreSQL, the database is
killed too. A client appends each acknowledged job to its file before it continues. At the end, every acknowledged job must have one
outcome: done, with the correct result. With two brokers, the leader is killed each time, which causes a failover.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.killing import PATIENCE, Scene
from polydomo import AsyncClient, PolydomoError


def worker(url: str) -> None:
    """A worker process: doubles numbers, and sometimes fails."""
    from polydomo import CallFailed, Worker

    made = Worker(url, concurrency=8, name=f"chaos-{os.getpid()}")

    @made.service("double")
    def double(call: Any) -> str:
        number = int(call.text)
        if call.attempt == 1 and number % 97 == 0:
            raise CallFailed("unlucky", "on the first attempt")
        return str(2 * number)

    made.run()


async def client(url: str, first: int, count: int, path: str, outstanding: int) -> None:
    """A client process: submits numbers and records the job ids; continues where an earlier incarnation stopped."""
    from polydomo import Backoff

    done = (
        {json.loads(line)[1] for line in Path(path).read_text().splitlines() if line.endswith("]")}
        if Path(path).exists()
        else set()
    )
    numbers = [number for number in range(first, first + count) if number not in done]
    retries = Backoff(attempts=100, first=0.05, most=1.0)
    async with AsyncClient(url, timeout=PATIENCE, connect_timeout=PATIENCE) as made:
        with open(path, "a") as file:

            async def submit(number: int) -> None:
                job = await made.submit_job("double", str(number), key=f"n{number}", retries=retries)
                file.write(json.dumps([job, number]) + "\n")
                file.flush()

            pending: set[asyncio.Task[None]] = set()
            for number in numbers:
                pending.add(asyncio.create_task(submit(number)))
                if len(pending) >= outstanding:
                    ready, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in ready:
                        task.result()
            for task in pending:
                await task


async def outcomes(url: str, jobs: dict[str, int]) -> Counter[str]:
    """Fetches every result."""
    found: Counter[str] = Counter()
    limit = asyncio.Semaphore(64)
    async with AsyncClient(url, timeout=PATIENCE, connect_timeout=PATIENCE) as made:

        async def fetch(job: str, number: int) -> None:
            async with limit:
                try:
                    result = await made.result(job, wait=PATIENCE)
                except PolydomoError as error:
                    found[f"wrong: {error}"] += 1
                else:
                    found["right" if result.text == str(2 * number) else "wrong result"] += 1

        await asyncio.gather(*(fetch(job, number) for job, number in jobs.items()))
    return found


def run(
    jobs: int,
    store: str,
    brokers: int,
    seed: int,
    pause: float,
    clients: int = 2,
    workers: int = 2,
    rounds: int = 0,
    most: int = 0,
) -> Counter[str]:
    """Runs the test and returns the outcomes of the acknowledged jobs. ``rounds``: the minimum number of kills of brokers; ``most``: the
    maximum, if it is not 0."""
    begun = time.monotonic()
    with Scene(store, brokers, seed) as scene:
        hands = [scene.launch(f"worker{n}", "chaos.jobs", "--worker", scene.url) for n in range(workers)]
        share = jobs // clients
        files = [scene.directory / f"client{n}.txt" for n in range(clients)]
        submitting = [
            scene.launch(f"client{n}", "chaos.jobs", "--client", scene.url,
                "--first", str(n * share), "--jobs", str(share), "--file", str(files[n]),
            )
            for n in range(clients)
        ]  # fmt: skip
        scene.kill_until_ended(hands, submitting, pause, rounds, most)
        acknowledged: dict[str, int] = {}
        for file in files:
            for line in file.read_text().splitlines():
                if line.endswith("]"):
                    job, number = json.loads(line)
                    acknowledged[job] = number
        found = asyncio.run(outcomes(scene.url, acknowledged))
        found["acknowledged"] = len(acknowledged)
        found["numbers"] = len(set(acknowledged.values()))
        for kind, number in scene.kills.items():
            found[f"kills of {kind}"] = number
        found["seconds"] = round(time.monotonic() - begun)
        if found["right"] != found["acknowledged"]:
            scene.show_logs()
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill everything while durable jobs run.")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two kills")
    parser.add_argument("--rounds", type=int, default=0, help="minimum number of kills of brokers")
    parser.add_argument("--worker")
    parser.add_argument("--client")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--file", default="")
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return 0
    if given.client:
        asyncio.run(client(given.client, given.first, given.jobs, given.file, 64))
        return 0
    found = run(given.jobs, given.store, given.brokers, given.seed, given.pause, rounds=given.rounds)
    for name, number in found.items():
        print(f"{name}: {number:,}")
    return 0 if found["right"] == found["acknowledged"] == found["numbers"] else 1


if __name__ == "__main__":
    sys.exit(main())
