"""What the journal costs: CPU per request at each level, and rows written and read back.

    python bench/journal.py cpu                      off, requests and messages by turns; the ratios that count are medians over rounds
    python bench/journal.py rows --rows 10000000     rows/s, bytes a row, and memory along the way; then everything is read back

Results are kept in bench/results/.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.compare import HERE, cpu, free_port, wait_for
from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.requests.transitions import new_request
from polydomo.client.aio import AsyncClient
from polydomo.journal import schema
from polydomo.journal.journal import Journal
from polydomo.journal.levels import Levels
from polydomo.journal.reading.reader import Reader
from polydomo.limits import JOURNAL_CHUNKS
from polydomo.model.records import Service, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.wire.link import Hub, Link, LinkHandler

UP = "{python} -m polydomo up --listen tcp://127.0.0.1:{port} --data {data} --log-level error --journal {level}"
ALLOWED = {"requests": 1.10, "messages": 1.30}  # times the CPU with ``off``


# --- CPU per request --------------------------------------------------------------------------------------------------


def measure(level: str, load: tuple[int, ...], requests: int) -> tuple[float, float]:
    """(CPU microseconds per request, requests/s), after all rows of the load have been written."""
    workers, clients, window, size = load
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        words = UP.format(python=shlex.quote(sys.executable), port=port, data=data, level=level)
        process = subprocess.Popen(shlex.split(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            run(port, workers, clients, requests // 10, window, size)  # everything is imported and warm
            asyncio.run(written(port))
            before = cpu(process.pid)
            rate = run(port, workers, clients, requests, window, size)
            asyncio.run(written(port))
            return (cpu(process.pid) - before) * 1e6 / requests, rate
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def run(port: int, workers: int, clients: int, requests: int, window: int, size: int) -> float:
    numbers = [str(n) for n in (port, workers, clients, requests, window, size)]
    out = subprocess.run(
        [sys.executable, "-m", "bench.load", "mdp1", *numbers],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=HERE.parent,
    )
    return float(json.loads(out.stdout)["rate"])


async def written(port: int) -> None:
    """Returns once every row is on the disk."""
    async with AsyncClient(f"tcp://127.0.0.1:{port}", "mdp1") as client:
        wanted = 0
        while True:
            status = (await client.call("polydomo.journal", b"flush")).json()
            wanted = wanted or status.get("rows", 0)
            if status.get("safe", 0) >= wanted:
                return
            await asyncio.sleep(0.1)


def cpu_cost(asked: argparse.Namespace) -> dict[str, Any]:
    load = tuple(map(int, asked.load.split("x")))
    levels = list(schema.LEVELS)
    costs: dict[str, list[float]] = {level: [] for level in levels}
    for _ in range(asked.rounds):
        for level in levels:
            cost, rate = measure(level, load, asked.requests)
            costs[level].append(cost)
            print(f"{level:<10}{cost:>9.2f} us/request{rate:>12,.0f} requests/s", flush=True)
    off = statistics.median(costs[schema.OFF])
    figures: dict[str, Any] = {"load": asked.load, "requests": asked.requests, "rounds": asked.rounds}
    for level in levels:
        cost = statistics.median(costs[level])
        ratios = [mine / base for mine, base in zip(costs[level], costs[schema.OFF], strict=True)]
        figures[level] = {
            "cpu_us": round(cost, 2),
            "of_off": round(cost / off, 3),
            "median_of_ratios": round(statistics.median(ratios), 3),
        }
        allowed = f"  (at most {ALLOWED[level]:.2f})" if level in ALLOWED else ""
        print(f"{level:<10}{cost:>9.2f} us/request{cost / off:>8.3f} of off{allowed}")
    return figures


# --- rows -------------------------------------------------------------------------------------------------------------


class Zeros(Entropy):
    def take(self, size: int) -> bytes:
        return bytes(size)


def peers(broker: Broker) -> tuple[list[ProtocolSession], list[Worker], Service]:
    """32 workers and 8 clients that send nothing; rows are generated for them."""
    hub = Hub()
    sessions: list[ProtocolSession] = []
    for i in range(40):
        session = ProtocolSession(broker, Link(hub, LinkHandler(), f"tcp://127.0.0.1:{40000 + i}"))
        session.protocol = "mdp1"
        broker.session_opened(session)
        sessions.append(session)
    workers = []
    for session in sessions[8:]:
        worker = broker.register_worker(session, [b"echo"], None, WorkerTerms(0, 0))
        assert isinstance(worker, Worker)
        workers.append(worker)
    return sessions[:8], workers, broker.services[b"echo"]


def rows_written(asked: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        directory = Path(place)
        journal = Journal(directory, Levels(schema.MESSAGES), "bench", time.time() - time.monotonic())
        broker = Broker(time.monotonic(), Zeros(), recorder=journal.recorder)
        journal.attach(broker)
        clients, workers, service = peers(broker)
        recorder = journal.recorder
        dice = random.Random(1)
        bodies = [bytes(dice.randrange(20, 2000)) for _ in range(50)]
        memory: list[int] = []
        begin, used = time.monotonic(), time.process_time()
        number = 0
        step = asked.rows // 10
        while recorder.seq < asked.rows:
            broker.now = max(broker.now, time.monotonic())
            for _ in range(1000):
                number += 1
                broker.now += dice.random() * 1e-5
                request = new_request(
                    number, clients[dice.randrange(8)], service, bodies[dice.randrange(50)], None, broker.now
                )
                recorder.accepted(request, False, 0)
                request.worker = workers[dice.randrange(32)]
                request.attempts = 1
                broker.now += dice.random() * 1e-5
                request.dispatched = broker.now
                recorder.dispatched(request, request.worker)
                request.outcome = "ok"
                request.reply_size = len(request.body)
                broker.now += dice.random() * 1e-5
                recorder.ended(request)
            journal.tick(eager=False)
            while len(recorder.queue.chunks) > JOURNAL_CHUNKS // 2:  # faster than any broker: the disk sets the pace
                time.sleep(0.001)
            if recorder.seq >= step * (len(memory) + 1):
                memory.append(resident())
                print(f"{recorder.seq:>12,} rows  {memory[-1] / 2**20:>7.0f} MiB", flush=True)
        journal.stop()
        seconds, cpu_seconds = time.monotonic() - begin, time.process_time() - used
        size = sum(path.stat().st_size for path in directory.glob("kind=*/**/*.parquet"))
        total = recorder.seq
        begin = time.monotonic()
        read = {kind: sum(table.num_rows for table in Reader([directory]).tables(kind)) for kind in schema.KINDS}
        reading = time.monotonic() - begin
        figures = {
            "rows": total,
            "dropped": recorder.queue.dropped,
            "rows_per_second": round(total / seconds),
            "cpu_us_per_row": round(cpu_seconds / total * 1e6, 3),
            "bytes_per_row": round(size / total, 2),
            "memory_mib": [round(value / 2**20) for value in memory],
            "read": read,
            "rows_read_per_second": round(sum(read.values()) / reading),
        }
        assert sum(read.values()) == total, "not every row was read back"
        for name, value in figures.items():
            print(f"{name:<22}{value}")
        return figures


def resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cpu", "rows"])
    parser.add_argument("--load", default="32x8x64x64", help="WORKERSxCLIENTSxOUTSTANDINGxBYTES")
    parser.add_argument("--requests", type=int, default=80_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument(
        "--directory", type=Path, default=None, help="where to write the rows; they are removed afterwards"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    figures = cpu_cost(asked) if asked.what == "cpu" else rows_written(asked)
    asked.out.mkdir(exist_ok=True)
    path = asked.out / f"journal-{asked.what}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    path.write_text(json.dumps({"machine": machine, **figures}, indent=1))
    print(f"kept in {path}")


if __name__ == "__main__":
    main()
