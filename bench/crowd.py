"""Crowds: many peers, many queued requests, many topics and services, and everyone at once after kill -9 of the broker.

    python -m bench.crowd                        all of it, in full size
    python -m bench.crowd peers back --peers 5000
    python -m bench.crowd --out crowd.json

    peers      20,000 connected workers that beat, and 2,000 connects and disconnects per second beside them
    back       the broker is killed (SIGKILL) and started again; all workers reconnect at once
    queued     1,000,000 requests of 64 bytes wait, and are then served
    topics     100,000 topics with last values, and a late subscriber to all of them
    services   10,000 services, and the size of /metrics

The peers are plain sockets in one event loop of this process; the broker is ``polydomo up`` in a process of its own. A healthy peer that
loses its connection is a failure: the command then ends with status 1. CPU is that of the broker, memory the growth of its resident set.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

from bench.compare import cpu, free_port, wait_for
from bench.idle import memory
from bench.load import Load
from bench.load_dialogs import Mdx
from bench.load_peers import GREETING, READY, MemoPeer, ZmtpPeer
from polydomo.client.aio import AsyncClient
from polydomo.wire.frames import join
from polydomo.wire.mechanism import command, properties

HERE = Path(__file__).resolve().parents[1]
BEAT = 2.5  # seconds between two heartbeats of a worker
HEARTBEAT = join([b"", b"MDPW01", b"\x04"])
PATIENCE = 300.0  # seconds for anything, on a machine that is busy
FILES = 1_500  # open files besides those of the peers
AT_ONCE = 500  # connections that are being made at a time, where that is not the question
Row = dict[str, object]


class Broker:
    """``polydomo up`` on a port that stays the same."""

    def __init__(self, data: str, *words: str) -> None:
        self.port = free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        self._words = [
            *(
                sys.executable,
                "-m",
                "polydomo",
                "up",
                "--listen",
                self.url,
                "--data",
                data,
                "--log-level",
                os.environ.get("CROWD_LOG", "error"),
            ),
            *("--limits-max-connections", "60000", *words),
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        try:
            wait_for(self.port, self.process)
        except BaseException:
            self.kill()
            raise

    @property
    def cpu(self) -> float:
        return cpu(self.process.pid)

    @property
    def memory(self) -> int:
        """KiB."""
        return memory(self.process.pid)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    async def status(self) -> Row:
        async with AsyncClient(self.url, "mdp1", timeout=60.0, connect_timeout=60.0) as client:
            return cast(Row, (await client.call("polydomo.status")).json())


@contextlib.contextmanager
def running(*words: str) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as data:
        broker = Broker(data, *words)
        try:
            yield broker
        finally:
            broker.stop()


def source() -> tuple[str, int]:
    """One of many addresses of the loopback interface: one has some 28,000 ports, and a closed connection keeps its own for a minute."""
    return f"127.0.0.{random.randint(2, 30)}", 0


async def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"no {what} within {PATIENCE:g} s")
        await asyncio.sleep(0.02)


# --- workers that are there, and peers that come and go


class CrowdWorker(asyncio.Protocol):
    """An MDP/0.1 worker that beats; the first ones also echo."""

    transport: asyncio.Transport

    def __init__(self, crowd: "Crowd", service: bytes) -> None:
        self.crowd = crowd
        self.service = service
        self.seen = b""
        self.ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(GREETING + READY)

    def data_received(self, data: bytes) -> None:
        if not self.ready:
            self.seen += data
            if len(self.seen) > 64 and b"ROUTER" in self.seen:
                self.ready = True
                self.seen = b""
                self.transport.write(join([b"", b"MDPW01", b"\x01", self.service]))
                self.crowd.ready += 1

    def connection_lost(self, error: Exception | None) -> None:
        if self.ready:
            self.crowd.ready -= 1
        self.crowd.lost += 1


class Crowd:
    def __init__(self, broker: Broker, count: int) -> None:
        self.broker = broker
        self.count = count
        self.workers: list[CrowdWorker] = []
        self.ready = 0
        self.lost = 0

    async def come(self, at_once: int = AT_ONCE) -> None:
        """All workers connect; those that cannot try again, as any client library does."""
        gate = asyncio.Semaphore(at_once)
        loop = asyncio.get_running_loop()

        async def one(number: int) -> None:
            service = b"crowd.%d" % (number % 100)
            while True:
                async with gate:
                    with contextlib.suppress(OSError):
                        _, worker = await loop.create_connection(
                            lambda: CrowdWorker(self, service), "127.0.0.1", self.broker.port, local_addr=source()
                        )
                        self.workers.append(worker)
                        return
                await asyncio.sleep(random.uniform(0.05, 0.2))

        self.workers = []
        await asyncio.gather(*(one(number) for number in range(self.count)))
        await until(lambda: self.ready >= self.count, f"{self.count} workers (there are {self.ready})")

    async def beat(self) -> None:
        """Spread evenly over the interval."""
        slices = 50
        while True:
            for part in range(slices):
                due = time.monotonic() + BEAT / slices
                for worker in self.workers[part::slices]:
                    if worker.ready and not worker.transport.is_closing():
                        worker.transport.write(HEARTBEAT)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def counted(self) -> int:
        """The workers that the broker knows."""
        return cast(int, (await self.broker.status())["workers"])

    def go(self) -> None:
        for worker in self.workers:
            worker.transport.abort()


class Passer(asyncio.Protocol):
    """Connects, shakes hands, and leaves."""

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(GREETING + READY)

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if len(self.seen) > 64 and b"ROUTER" in self.seen:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("refused before the handshake was done"))


async def churn(broker: Broker, asked: argparse.Namespace) -> Row:
    """Runs ``come_and_go`` in a process of its own: it must not delay the heartbeats of this one."""
    words = ["-m", "bench.crowd", "come-and-go", "--port", str(broker.port), "--churn", str(asked.churn)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words, "--seconds", str(asked.seconds)), stdout=subprocess.PIPE, cwd=HERE
    )
    out, _ = await process.communicate()
    return cast(Row, json.loads(out.partition(b" ")[2]))


async def come_and_go(asked: argparse.Namespace) -> Row:
    """Peers that come and go."""
    from polydomo.cli.bench_pace import Pacer

    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    gate = asyncio.Semaphore(AT_ONCE)
    refused = 0

    async def one() -> None:
        nonlocal refused
        done: asyncio.Future[None] = loop.create_future()
        try:
            async with gate:
                await loop.create_connection(lambda: Passer(done), "127.0.0.1", asked.port, local_addr=source())
                await asyncio.wait_for(done, 60.0)
        except (OSError, TimeoutError):
            refused += 1

    def due(when: float, count: int) -> None:
        for _ in range(count):
            task = loop.create_task(one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    begin = time.perf_counter()
    count = await Pacer(asked.churn, begin, begin + asked.seconds, due).run()
    while tasks:
        await asyncio.wait(tasks)
    took = time.perf_counter() - begin
    return {"passed": count, "refused": refused, "per_second": round(count / took), "held": not refused}


async def peers(asked: argparse.Namespace) -> Row:
    with running() as broker:
        await asyncio.sleep(1.0)
        before = broker.memory
        crowd = Crowd(broker, asked.peers)
        beating = asyncio.create_task(crowd.beat())
        began, used = time.monotonic(), broker.cpu
        await crowd.come()
        came, came_cpu = time.monotonic() - began, broker.cpu - used
        await asyncio.sleep(BEAT)
        per_peer = (broker.memory - before) / asked.peers
        used, began = broker.cpu, time.monotonic()
        await asyncio.sleep(asked.seconds / 2)
        idle = (broker.cpu - used) / (time.monotonic() - began)
        used, began = broker.cpu, time.monotonic()
        passers = await churn(broker, asked)
        passed, refused = cast(int, passers["passed"]), cast(int, passers["refused"])
        took = time.monotonic() - began
        busy = broker.cpu - used
        known = await crowd.counted()
        row = {
            "peers": asked.peers,
            "lost": crowd.lost,
            "known": known,
            "seconds_to_come": round(came, 1),
            "cpu_us_per_peer_that_comes": round(came_cpu * 1e6 / asked.peers, 1),
            "kib_per_peer": round(per_peer, 2),
            "cpu_percent_with_heartbeats": round(100 * idle, 1),
            "passed": passed,
            "refused": refused,
            "connects_per_second": passers["per_second"],
            "cpu_us_per_connect_and_disconnect": round((busy - idle * took) * 1e6 / passed, 1),
            "held": crowd.lost == 0 and known == asked.peers and refused == 0,
        }
        beating.cancel()
        crowd.go()
        return row


async def back(asked: argparse.Namespace) -> Row:
    with running() as broker:
        crowd = Crowd(broker, asked.peers)
        beating = asyncio.create_task(crowd.beat())
        await crowd.come()
        broker.kill()
        await until(lambda: crowd.lost == asked.peers, "end of all connections")
        crowd.lost = 0
        await asyncio.to_thread(broker.start)
        began, used = time.monotonic(), broker.cpu
        await crowd.come(asked.peers)  # all at once
        took, spent = time.monotonic() - began, broker.cpu - used
        await asyncio.sleep(asked.after)
        known = await crowd.counted()
        row = {
            "peers": asked.peers,
            "seconds_until_all_are_back": round(took, 1),
            "broker_cpu_seconds": round(spent, 2),
            "lost_afterwards": crowd.lost,
            "known": known,
            "held": crowd.lost == 0 and known == asked.peers,
        }
        beating.cancel()
        crowd.go()
        return row


# --- requests, topics, services


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
        await until(lambda: late.count >= asked.topics, f"{asked.topics} last values (there are {late.count})")
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


SCENES: dict[str, Callable[[argparse.Namespace], Awaitable[Row]]] = {
    "peers": peers,
    "back": back,
    "queued": queued,
    "topics": topics,
    "services": services,
}
PARTS: dict[str, Callable[[argparse.Namespace], Awaitable[Row]]] = {**SCENES, "come-and-go": come_and_go}


def arguments(words: "list[str] | None" = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--peers", type=int, default=20_000)
    parser.add_argument("--port", type=int, help="come-and-go: of the broker")
    parser.add_argument("--churn", type=float, default=2_000.0, help="connects and disconnects per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of churn")
    parser.add_argument(
        "--after",
        type=float,
        default=10.0,
        help="seconds to watch those that came back: a broker allows 7.5 s of silence",
    )
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(words)
    wrong = [scene for scene in asked.scenes if scene not in PARTS]
    if wrong:
        parser.error(f"no scene {wrong[0]!r}; there are {', '.join(SCENES)}")
    return asked


def play(asked: argparse.Namespace) -> "dict[str, Row]":
    scenes = asked.scenes or list(SCENES)
    need = FILES + (asked.peers if {"peers", "back"} & set(scenes) else 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(need, hard), max(need, hard)))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if hard < need:
            raise SystemExit(
                f"{need} open files are needed, and {hard} are allowed: raise the hard limit (ulimit -Hn)"
            ) from None
    rows: dict[str, Row] = {}
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    for scene in scenes:  # the limit stays raised until the end: the broker inherits it
        with asyncio.Runner(loop_factory=factory) as runner:

            async def one(scene: str = scene) -> Row:
                return await PARTS[scene](asked)

            rows[scene] = runner.run(one())
        print(scene, json.dumps(rows[scene]), flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return rows


def main() -> None:
    asked = arguments()
    rows = play(asked)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))
    if not all(row["held"] for row in rows.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
