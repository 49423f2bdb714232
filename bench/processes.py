"""One process, several processes and nats-server in one run; and what that means for a machine with 16 cores.

    python -m bench.processes                          --processes 2, 32 workers, 8 clients, 64 outstanding, 64 bytes
    python -m bench.processes --processes 4 --generators 4 --requests 100000

1. CPU time per request and requests/s of each, with the same load (``bench/load.py``) from several generator processes.
2. How many requests crossed from one process to another (``polydomo_requests_total{protocol="process"}``).
3. The CPU time of a request that crosses, in both processes together: all clients at one, all workers at the other (``bench/crossing.py``).
4. A model: N cores serve N / (local * (1 - f) + crossing * f) requests per second, where f is the part that crosses.

The generators need cores too: on a small machine requests/s are those of the whole, and CPU time per request is what to compare.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from bench.compare import PATH, cpu, end, free_port, wait_for

HERE = Path(__file__).resolve().parent
CORES = 16


@contextlib.contextmanager
def started(*words: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        time.sleep(2.0)
        yield process
    finally:
        end(process, 30.0)


def ours(port: int, data: str, *words: str) -> "list[str]":
    listen = ["--listen", f"tcp://127.0.0.1:{port}", "--data", data, "--log-level", "error"]
    return [sys.executable, "-m", "polydomo", "up", *listen, *words]


def load(protocol: str, port: int, asked: argparse.Namespace) -> float:
    """Runs all generators; returns requests/s in all."""
    each = asked.generators
    numbers = [
        port,
        asked.workers // each,
        max(1, asked.clients // each),
        asked.requests // each,
        asked.window,
        asked.size,
    ]
    words = [sys.executable, "-m", "bench.load", protocol, *map(str, numbers), "--hold"]
    running = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE.parent) for _ in range(each)
    ]
    rate = 0.0
    try:
        for process in running:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit("a generator failed")
            rate += json.loads(line)["rate"]
    finally:
        for process in running:
            process.communicate(timeout=60)  # the end of its input: its workers close
    return rate


def crossed(port: int) -> "tuple[int, int]":
    """Requests that crossed, and all."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    rows = [line for line in lines if line.startswith("polydomo_requests_total{") and 'outcome="ok"' in line]
    counts = [(int(float(line.rpartition(" ")[2])), 'protocol="process"' in line) for line in rows]
    return sum(count for count, over in counts if over), sum(count for count, over in counts if not over)


def one(name: str, protocol: str, port: int, words: "list[str]", asked: argparse.Namespace) -> "dict[str, object]":
    with started(*words, port=port) as process:
        before = cpu(process.pid)
        rate = load(protocol, port, asked)
        spent = cpu(process.pid) - before
        row: dict[str, object] = {"cpu_us": round(spent * 1e6 / asked.requests, 1), "requests_per_second": round(rate)}
        if "--processes" in words:
            time.sleep(1.1)
            over, whole = crossed(port)
            row["crossed"] = round(over / max(1, whole), 3)
    print(f"{name:<24}", json.dumps(row), flush=True)
    return row


def crossing(asked: argparse.Namespace, data: str) -> "dict[str, object]":
    """All clients at process 0, all workers at process 1."""
    port = free_port()
    with started(*ours(port, f"{data}/across", "--processes", "2"), port=port) as broker:
        numbers = [port, asked.workers, asked.clients, asked.requests, asked.window, asked.size]
        words = [sys.executable, "-m", "bench.crossing", *map(str, numbers)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE.parent, text=True) as load:
            assert load.stdin is not None and load.stdout is not None
            if load.stdout.readline().strip() != "ready":
                raise SystemExit("the generator failed")
            before = cpu(broker.pid)
            load.stdin.write("go\n")
            load.stdin.flush()
            said = json.loads(load.stdout.readline())
            spent = cpu(broker.pid) - before
    row: dict[str, object] = {"cpu_us": round(spent * 1e6 / asked.requests, 1), "requests_per_second": said["rate"]}
    print(f"{'crossing, both processes':<24}", json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--generators", type=int, default=2)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as data:
        port = free_port()
        rows["1 process"] = one("polydomo, 1 process", "mdx", port, ours(port, f"{data}/1"), asked)
        port = free_port()
        words = ours(port, f"{data}/n", "--processes", str(asked.processes))
        rows[f"{asked.processes} processes"] = one(f"polydomo, {asked.processes} processes", "mdx", port, words, asked)
        if nats := shutil.which("nats-server", path=PATH):
            port = free_port()
            words = [nats, "-a", "127.0.0.1", "-p", str(port)]
            rows["nats-server"] = one("nats-server", "nats", port, words, asked)
        rows["crossing"] = crossing(asked, data)
    local, across = float(str(rows["1 process"]["cpu_us"])), float(str(rows["crossing"]["cpu_us"]))
    print(f"model for {CORES} cores, from {local:.1f} us for a local request and {across:.1f} us for one that crosses:")
    for part in (0.0, 0.1, 0.5, 1 - 1 / CORES):
        rate = CORES / ((local * (1 - part) + across * part) * 1e-6)
        print(f"  {part:5.0%} cross: {rate:>12,.0f} requests/s")
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
