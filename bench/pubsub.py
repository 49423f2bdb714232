"""Last values of many topics, many subscribers, and one of them that stops reading: memory, CPU and latency.

    python bench/pubsub.py --topics 100000 --subscribers 1000

The broker is ``polydomo up`` in a process of its own; publisher and subscribers are plain sockets in one event loop of this process. First
every topic is published once. Then the subscribers connect, each for its own share of the topics and for ``clock.``. Then ``clock.`` is
published at intervals, and the time from the publisher's write to each subscriber's read is measured: once while all subscribers read, and
once while a subscriber to all topics has stopped reading and other messages fill its backlog.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00NULL" + bytes(16) + bytes(32)
TICKS = os.sysconf("SC_CLK_TCK")
VALUE = 100  # bytes of each value
CLOCK = b"clock.tick"
STAMP = 8


def ready(kind: bytes) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    return b"\x04" + bytes((len(body),)) + body


def message(topic: bytes, value: bytes) -> bytes:
    return b"\x01" + bytes((len(topic),)) + topic + b"\x00" + bytes((len(value),)) + value


class Peer(asyncio.Protocol):
    """A socket after its handshake. Counts messages, and keeps the latency of every tick."""

    transport: asyncio.Transport

    def __init__(self, kind: bytes) -> None:
        self.kind = kind
        self.open = asyncio.get_running_loop().create_future()
        self.gone = asyncio.get_running_loop().create_future()
        self.seen = b""
        self.messages = 0
        self.latencies: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(GREETING + ready(self.kind))

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if not self.open.done():
            if len(self.seen) > 66 and len(self.seen) >= 66 + self.seen[65]:
                self.seen = self.seen[66 + self.seen[65] :]
                self.open.set_result(None)
            return
        now = time.monotonic_ns()
        seen, position = self.seen, 0
        while True:  # topic and value, both short
            if position + 2 > len(seen):
                break
            value = position + 2 + seen[position + 1]
            if value + 2 > len(seen):
                break
            end = value + 2 + seen[value + 1]
            if end > len(seen):
                break
            self.messages += 1
            if seen.startswith(CLOCK, position + 2):
                self.latencies.append((now - int.from_bytes(seen[value + 2 : value + 2 + STAMP], "big")) / 1e6)
            position = end
        self.seen = seen[position:]

    def subscribe(self, prefix: bytes) -> None:
        self.transport.write(b"\x00" + bytes((1 + len(prefix),)) + b"\x01" + prefix)


class Bench:
    def __init__(self, pid: int, port: int, topics: int, subscribers: int) -> None:
        self.pid, self.port, self.topics, self.count = pid, port, topics, subscribers
        self.found: dict[str, object] = {"topics": topics, "subscribers": subscribers, "value_bytes": VALUE}

    async def connect(self, kind: bytes) -> Peer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: Peer(kind), "127.0.0.1", self.port)
        await peer.open
        return peer

    def topic(self, number: int) -> bytes:
        return b"share.%d.topic.%d" % (number % self.count, number)

    async def run(self, ticks: int) -> dict[str, object]:
        publisher = await self.connect(b"PUB")
        watcher = await self.connect(b"SUB")
        watcher.subscribe(b"end.")
        await self.publish_all(publisher, watcher)
        subscribers = await self.subscribe_all()
        before = await self.tick(publisher, subscribers, ticks)
        stopped = await self.connect(b"SUB")
        stopped.transport.pause_reading()
        stopped.subscribe(b"share.")
        cpu = used(self.pid)
        began = time.monotonic()
        after = await self.tick(publisher, subscribers, ticks, flood=20)
        self.found |= {
            "latency_ms": before,
            "latency_ms_with_one_stopped_and_a_flood": after,
            "latency_ms_with_a_flood_alone": await self.tick(publisher, subscribers, ticks, flood=20),
            "cpu_percent_with_the_flood": round(100 * (used(self.pid) - cpu) / (time.monotonic() - began), 1),
        }
        stopped.transport.resume_reading()
        await asyncio.wait([stopped.gone], timeout=5)
        self.found["stopped_subscriber_was_cut_off"] = stopped.gone.done()
        self.found["broker_mib_at_the_end"] = round(memory(self.pid) / 1024, 1)
        return self.found

    async def publish_all(self, publisher: Peer, watcher: Peer) -> None:
        memory_before, cpu, began = memory(self.pid), used(self.pid), time.monotonic()
        for start in range(0, self.topics, 1000):
            numbers = range(start, min(start + 1000, self.topics))
            publisher.transport.write(b"".join(message(self.topic(n), b"x" * VALUE) for n in numbers))
            await self.settled(publisher)
        publisher.transport.write(message(b"end.of.it", b"1"))
        while not watcher.messages:
            await asyncio.sleep(0.001)
        self.found |= {
            "publishing_s": round(time.monotonic() - began, 2),
            "cpu_us_per_published_value": round(1e6 * (used(self.pid) - cpu) / self.topics, 1),
            "kib_per_topic": round((memory(self.pid) - memory_before) / self.topics, 2),
        }

    async def settled(self, publisher: Peer) -> None:
        while publisher.transport.get_write_buffer_size():
            await asyncio.sleep(0)

    async def subscribe_all(self) -> list[Peer]:
        memory_before, cpu, began = memory(self.pid), used(self.pid), time.monotonic()
        subscribers = [await self.connect(b"SUB") for _ in range(self.count)]
        for number, subscriber in enumerate(subscribers):
            subscriber.subscribe(b"share.%d." % number)
            subscriber.subscribe(b"clock.")
        while sum(subscriber.messages for subscriber in subscribers) < self.topics:
            await asyncio.sleep(0.001)
        assert sum(subscriber.messages for subscriber in subscribers) == self.topics
        self.found |= {
            "late_subscribers_have_all_values_after_s": round(time.monotonic() - began, 2),
            "cpu_us_per_value_given": round(1e6 * (used(self.pid) - cpu) / self.topics, 1),
            "kib_per_subscriber": round((memory(self.pid) - memory_before) / self.count, 1),
        }
        return subscribers

    async def tick(self, publisher: Peer, subscribers: list[Peer], ticks: int, flood: int = 0) -> dict[str, float]:
        """Publishes ``clock.`` every 50 ms, each followed by ``flood`` messages to a single subscriber each; what each tick took."""
        for subscriber in subscribers:
            subscriber.latencies.clear()
        number = 0
        for _ in range(ticks):
            stamp = time.monotonic_ns().to_bytes(STAMP, "big")
            publisher.transport.write(message(CLOCK, stamp))
            for _ in range(flood):
                number += 7
                publisher.transport.write(message(self.topic(number % self.topics), b"x" * 250) * 10)
            await asyncio.sleep(0.05)
        end = time.monotonic() + 10
        while sum(len(s.latencies) for s in subscribers) < ticks * self.count and time.monotonic() < end:
            await asyncio.sleep(0.01)
        found = sorted(latency for subscriber in subscribers for latency in subscriber.latencies)
        assert len(found) == ticks * self.count, f"{len(found)} of {ticks * self.count} ticks arrived"
        return {
            name: round(found[int(part * (len(found) - 1))], 2)
            for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        }


def memory(pid: int) -> int:
    """Resident set, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def used(pid: int) -> float:
    """CPU seconds, of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--ticks", type=int, default=100, help="ticks of the clock in each part (default: 100)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as data:
        words = ["up", "--listen", "tcp://127.0.0.1:0", "--data", data, "--log-json", "--log-level", "info"]
        words += ["--values-max-unsent", "256KiB"]
        with subprocess.Popen([sys.executable, "-m", "polydomo", *words], stderr=subprocess.PIPE) as broker:
            try:
                assert broker.stderr is not None
                port = 0
                for line in broker.stderr:
                    entry = json.loads(line)
                    if entry["message"] == "listening":
                        port = int(entry["address"].rpartition(":")[2])
                    if entry["message"] == "ready":
                        break
                drain = subprocess.Popen(["cat"], stdin=broker.stderr, stdout=subprocess.DEVNULL)
                found = asyncio.run(Bench(broker.pid, port, options.topics, options.subscribers).run(options.ticks))
            finally:
                broker.terminate()
        drain.wait()
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' '):44} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
