"""The load of ``polydomo bench``: clients in this process, workers in a second, and a broker in a third unless ``--to`` names one.

Each client keeps a fixed number of calls outstanding and starts the next when one ends (a closed loop). So a slow broker receives
fewer requests, and the latencies are those of a loaded broker. With ``rate``, calls are due at fixed times instead (an open loop,
``pace``). A ``ChildGuard`` ends the other processes if this one is killed.
"""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from polydomo.cli.bench.pace import Pacer
from polydomo.cli.common.child_guard import ChildGuard
from polydomo.cli.inspect import inspection
from polydomo.client.aio import AsyncClient
from polydomo.errors import CallError, ConnectionLost, PolydomoError
from polydomo.protocols.registry import worker_end

WARM_UP = 0.5  # maximum warm-up in seconds; it is also at most a tenth of the duration
SETUP_TIME = 120.0  # seconds for a broker, workers or clients to start, also on a busy machine
DRAIN = 10.0  # at a fixed rate, seconds after the end until open calls count as unanswered
UNANSWERED = "unanswered"
PAUSE = 0.05  # seconds between a failed call and the next one, so that clients do not hammer a broker that is gone

Progress = Callable[[float], None]  # called with the seconds passed since the previous call


@dataclass
class Load:
    protocol: str
    clients: int
    workers: int
    outstanding: int
    size: int
    duration: float
    credit: int = 1  # calls that each worker holds
    rate: float = 0.0  # calls per second of all clients; 0: each keeps ``outstanding`` calls open

    @property
    def held(self) -> int:
        """Calls that each worker really holds: over MDP always one."""
        return self.credit if worker_end(self.protocol).slots > 1 else 1

    @property
    def warm_up(self) -> float:
        return min(WARM_UP, self.duration / 10)


@dataclass
class LoadResult:
    load: Load
    # Seconds, for calls answered within the duration.
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    late: int = 0  # at a fixed rate: calls that were answered after the duration, which have a latency too
    errors: Counter[str] = field(default_factory=Counter)
    own_cpu: float = 0.0  # CPU time of this process as a fraction of the duration
    broker_cpu: float | None = None  # CPU seconds of the broker, if this command started it

    @property
    def rate(self) -> float:
        """Calls per second that were answered within the duration."""
        return (len(self.latencies) - self.late) / self.load.duration

    def percentiles(self, *parts: float) -> list[float]:
        """Latency percentiles in seconds (nearest rank)."""
        if not self.latencies:
            return [float("nan")] * len(parts)
        ordered = sorted(self.latencies)
        return [ordered[max(0, -int(-part * len(ordered) // 1) - 1)] for part in parts]


@dataclass
class LoadTarget:
    """The broker under load."""

    url: str
    pid: int | None = None  # None: this command did not start it

    def cpu(self) -> float | None:
        """CPU seconds used so far, if the system reports them."""
        if self.pid is None:
            return None
        total = 0.0
        todo = [self.pid]  # a broker may have several processes
        while todo:
            pid = todo.pop()
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                for task in os.listdir(f"/proc/{pid}/task"):
                    todo += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
            except OSError:
                if pid == self.pid:
                    return None
                continue
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total


@contextlib.asynccontextmanager
async def own_broker(guard: ChildGuard, processes: str | None = None) -> AsyncIterator[LoadTarget]:
    """Starts a broker for this measurement in a separate process, on a port that the system chooses."""
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-") as data:
        words = ["up", "--listen", "tcp://127.0.0.1:0", "--data", data, "--log-json", "--log-level", "info"]
        if processes:
            words += ["--processes", processes]
        async with program(guard, *words) as process:
            assert process.stderr is not None
            async with _started("the broker did not start"):
                url = await _listening(process.stderr)
            draining = asyncio.ensure_future(process.stderr.read())  # a full pipe would block the broker
            try:
                yield LoadTarget(url, process.pid)
            finally:
                draining.cancel()


@contextlib.asynccontextmanager
async def _started(failure: str) -> AsyncIterator[None]:
    """Limits the time that the block may take."""
    try:
        async with asyncio.timeout(SETUP_TIME):
            yield
    except TimeoutError:
        raise PolydomoError(f"{failure} within {SETUP_TIME:g} s; is this machine overloaded?") from None


async def _listening(log: asyncio.StreamReader) -> str:
    said = ""
    async for line in log:
        said = line.decode(errors="replace").strip()
        with contextlib.suppress(ValueError):
            entry = json.loads(said)
            if entry.get("message") == "listening":
                return str(entry["address"])
    raise PolydomoError(f"the broker did not start: {said.removeprefix('polydomo: ')}")


@contextlib.asynccontextmanager
async def program(guard: ChildGuard, *words: str) -> "AsyncIterator[asyncio.subprocess.Process]":
    """Runs another ``polydomo`` process and ends it on exit. It runs in a separate session, so Ctrl-C does not reach it directly."""
    guard.start()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "polydomo",
        *words,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=guard.enter,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 5.0)
            except TimeoutError:
                process.kill()
                await process.wait()
        guard.ended(process.pid)


async def run(target: LoadTarget, load: Load, progress: Progress, guard: ChildGuard) -> LoadResult:
    """Runs one load against the broker and measures it."""
    service = f"bench.{secrets.token_hex(4)}"
    words = ["work", service, "--echo", "--to", target.url, "--protocol", load.protocol]
    words += ["--concurrency", str(load.workers * load.held), "--connections", str(load.workers)]
    async with program(guard, *words, "--log-level", "error"):
        await _offered(target.url, service, load.workers)
        outcome = LoadResult(load)
        clients = [
            AsyncClient(target.url, load.protocol, max_connections=load.outstanding, connect_timeout=SETUP_TIME)
            for _ in range(load.clients)
        ]
        try:
            async with _started("the clients did not connect"):
                await asyncio.gather(*(client.connect() for client in clients))
            await _measure(target, load, service, clients, outcome, progress)
        finally:
            await asyncio.gather(*(client.close() for client in clients))
        return outcome


async def _offered(url: str, service: str, workers: int) -> None:
    """Waits until all workers have registered."""
    async with _started(f"not all of the {workers} workers registered"):
        while True:
            rows = await inspection.fetch(url, "services", SETUP_TIME)
            if any(row["name"] == service and row["workers"] >= workers for row in rows):
                return
            await asyncio.sleep(0.02)


async def _measure(
    target: LoadTarget, load: Load, service: str, clients: list[AsyncClient], outcome: LoadResult, progress: Progress
) -> None:
    payload = secrets.token_bytes(load.size)
    begin = time.perf_counter() + load.warm_up
    end = begin + load.duration

    async def lane(client: AsyncClient) -> None:
        clock = time.perf_counter
        while (start := clock()) < end:
            try:
                reply = await client.call(service, payload)
            except CallError as error:
                outcome.errors[type(error).__name__] += 1
                if isinstance(error, ConnectionLost):
                    await asyncio.sleep(PAUSE)
                continue
            done = clock()
            if reply.body != payload:
                outcome.errors["wrong reply"] += 1
            elif start >= begin and done <= end:
                outcome.latencies.append(done - start)

    async def call_due(client: AsyncClient, due: float) -> None:
        """One call of an open loop: its latency counts from the time at which it was due."""
        try:
            reply = await client.call(service, payload)
        except CallError as error:
            outcome.errors[type(error).__name__] += 1
            return
        if reply.body != payload:
            outcome.errors["wrong reply"] += 1
        elif due >= begin:
            done = time.perf_counter()
            outcome.latencies.append(done - due)
            outcome.late += done > end

    async def watch() -> None:
        reported = time.perf_counter()
        while (now := time.perf_counter()) < end:
            progress(now - reported)
            reported = now
            await asyncio.sleep(min(0.1, end - now))
        progress(end - reported)

    async def account() -> None:
        await asyncio.sleep(begin - time.perf_counter())
        own, broker = time.process_time(), target.cpu()
        await asyncio.sleep(end - time.perf_counter())
        outcome.own_cpu = (time.process_time() - own) / load.duration
        after = target.cpu()
        if broker is not None and after is not None:
            outcome.broker_cpu = after - broker

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        group.create_task(account())
        if load.rate:
            turn = itertools.cycle(clients)
            calls: set[asyncio.Task[None]] = set()

            def due(when: float, count: int) -> None:
                for _ in range(count):
                    call = asyncio.create_task(call_due(next(turn), when))
                    calls.add(call)
                    call.add_done_callback(calls.discard)

            await Pacer(load.rate, begin - load.warm_up, end, due).run()
            if calls:
                _, unanswered = await asyncio.wait(calls, timeout=DRAIN)
                outcome.errors.update({UNANSWERED: len(unanswered)} if unanswered else {})
                for call in unanswered:
                    call.cancel()
                await asyncio.gather(*unanswered, return_exceptions=True)
        else:
            for client in clients:
                for _ in range(load.outstanding):
                    group.create_task(lane(client))
