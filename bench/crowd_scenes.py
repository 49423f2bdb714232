"""Scenes of ``bench/crowd.py`` without many peers: many queued requests, topics and services."""

import argparse
import asyncio
import time
import urllib.request
from typing import cast

from bench.crowd_broker import PATIENCE, Row, running, until
from bench.load import Load
from bench.load_dialogs import Mdx
from bench.load_peers import GREETING, MemoPeer, ZmtpPeer
from polydomo.wire.frames import join
from polydomo.wire.security.mechanism import command, properties


class Asker(ZmtpPeer):
    """An MDX client that sends its share of requests as fast as it is read."""

    def resume_writing(self) -> None:
        self.go_on()

    def pause_writing(self) -> None:
        pass

    def go_on(self) -> None:
        while self.sent < self.load.share and self.transport.get_write_buffer_size() < 1 << 20:
            count = min(1000, self.load.share - self.sent)
            self.transport.write(b"".join(self.request(self.sent + i) for i in range(count)))
            self.sent += count


async def queued(asked: argparse.Namespace) -> Row:
    words = ["--limits-max-queue", str(2 * asked.queued), "--limits-max-outstanding", str(2 * asked.queued)]
    with running(*words, "--limits-max-memory", "8GiB", "--limits-max-client-bytes", "4GiB") as broker:
        await asyncio.sleep(1.0)
        before = broker.memory
        load = Load("mdx", broker.port, 1, asked.clients, asked.queued, 1, 64)
        (worker,) = await load.connect(1, True)
        worker.transport.pause_reading()  # it is busy
        beating = asyncio.create_task(load.beating([worker]))
        loop = asyncio.get_running_loop()
        load._waiting = asked.clients
        load.ready.clear()
        clients = [
            (await loop.create_connection(lambda: Asker(load, False, Mdx()), "127.0.0.1", broker.port))[1]
            for _ in range(asked.clients)
        ]
        await asyncio.wait_for(load.ready.wait(), PATIENCE)
        total = load.share * asked.clients
        used, began = broker.cpu, time.monotonic()
        for client in clients:
            client.transport.set_write_buffer_limits(1 << 20)
            client.go_on()
        waiting = 0
        while waiting < total:
            await asyncio.sleep(0.2)
            waiting = cast(int, (await broker.status())["open_requests"])
            if time.monotonic() > began + PATIENCE:
                raise SystemExit(f"only {waiting} of {total} requests were accepted")
        accepted, cost = time.monotonic() - began, broker.cpu - used
        size = broker.memory - before
        used, began = broker.cpu, time.monotonic()
        worker.transport.resume_reading()
        more = await load.connect(asked.workers, True)
        await asyncio.wait_for(load.done.wait(), PATIENCE * 4)
        served, serving = time.monotonic() - began, broker.cpu - used
        answered = sum(client.got for client in clients)
        beating.cancel()
        for peer in [*clients, *more, worker]:
            peer.transport.abort()
        return {
            "requests": total,
            "bytes_per_request": round(size * 1024 / total),
            "cpu_us_to_accept": round(cost * 1e6 / total, 1),
            "seconds_to_accept": round(accepted, 1),
            "cpu_us_to_serve": round(serving * 1e6 / total, 1),
            "seconds_to_serve": round(served, 1),
            "answered": answered,
            "held": answered == total,
        }


class Late(asyncio.Protocol):
    """A subscriber to everything that counts messages; each topic is published once."""

    def __init__(self) -> None:
        self.count = 0
        self.open = False
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(GREETING + command(b"READY", properties([(b"Socket-Type", b"SUB")])))

    def data_received(self, data: bytes) -> None:
        self.rest += data
        if not self.open and b"XPUB" in self.rest:
            self.open = True
            self.rest = b""
            self.transport.write(b"\x00\x07\x01crowd.")  # subscribe to "crowd."
        elif self.open:
            found = self.rest.count(b"crowd.")
            self.count += found
            self.rest = self.rest[-5:] if found else self.rest


async def topics(asked: argparse.Namespace) -> Row:
    with running() as broker:
        await asyncio.sleep(1.0)
        before, used = broker.memory, broker.cpu
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(GREETING + command(b"READY", properties([(b"Socket-Type", b"PUB")])))
        for first in range(0, asked.topics, 1000):
            numbers = range(first, min(first + 1000, asked.topics))
            writer.write(b"".join(join([b"crowd.%07d" % number, b"%d" % number]) for number in numbers))
            await writer.drain()
        url = f"http://127.0.0.1:{broker.port}/metrics"
        began = time.monotonic()

        def known() -> int:
            with urllib.request.urlopen(url, timeout=60) as response:
                page = response.read().decode()
            return int(
                float(next(line for line in page.splitlines() if line.startswith("polydomo_values ")).split()[1])
            )

        while (found := await asyncio.to_thread(known)) < asked.topics and time.monotonic() < began + PATIENCE:
            await asyncio.sleep(0.2)
        cost, size = broker.cpu - used, broker.memory - before
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        _, late = await loop.create_connection(Late, "127.0.0.1", broker.port)
        await until(lambda: late.count >= asked.topics, lambda: f"{asked.topics} last values (there are {late.count})")
        took = time.monotonic() - began
        late.transport.abort()
        writer.close()
        return {
            "topics": found,
            "bytes_per_topic": round(size * 1024 / asked.topics),
            "cpu_us_per_topic": round(cost * 1e6 / asked.topics, 1),
            "seconds_for_a_late_subscriber": round(took, 2),
            "held": found == asked.topics and late.count == asked.topics,
        }


class Offerer(MemoPeer):
    """A memo01 worker of many services."""

    names: "list[str]"

    def take(self, data: bytes) -> "tuple[int, bytes]":
        if not self.open and len(data) >= 8:
            self.open = True
            self.load.opened()
            return len(data), self.say(["memo01", 1, b"", list(self.names)])
        return len(data), b""


async def services(asked: argparse.Namespace) -> Row:
    with running() as broker:
        await asyncio.sleep(1.0)
        before, used = broker.memory, broker.cpu
        load = Load("memo", broker.port, 1, 1, 1, 1, 64)
        loop = asyncio.get_running_loop()
        names = [f"service.{number}" for number in range(asked.services)]
        offerers = []
        for first in range(0, asked.services, 500):
            load._waiting = 10**9
            offerer = Offerer(load, True)
            offerer.names = names[first : first + 500]
            await loop.create_connection(lambda made=offerer: made, "127.0.0.1", broker.port)  # type: ignore[misc]
            offerers.append(offerer)
        end = time.monotonic() + PATIENCE
        while (known := cast(int, (await broker.status())["services"])) < asked.services and time.monotonic() < end:
            await asyncio.sleep(0.2)
        cost, size = broker.cpu - used, broker.memory - before

        def page() -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.port}/metrics", timeout=60) as response:
                return cast(bytes, response.read())

        content = (await asyncio.to_thread(page)).decode()
        shown = sum(line.startswith("polydomo_service_workers{") for line in content.splitlines())
        for offerer in offerers:
            offerer.transport.abort()
        return {
            "services": known,
            "bytes_per_service": round(size * 1024 / asked.services),
            "cpu_us_per_service": round(cost * 1e6 / asked.services, 1),
            "metrics_bytes": len(content),
            "metrics_services": shown,
            "held": known == asked.services,
        }
