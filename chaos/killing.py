"""Brokers, workers, clients and a database as processes that are killed and started again, for ``chaos.jobs`` and ``chaos.flows``."""

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from polydomo import AsyncClient, PolydomoError

PYTHON = [sys.executable, "-m"]
PATIENCE = 900.0


class Process:
    """A process that can be killed and started again."""

    def __init__(self, *words: str, log: Path) -> None:
        self.words = words
        self.log = log
        self.kills = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*PYTHON, *self.words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.kills += 1

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None


async def leader(urls: list[str]) -> int:
    """The index of the leader; -1 if there is none."""
    for n, url in enumerate(urls):
        try:
            async with AsyncClient(url, timeout=1.0, connect_timeout=0.5) as made:
                row, _ = await made.jobs.ask("jobs", {"limit": 1}, None, 1.0)
                if row["leads"]:
                    return n
        except PolydomoError:
            pass
    return -1


class Scene:
    """Brokers with one store, and what else is launched. With PostgreSQL, the database is a process, too."""

    def __init__(self, store: str, brokers: int, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._stack = ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="polydomo-chaos-")))
        self._server: Any = None
        if store == "postgresql":
            from tests.postgres import Postgres

            self._server = Postgres()
            self._stack.callback(self._server.remove)
            self._server.start()
            store = self._server.url
        self.urls = [f"ipc://{self.directory}/broker{n}.sock" for n in range(brokers)]
        self.url = ",".join(self.urls)
        self._brokers = [
            self.launch(
                f"broker{n}", "polydomo", "up", "--listen", url, "--data", str(self.directory / f"data{n}"), "--store", store,
                "--journal", "off", "--durable-lease", "2s",
            )
            for n, url in enumerate(self.urls)
        ]  # fmt: skip

    def launch(self, name: str, *words: str) -> Process:
        made = Process(*words, log=self.directory / f"{name}.log")
        self._stack.callback(made.end)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def kill_one(self, workers: Sequence[Process], clients: Sequence[Process]) -> None:
        """Kills one process with SIGKILL and starts it again: the leader, a worker, a client that has not ended, or the database."""
        kind = self.dice.choice(
            ["broker", "broker", "worker", "client", *(["database"] if self._server is not None else [])]
        )
        if kind == "broker":
            leads = asyncio.run(leader(self.urls))
            if leads < 0:  # it was killed and does not work yet
                return
            self._brokers[leads].kill_and_start()
        elif kind == "worker":
            self.dice.choice(workers).kill_and_start()
        elif kind == "client":
            open_ones = [one for one in clients if not one.ended]
            if not open_ones:
                return
            self.dice.choice(open_ones).kill_and_start()
        else:
            self._server.kill()
            self._server.start()
        self.kills[kind] += 1

    def kill_until_ended(
        self, workers: Sequence[Process], clients: Sequence[Process], pause: float, rounds: int, most: int
    ) -> None:
        """Kills again and again, until all clients have ended and brokers were killed ``rounds`` times, for at most ``PATIENCE`` seconds.
        ``most``: the kills of brokers after which it only waits, so that a slow machine gets on with the work; 0: no limit."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            if all(one.ended for one in clients) and self.kills["broker"] >= rounds:
                return
            time.sleep(self.dice.uniform(0.3, 1.0) * pause)
            if not most or self.kills["broker"] < most:
                self.kill_one(workers, clients)

    def show_logs(self) -> None:
        for path in sorted(self.directory.glob("*.log")):
            print(f"--- {path.name}", path.read_text()[-2000:], file=sys.stderr)
