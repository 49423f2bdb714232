"""The broker of ``bench/crowd.py``, and the processes of its peers."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from bench.compare import cpu, free_port, wait_for
from bench.idle import memory
from polydomo.client.aio import AsyncClient

HERE = Path(__file__).resolve().parents[1]
PATIENCE = 300.0  # seconds for anything, on a machine that is busy
AT_ONCE = 500  # connections that are being made at a time, where that is not the question
Row = dict[str, object]


class Broker:
    """``polydomo up`` on a port that stays the same."""

    def __init__(self, data: str, *words: str) -> None:
        self.port = free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        level = os.environ.get("CROWD_LOG", "error")
        up = [sys.executable, "-m", "polydomo", "up", "--listen", self.url, "--data", data, "--log-level", level]
        self._words = [*up, "--limits-max-connections", "60000", *words]
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
        """KiB, of all its processes."""
        return sum(memory(pid) for pid in self._processes())

    def _processes(self) -> "list[int]":
        found = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
        return found

    def kill(self) -> None:
        """SIGKILL, to all its processes."""
        for pid in reversed(self._processes() if self.process.poll() is None else []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
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


async def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"no {what()} within {PATIENCE:g} s")
        await asyncio.sleep(0.02)


class Part:
    """One process with a part of the crowd."""

    def __init__(self, port: int, count: int, at_once: int) -> None:
        words = [sys.executable, "-m", "bench.crowd_peers", "stay", str(port), str(count), str(at_once)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=HERE)
        self.ready = 0
        self.lost = 0

    async def follow(self) -> None:
        assert self.process.stdout is not None
        while line := await asyncio.to_thread(self.process.stdout.readline):
            report = json.loads(line)
            self.ready, self.lost = report["ready"], report["lost"]


class Crowd:
    """Workers that stay, in several processes: one process may not open enough files."""

    def __init__(self, broker: Broker, count: int, parts: int, at_once: int = AT_ONCE) -> None:
        self.broker = broker
        self.count = count
        shares = [count // parts + (number < count % parts) for number in range(parts)]
        self._parts = [Part(broker.port, share, max(1, at_once // parts)) for share in shares]
        self._following = [asyncio.create_task(part.follow()) for part in self._parts]

    @property
    def ready(self) -> int:
        return sum(part.ready for part in self._parts)

    @property
    def lost(self) -> int:
        return sum(part.lost for part in self._parts)

    async def complete(self) -> None:
        """Waits until all are connected."""
        await until(lambda: self.ready >= self.count, lambda: f"{self.count} workers (there are {self.ready})")

    async def counted(self) -> int:
        """The workers that the broker knows."""
        return cast(int, (await self.broker.status())["workers"])

    async def go(self) -> None:
        for part in self._parts:
            assert part.process.stdin is not None
            part.process.stdin.close()
        await asyncio.gather(*self._following)
        for part in self._parts:
            part.process.wait()


async def churn(broker: Broker, rate: float, seconds: float, parts: int) -> Row:
    """Peers that connect and leave, from several processes."""
    words = [sys.executable, "-m", "bench.crowd_peers", "pass", str(broker.port), str(rate / parts), str(seconds)]
    running = [await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, cwd=HERE) for _ in range(parts)]
    rows = [json.loads((await process.communicate())[0]) for process in running]
    whole: Row = {key: sum(row[key] for row in rows) for key in ("passed", "refused", "per_second")}
    whole["slowest_ms"] = max(row["slowest_ms"] for row in rows)
    return whole
