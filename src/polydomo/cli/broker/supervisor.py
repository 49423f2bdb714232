"""``polydomo up --processes N``: starts the processes of a broker, restarts one that dies, and stops them together.

The supervisor serves no peers. It checks the settings, reserves the ports, makes the directory of the sockets that join the processes, and
starts each process (``process.py``) with a socket pair for control. Over it each process reports that it is ready and, while the broker
stops, whether its requests have finished; the supervisor reports when all have. If the supervisor dies, the processes read the end of
that socket and stop.
"""

import asyncio
import contextlib
import json
import logging
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import typer

from polydomo import __version__, limits, native
from polydomo.cli.common.exit_status import ignore_late_signals
from polydomo.errors import SettingError
from polydomo.server import logs
from polydomo.server.connections import listening
from polydomo.server.logs import say
from polydomo.server.processes.plan import ProcessPlan
from polydomo.server.resources import available_memory
from polydomo.server.settings.services import key_of
from polydomo.server.settings.settings import DEFAULT, Settings
from polydomo.wire.address import IPC

LOG = logs.get("processes")
SOCKETS = "processes"  # directory of the sockets, in the data directory
LONGEST = 90  # bytes of that directory's path: a socket file's path has at most 107
STOPPED_BY_SETTINGS = 2


def ending(status: int) -> str:
    """
    >>> ending(-9), ending(1)
    ('killed by SIGKILL', 'exited with status 1')
    """
    if status >= 0:
        return f"exited with status {status}"
    return f"killed by {signal.Signals(-status).name if -status in set(signal.Signals) else f'signal {-status}'}"


def run(settings: Settings, count: int) -> None:
    """Runs the broker until it is stopped. Raises SettingError."""
    adjust(settings, count)
    with contextlib.ExitStack() as stack:
        directory = socket_directory(settings)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        status = asyncio.run(Supervisor(settings, count, directory).run())
    if status:
        raise typer.Exit(status)


def adjust(settings: Settings, count: int) -> None:
    """Refuses settings that need one process, and shares limits of the whole broker among the processes. Raises SettingError."""

    def refuse(key: str, why: str) -> None:
        source = settings.sources.get(key, DEFAULT)
        raise SettingError(f"{key} ({source}): {why}; run one process (--processes 1), or leave {key} out")

    for pattern in settings.chosen("memo"):
        why = "memoised services need one process, since each would keep replies of its own"
        refuse(key_of(pattern, "memo"), why)
    bounds = settings.limits
    bounds.max_memory = (bounds.max_memory or available_memory() // limits.MEMORY_PART) // count
    bounds.max_held_bytes = max(bounds.max_message * 2, bounds.max_held_bytes // count)


def socket_directory(settings: Settings) -> str:
    """A directory that only this user can enter. Raises SettingError."""
    path = Path(settings.data).absolute() / SOCKETS
    try:
        if len(os.fsencode(path)) > LONGEST:
            return tempfile.mkdtemp(prefix="polydomo-")
        path.mkdir(mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        raise SettingError(f"data: cannot make {path}: {error.strerror or error}") from None
    return str(path)


class Child:
    """One process, from its start to its end."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: asyncio.subprocess.Process | None = None
        self.control: asyncio.StreamWriter | None = None
        self.ready = asyncio.Event()
        self.idle = False
        self.failures = 0
        self.began = 0.0

    def tell(self, **message: object) -> None:
        if self.control is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self.control.write(json.dumps(message).encode() + b"\n")


class Supervisor:
    def __init__(self, settings: Settings, count: int, directory: str) -> None:
        self.settings = settings
        self.count = count
        self.directory = directory
        self.children = [Child(index) for index in range(count)]
        self._stop = asyncio.Event()
        self._failed = asyncio.Event()  # a process did not start
        self._status = 0
        self._leaving = False
        self._reserved: list[listening.Listening] = []
        self._inherited: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        if self.settings.access:
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            await self._reserve()
            self._tasks = [loop.create_task(self._keep(child)) for child in self.children]
            if not await self._started():
                return self._status
            await self._stop.wait()
            await self._finish()
        finally:
            self._leaving = True
            await self._end()
            for bound in self._reserved:
                bound.close()
        logs.sweep(float("inf"))
        ignore_late_signals(loop)
        say(LOG, logging.INFO, "stopped")
        return 0

    # --- starting

    async def _reserve(self) -> None:
        """Takes the ports, so that port 0 is the same for all processes, and opens the ipc:// sockets. Raises SettingError."""
        urls: list[str] = []
        for listener in self.settings.listeners():
            address = listener.address
            if address.kind == IPC:
                bound = await listening.bind(address)
                bound.sockets[0].listen(limits.BACKLOG)
                bound.sockets[0].set_inheritable(True)
                self._inherited[str(bound.address)] = bound.sockets[0].fileno()
            else:
                # Bound without sharing first: another broker that shares its port must not get a part of our connections.
                probe = await listening.bind(address)
                probe.close()
                bound = await listening.bind(probe.address, shared=True)
            self._reserved.append(bound)
            if listener.role.name:
                section, _, name = listener.role.name.partition(".")
                setattr(self.settings.get(section), name, str(bound.address))
            else:
                urls.append(str(bound.address))
        self.settings.listen = urls

    async def _started(self) -> bool:
        """Waits until every process is ready, and logs it."""
        end = time.monotonic() + limits.PROCESS_START
        while not all(child.ready.is_set() for child in self.children) and time.monotonic() < end:
            if self._failed.is_set() or self._stop.is_set():
                break
            await asyncio.sleep(limits.PROCESS_LOOK)
        if self._failed.is_set():
            return False
        if self._stop.is_set():
            return True
        for bound in self._reserved:
            say(LOG, logging.INFO, "listening", address=str(bound.address))
        say(LOG, logging.INFO, "ready", version=__version__, core=native.core(), pid=os.getpid(), processes=self.count)
        if sys.stderr.isatty() and not self.settings.log_json:
            from polydomo.cli.broker.greeting import greet

            greet(self.settings.listen)
        return True

    async def _keep(self, child: Child) -> None:
        """Runs one process, again and again."""
        while not self._leaving:
            child.began = time.monotonic()
            status = await self._run_once(child)
            if self._leaving:
                return
            if not child.ready.is_set():
                self._status = status if status > 0 else 1
                if status != STOPPED_BY_SETTINGS:
                    say(LOG, logging.ERROR, "a process did not start", process=child.index, why=ending(status))
                self._failed.set()
                return
            settled = time.monotonic() - child.began > limits.PROCESS_SETTLED
            child.failures = 0 if settled else child.failures + 1
            pause = min(limits.PROCESS_BACKOFF_MOST, limits.PROCESS_BACKOFF * 2.0 ** min(child.failures, 16))
            say(
                LOG,
                logging.ERROR,
                "a process died and is started again",
                process=child.index,
                why=ending(status),
                after=round(pause, 3),
            )
            await asyncio.sleep(pause)

    async def _run_once(self, child: Child) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            child.idle = False
            files = (theirs.fileno(), *self._inherited.values())
            try:
                child.process = await asyncio.create_subprocess_exec(
                    *(
                        sys.executable,
                        "-m",
                        "polydomo.cli.broker.process",
                        str(theirs.fileno()),
                        f"process-{child.index}",
                    ),
                    pass_fds=files,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                say(LOG, logging.ERROR, "cannot start a process", process=child.index, why=str(error))
                return 1
        reader, child.control = await asyncio.open_connection(sock=ours)
        plan = ProcessPlan(child.index, self.count, self.directory, self._inherited)
        content = pickle.dumps((replace(self.settings), plan))
        child.control.write(len(content).to_bytes(4, "big") + content)
        if self._leaving:
            child.tell(stop=0.0)
        try:
            await self._listen_to(child, reader)
            return await child.process.wait()
        finally:
            child.control.close()
            child.control = None
            child.process = None

    async def _listen_to(self, child: Child, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except (OSError, ValueError):
                return
            if not line:
                return
            message = json.loads(line)
            if "ready" in message:
                if child.ready.is_set():
                    say(LOG, logging.INFO, "a process is back", process=child.index, pid=message["ready"])
                child.ready.set()
            if "idle" in message:
                child.idle = message["idle"]

    # --- stopping

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stop.is_set():
            say(LOG, logging.WARNING, "second signal, leaving at once", signal=name)
            for child in self.children:
                if child.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        child.process.kill()
            logging.shutdown()
            shutil.rmtree(self.directory, ignore_errors=True)
            os._exit(128 + number)
        say(LOG, logging.INFO, "stopping", signal=name, grace=self.settings.grace)
        self._leaving = True
        self._stop.set()

    def _reload(self) -> None:
        for child in self.children:
            if child.process is not None:
                child.process.send_signal(signal.SIGHUP)

    async def _finish(self) -> None:
        """All processes drain at once, and end when none of them has an open request: those of one may be held by workers of another."""
        for child in self.children:
            child.tell(stop=self.settings.grace)
        end = time.monotonic() + self.settings.grace
        while time.monotonic() < end and not all(child.idle or child.process is None for child in self.children):
            await asyncio.sleep(limits.PROCESS_LOOK)
        for child in self.children:
            child.tell(finish=True)
        await asyncio.wait(self._tasks, timeout=limits.PROCESS_START)

    async def _end(self) -> None:
        """Nothing is left behind."""
        for child in self.children:
            if child.process is not None and not self._stop.is_set():
                child.tell(stop=0.0, finish=True)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=limits.CLOSE_TIME * 2)
            for child in self.children:
                if child.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        child.process.kill()
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
