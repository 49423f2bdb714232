"""Measures what N idle connections cost the broker; each is a registered MDP/0.1 worker that sends heartbeats.

    python bench/idle.py 5000

The connections are plain sockets in one event loop of this process; the broker is ``polydomo up`` in a separate process.
Memory is the growth of the broker's resident set from before the first connection to after the last; CPU is what the
broker used during a time with nothing but heartbeats in both directions.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(16) + bytes(32)
READY_COMMAND = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
HEAD = b"\x01\x00\x01\x06MDPW01"
WORKER_READY = HEAD + b"\x01\x01\x01\x00\x04idle"
HEARTBEAT = HEAD + b"\x00\x01\x04"
TICKS = os.sysconf("SC_CLK_TCK")


class Idle(asyncio.Protocol):
    """One worker: completes the handshake, sends READY and heartbeats, and counts the broker's heartbeats."""

    transport: asyncio.Transport

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.seen = b""
        self.ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(GREETING + READY_COMMAND)

    def data_received(self, data: bytes) -> None:
        if self.ready:
            self.bench.beats += len(data) // len(HEARTBEAT)
            return
        self.seen += data
        if len(self.seen) > 64 and b"ROUTER" in self.seen:
            self.ready = True
            self.seen = b""
            self.transport.write(WORKER_READY)
            self.bench.registered += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.bench.lost += 1


class Bench:
    def __init__(self, pid: int, port: int, count: int, beat: float) -> None:
        self.pid, self.port, self.count, self.beat = pid, port, count, beat
        self.workers: list[Idle] = []
        self.registered = self.beats = self.lost = 0

    async def run(self, seconds: float) -> dict[str, object]:
        loop = asyncio.get_running_loop()
        before = await settled(self.pid)
        beating = asyncio.create_task(self.keep_beating())  # the first ones may have to wait long for the last
        for start in range(0, self.count, 100):
            await asyncio.gather(*(self.connect(loop) for _ in range(start, min(start + 100, self.count))))
        while self.registered < self.count and not self.lost:
            await asyncio.sleep(0.05)
        await asyncio.sleep(2 * self.beat)  # every worker has sent and received heartbeats
        self.beats = 0
        cpu, start_time = used(self.pid), time.monotonic()
        await asyncio.sleep(seconds)
        cpu, wall = used(self.pid) - cpu, time.monotonic() - start_time
        beats, after, lost = self.beats, memory(self.pid), self.lost
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        for worker in self.workers:
            worker.transport.abort()
        return {
            "connections": self.count,
            "lost": lost,
            "kib_per_connection": round((after - before) / self.count, 2),
            "cpu_percent": round(100 * cpu / wall, 1),
            "beats_per_second_from_the_broker": round(beats / wall),
            "seconds": round(wall, 1),
        }

    async def connect(self, loop: asyncio.AbstractEventLoop) -> None:
        _, worker = await loop.create_connection(lambda: Idle(self), "127.0.0.1", self.port)
        self.workers.append(worker)

    async def keep_beating(self) -> None:
        """Spread evenly over the interval, as independent workers are."""
        slices = 50
        while True:
            for part in range(slices):
                due = time.monotonic() + self.beat / slices
                for worker in self.workers[part::slices]:
                    if worker.ready:
                        worker.transport.write(HEARTBEAT)
                await asyncio.sleep(max(0.0, due - time.monotonic()))


def memory(pid: int) -> int:
    """Resident set, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


async def settled(pid: int) -> int:
    """The same, once it has not changed for a second: a broker that has just started still loads the journal's library."""
    size = memory(pid)
    while True:
        await asyncio.sleep(1.0)
        before, size = size, memory(pid)
        if size == before:
            return size


def used(pid: int) -> float:
    """CPU seconds, of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("connections", type=int, nargs="?", default=5000)
    parser.add_argument(
        "--beat", type=float, default=2.5, help="heartbeat interval in seconds, of both sides (default: 2.5)"
    )
    parser.add_argument("--beats-missed", type=int, default=3, help="that the broker allows (default: 3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure (default: 10)")
    parser.add_argument("--journal", default="requests", help="what the broker's journal records (default: requests)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and options.connections > hard - 100:
        print(
            f"{options.connections} connections need more than the {hard} files this process may open", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory() as data:
        found, said = measure(Path(data), options)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):34} {value}")
    if found["lost"]:
        print(f"lost connections; the broker said:\n{said}", file=sys.stderr)
        return 1
    return 0


def measure(data: Path, options: argparse.Namespace) -> tuple[dict[str, object], str]:
    """The figures, and the last lines of the broker's log before the workers left."""
    words = ["up", "--listen", "tcp://127.0.0.1:0", "--data", str(data), "--log-json", "--beat", str(options.beat)]
    words += ["--limits-max-connections", str(options.connections + 10)]
    words += ["--journal-level", options.journal, "--beats-missed", str(options.beats_missed)]
    log = data / "log"
    with log.open("wb") as stderr:  # a file: reading the log must not cost the broker anything
        broker = subprocess.Popen([sys.executable, "-m", "polydomo", *words], stderr=stderr)
    try:
        port = started(broker, log)
        found = asyncio.run(Bench(broker.pid, port, options.connections, options.beat).run(options.seconds))
        return found, log.read_text()[-2000:]
    finally:
        broker.terminate()
        broker.wait()


def started(broker: "subprocess.Popen[bytes]", log: Path) -> int:
    """Waits until the broker is ready; returns its port."""
    while broker.poll() is None:
        lines = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if any(line["message"] == "ready" for line in lines):
            return int(next(line["address"] for line in lines if line["message"] == "listening").rpartition(":")[2])
        time.sleep(0.01)
    raise SystemExit(f"the broker did not start: {log.read_text()}")


if __name__ == "__main__":
    sys.exit(main())
