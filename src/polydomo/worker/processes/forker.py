"""The process from which the processes of a pool are forked, and the worker's handle of it.

It is forked from the worker before the worker opens a connection, and then does nothing but fork, end and reap. So a process that is
started later, to replace another one, begins with the functions as they were at the start, and inherits neither threads nor connections.
When the worker ends, for whatever reason, the control connection is closed, and the forker ends all processes.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import NoReturn

from polydomo.worker.functions import LocalFunction
from polydomo.worker.processes import child

COMMAND = struct.Struct("!cI")  # to the forker: the kind, and a process id
FORK = b"+"  # with three file descriptors; answered with the process id
KILL = b"-"
NEWS = struct.Struct("!cIi")  # from the forker: the kind, the process id, and its status
FORKED = b"+"
ENDED = b"-"
DESCRIPTORS = 3  # the connection, standard output, standard error
PR_SET_PDEATHSIG = 1


class ForkedProcess:
    """A process that is about to be forked. ``pid`` and ``ended`` (with its exit status; negative: a signal) become known later."""

    def __init__(self) -> None:
        self.pid = 0
        self.killed = False
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Forker:
    """The worker's handle. ``on_lost`` is called if the forker ends by itself."""

    def __init__(self, functions: Mapping[bytes, LocalFunction], on_lost: Callable[[], None]) -> None:
        self._control, theirs = socket.socketpair()
        self._on_lost = on_lost
        self._forking: deque[ForkedProcess] = deque()
        self._running: dict[int, ForkedProcess] = {}
        self._news = bytearray()
        sys.stdout.flush()
        with warnings.catch_warnings():
            # Python warns of forks in a program with threads. What runs in the forker, and before a function is called, takes no locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _run_forker(self._control, theirs, functions)
        theirs.close()
        self._control.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._control.fileno(), self._readable)

    def fork(self, descriptors: list[int]) -> ForkedProcess:
        """Forks a process that serves on these descriptors. They are closed here. Raises OSError if the forker is gone."""
        process = ForkedProcess()
        try:
            socket.send_fds(self._control, [COMMAND.pack(FORK, 0)], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._forking.append(process)
        return process

    def kill(self, process: ForkedProcess) -> None:
        """Kills the process and those that it has started."""
        process.killed = True
        if process.pid and not process.ended.done():
            with contextlib.suppress(OSError):
                self._control.send(COMMAND.pack(KILL, process.pid))

    async def close(self) -> None:
        """Ends the forker, which kills the processes that are left."""
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        await asyncio.to_thread(_reap, self._pid)
        self._end_all()

    def _readable(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control.fileno())
            self._end_all()
            self._on_lost()
            return
        self._news += data
        while len(self._news) >= NEWS.size:
            kind, pid, status = NEWS.unpack_from(self._news)
            del self._news[: NEWS.size]
            if kind == FORKED:
                process = self._forking.popleft()
                process.pid = pid
                self._running[pid] = process
                if process.killed:
                    self.kill(process)
            elif (gone := self._running.pop(pid, None)) is not None and not gone.ended.done():
                gone.ended.set_result(status)

    def _end_all(self) -> None:
        """The forker is gone, and with it the processes."""
        for process in (*self._running.values(), *self._forking):
            if process.pid:
                _kill_group(process.pid)
            if not process.ended.done():
                process.ended.set_result(-signal.SIGKILL)
        self._running.clear()
        self._forking.clear()


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it has not begun its own session yet
    except PermissionError:
        pass


# --- in the forker's own process ---------------------------------------------------------------------------------------


def _run_forker(workers: socket.socket, control: socket.socket, functions: Mapping[bytes, LocalFunction]) -> NoReturn:
    try:
        workers.close()
        os.setsid()  # a signal from the terminal is the worker's business
        asyncio._set_running_loop(None)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # the processes share this memory as long as nothing writes to it
        _fork_and_reap(control, functions)
    finally:
        os._exit(1)


def _fork_and_reap(control: socket.socket, functions: Mapping[bytes, LocalFunction]) -> NoReturn:
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            for pid, status in _ended():
                running.discard(pid)
                _kill_group(pid)  # what its function has started and not ended
                _tell(control, NEWS.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))
        if control.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(control, COMMAND.size, DESCRIPTORS)
            if len(data) < COMMAND.size:
                for pid in running:
                    _kill_group(pid)
                os._exit(0)  # the worker has ended
            kind, pid = COMMAND.unpack(data)
            if kind == KILL and pid in running:
                _kill_group(pid)
            elif kind == FORK and len(descriptors) == DESCRIPTORS:
                pid = _fork(control, (wake, waker), descriptors, functions)
                running.add(pid)
                _tell(control, NEWS.pack(FORKED, pid, 0))


def _tell(control: socket.socket, news: bytes) -> None:
    with contextlib.suppress(OSError):
        control.sendall(news)  # if the worker is gone, the next look at the connection shows it


def _ended() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _fork(
    control: socket.socket, wake: tuple[int, int], descriptors: list[int], functions: Mapping[bytes, LocalFunction]
) -> int:
    forker = os.getpid()
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    try:
        os.setsid()  # what a function starts ends with its process
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent(forker)
        control.close()
        for descriptor in wake:
            os.close(descriptor)
        child.serve(socket.socket(fileno=descriptors[0]), (descriptors[1], descriptors[2]), functions)
    finally:
        os._exit(1)


def _die_with_parent(parent: int) -> None:
    """On Linux the system kills this process if the forker is killed. Elsewhere it ends after its call."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
