"""CPU per request that is answered from the memo store, beside CPU per request that a worker answers, in one run.

``python -m bench.memo [--calls 100000]``: the broker keeps the replies of ``kept`` and not those of ``run``. The clients are MDX
connections with many requests open at a time.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time

from bench.http import cpu_of, free_port
from polydomo import AsyncClient

OPEN = 64
BODIES = 100  # distinct requests


async def load(url: str, service: str, calls: int) -> None:
    async with AsyncClient(url, timeout=60.0) as client:
        numbers = iter(range(calls))

        async def work() -> None:
            for number in numbers:
                body = f"request {number % BODIES}"
                assert (await client.call(service, body)).text == body

        await asyncio.gather(*(work() for _ in range(OPEN)))


def ready(url: str) -> None:
    deadline = time.monotonic() + 30.0
    while True:
        try:
            asyncio.run(load(url, "kept", BODIES))
            asyncio.run(load(url, "run", BODIES))
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    calls = parser.parse_args().calls
    url = f"tcp://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "polydomo"]
        up = [*command, "up", "--listen", url, "--data", directory, "--service", "kept.memo", "--journal", "off"]
        broker = subprocess.Popen(up, stderr=subprocess.DEVNULL)
        workers = [
            subprocess.Popen(
                [*command, "work", name, "--echo", "--to", url, "--concurrency", "4"], stderr=subprocess.DEVNULL
            )
            for name in ("kept", "run")
        ]
        try:
            ready(url)
            figures: dict[str, float] = {}
            for service in ("kept", "run", "kept", "run"):
                before = cpu_of(broker.pid)
                asyncio.run(load(url, service, calls))
                used = (cpu_of(broker.pid) - before) / calls * 1e6
                figures[service] = min(used, figures.get(service, used))
        finally:
            for process in (*workers, broker):
                process.terminate()
                process.wait()
    print(f"from the store  {figures['kept']:6.1f} us of CPU per request")
    print(f"by a worker     {figures['run']:6.1f} us of CPU per request")
    if figures["kept"] >= figures["run"]:
        sys.exit("a request from the store costs more than one that a worker answers")


if __name__ == "__main__":
    main()
