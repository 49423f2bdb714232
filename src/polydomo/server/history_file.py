"""The file of the history in the data directory: read when the broker starts, written every five minutes and when it stops in order. A
broker that is killed loses five minutes at most. Each process has its own file."""

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from polydomo.broker.observe.history import saved
from polydomo.limits import HISTORY_LOOK, HISTORY_SAVE, MAX_PROCESSES
from polydomo.server import logs
from polydomo.server.host import Host
from polydomo.server.logs import say

LOG = logs.get("server")
NAME = "history-"  # followed by the number of the process


class HistoryFile:
    def __init__(self, server: Host) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    def load(self) -> None:
        """Called before the broker listens. What cannot be read is logged and left out."""
        server = self._server
        plan = server.plan
        numbers = [plan.index]
        if plan.index == 0:
            numbers += range(plan.count, MAX_PROCESSES)  # of a run with more processes
        for number in numbers:
            path = self._path(number)
            try:
                with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    content = file.read()
            except FileNotFoundError:
                continue
            except OSError as error:
                say(LOG, logging.WARNING, "the history of the last run is lost", file=str(path), why=str(error))
                continue
            try:
                saved.load(server.broker.history, content)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                say(LOG, logging.WARNING, "the history of the last run is lost", file=str(path), why=str(error))

    def begin(self) -> None:
        """Saves it every few minutes from now on."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """The loop only copies the samples; a thread writes them."""
        history = self._server.broker.history
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HISTORY_SAVE)
            while history.pending:
                await asyncio.sleep(HISTORY_LOOK)
            copied = saved.copy(history, history.step)
            self._writing = loop.run_in_executor(None, self._write, copied.chunks())
            await asyncio.shield(self._writing)

    async def end(self) -> None:
        """Saves it for the last time, after the broker has stopped."""
        if self._task is not None:
            self._task.cancel()
        if self._writing is not None:
            await self._writing
        self._write([saved.dump(self._server.broker.history)])

    def _write(self, chunks: Iterable[bytes]) -> None:
        server = self._server
        path = self._path(server.plan.index)
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.unlink(missing_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
            if server.plan.index == 0:  # its own file has them now
                for number in range(server.plan.count, MAX_PROCESSES):
                    self._path(number).unlink(missing_ok=True)
        except OSError as error:
            say(LOG, logging.WARNING, "the history is not saved", file=str(path), why=str(error))

    def _path(self, number: int) -> Path:
        return Path(self._server.settings.data) / f"{NAME}{number}"
