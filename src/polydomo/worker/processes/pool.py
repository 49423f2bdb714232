"""The pool: passes calls to its processes, starts new ones for those that end, and kills those whose calls are no longer wanted."""

import asyncio
import contextvars
import logging
import math
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from polydomo.client.suspension import wait_running
from polydomo.errors import CallFailed, SettingError
from polydomo.limits import CLOSE_TIME, POOL_OVERTIME, POOL_PROCESSES
from polydomo.model.outcomes import FAILED
from polydomo.worker.batches import Outcome
from polydomo.worker.call import Call, Forward
from polydomo.worker.functions import Function, FunctionFailed, LocalFunction, RemoteFunction, Send
from polydomo.worker.processes import messages
from polydomo.worker.processes.forker import ForkedProcess, Forker
from polydomo.worker.processes.messages import (
    CallReport,
    Ended,
    Failed,
    Go,
    Onward,
    Record,
    ReplyPart,
    RunCall,
    RunCalls,
)
from polydomo.worker.processes.output import OnOutput, OutputPipe, show_or_log

log = logging.getLogger("polydomo.worker")


@dataclass(frozen=True)
class PoolSize:
    """How many processes a pool has, and when one of them is replaced after a call; 0: never."""

    processes: int
    max_calls: int = 0
    max_memory: int = 0  # bytes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise SettingError(f"{name}: must be 0 or more, not {value}")
        if self.processes > POOL_PROCESSES:
            raise SettingError(f"processes: must be up to {POOL_PROCESSES}, not {self.processes}")
        if not self.processes and (self.max_calls or self.max_memory):
            raise SettingError("max_calls and max_memory: need a pool of processes, such as processes=4")


class PooledFunction(RemoteFunction):
    """Stands for a function of the worker; the pool runs it."""

    def __init__(self, pool: "ProcessPool", name: bytes) -> None:
        self._pool = pool
        self._name = name

    async def serve(self, call: Call, send: Send) -> list[bytes] | Forward:
        return await self._pool.run(self._name, call, send)


class ProcessPool:
    """The processes of one worker. ``lost`` is done if the process that forks them was killed: then no call can run."""

    def __init__(
        self, functions: Mapping[bytes, LocalFunction], size: PoolSize, on_output: OnOutput | None = None
    ) -> None:
        self._size = size
        self._on_output = on_output or show_or_log
        self._free: asyncio.Queue[PoolProcess] = asyncio.Queue()
        self._processes: set[PoolProcess] = set()
        self._closing = False
        self._replacing: set[asyncio.Task[None]] = set()
        self.functions: dict[bytes, Function] = {name: PooledFunction(self, name) for name in functions}
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forker = Forker(functions, self._on_lost)

    async def start(self) -> None:
        for _ in range(self._size.processes):
            await self._start_process()

    async def run(self, function: bytes, call: Call, send: Send) -> list[bytes] | Forward:
        """Runs one call in a process that is free. If this is cancelled, or the time of the call is over, the process is killed."""
        outcome = await self._run(RunCall.of(function, call), [call], send)
        assert not isinstance(outcome, Ended)
        found = _read_outcome(outcome)
        if isinstance(found, Exception):
            raise found
        return found

    async def run_batch(self, function: bytes, calls: list[Call]) -> list[Outcome]:
        """Runs a batch in a process that is free. If this is cancelled, or the time of all its calls is over, the process is killed."""
        message = RunCalls(function, [RunCall.of(function, call) for call in calls])
        outcome = await self._run(message, calls, _refuse)
        if isinstance(outcome, Ended):
            return [_read_outcome(each) for each in outcome.outcomes]
        found = _read_outcome(outcome)
        assert isinstance(found, Exception)
        raise found

    async def _run(self, message: RunCall | RunCalls, calls: list[Call], send: Send) -> "messages.Outcome | Ended":
        longest = max(calls, key=lambda call: call.remaining)
        process = await self._take()
        finished = False
        limit = longest.remaining + POOL_OVERTIME if longest.remaining < math.inf else None
        try:
            async with asyncio.timeout(limit):
                outcome = await process.run(message, calls, send)
            finished = True
        except TimeoutError:
            raise CallFailed(
                "timeout", f"its time of {longest.timeout:g} s was over, and its process was killed"
            ) from None
        except EOFError:
            how = how_it_ended(await process.forked.ended)
            raise CallFailed(FAILED, f"the process of the call ended before the call: {how}") from None
        finally:
            if finished:
                self._release(process, outcome.memory)
            else:
                self._forker.kill(process.forked)
        return outcome

    async def close(self) -> None:
        """Ends all processes; those that still run a call are killed."""
        self._closing = True
        for process in self._processes:
            if process.busy:
                self._forker.kill(process.forked)
            else:
                process.retire()
        if self._processes:
            await wait_running([process.forked.ended for process in self._processes], CLOSE_TIME)
        await self._forker.close()
        if self._replacing:
            await asyncio.wait(self._replacing)

    async def _take(self) -> "PoolProcess":
        while True:
            process = await self._free.get()
            if not process.forked.ended.done():
                return process

    def _release(self, process: "PoolProcess", memory: int) -> None:
        size = self._size
        if (size.max_calls and process.calls >= size.max_calls) or (size.max_memory and memory > size.max_memory):
            log.debug("process %d is replaced after %d calls, with %d bytes", process.forked.pid, process.calls, memory)
            process.retire()
        else:
            self._free.put_nowait(process)

    async def _start_process(self) -> None:
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        forked = self._forker.fork([theirs.detach(), pipes[0][1], pipes[1][1]])
        process = PoolProcess(forked, (pipes[0][0], pipes[1][0]), self._on_output)
        await process.connect(ours)
        self._processes.add(process)
        self._free.put_nowait(process)
        forked.ended.add_done_callback(lambda ended: self._on_ended(process))

    def _on_ended(self, process: "PoolProcess") -> None:
        self._processes.discard(process)
        process.close()
        if not self._closing and not self.lost.done():
            task = asyncio.get_running_loop().create_task(self._start_process())
            self._replacing.add(task)
            task.add_done_callback(self._replacing.discard)

    def _on_lost(self) -> None:
        if not self._closing and not self.lost.done():
            self.lost.set_result(None)


class PoolProcess:
    """The worker's end of one process."""

    _reading: "asyncio.Task[None] | None" = None
    _writer: asyncio.StreamWriter

    def __init__(self, forked: ForkedProcess, output: tuple[int, int], on_output: OnOutput) -> None:
        self.forked = forked
        self.calls = 0
        self.busy = False
        self._inbox: asyncio.Queue[ReplyPart | CallReport | messages.Outcome | Ended | None] = asyncio.Queue()
        self._context = contextvars.copy_context()  # of the call that it runs
        self._streams = [OutputPipe(fd, number, self._write) for number, fd in enumerate(output, 1)]
        self._on_output = on_output

    async def connect(self, sock: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=sock)
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    async def run(self, call: RunCall | RunCalls, calls: list[Call], send: Send) -> "messages.Outcome | Ended":
        """Raises EOFError if the process ends before the call."""
        self.busy = True
        self.calls += len(call.calls) if isinstance(call, RunCalls) else 1
        self._context = contextvars.copy_context()
        try:
            self._writer.write(messages.write(call))
            while True:
                message = await self._inbox.get()
                if message is None:
                    raise EOFError
                if isinstance(message, CallReport):
                    calls[message.call].progress(message.share, message.text)
                    continue
                if not isinstance(message, ReplyPart):
                    return message
                await send(message.body)
                self._writer.write(messages.write(Go()))
        finally:
            for stream in self._streams:
                stream.finish()  # what the function wrote before it ended belongs to its call
            self._context = contextvars.Context()
            self.busy = False

    def retire(self) -> None:
        """The process ends, because its connection is closed."""
        self._writer.close()

    def close(self) -> None:
        """The process has ended."""
        for stream in self._streams:
            stream.close()
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(messages.LENGTH), "big")
                message = messages.read_from_process(await reader.readexactly(size))
                if isinstance(message, Record):
                    record = logging.makeLogRecord(dict(message.fields))
                    self._context.run(_log, record)
                else:
                    self._inbox.put_nowait(message)
        except (asyncio.IncompleteReadError, OSError):
            self._inbox.put_nowait(None)

    def _write(self, stream: int, data: bytes) -> None:
        self._context.run(self._on_output, stream, data)


async def _refuse(body: list[bytes]) -> None:
    raise TypeError("a function that gets batches has no partial replies")


def _read_outcome(outcome: messages.Outcome) -> Outcome:
    if isinstance(outcome, Failed):
        if outcome.traceback:
            return FunctionFailed(outcome.text, outcome.traceback)
        return CallFailed(outcome.code, outcome.text)
    return Forward(outcome.service, outcome.body, outcome.metadata) if isinstance(outcome, Onward) else outcome.body


def _log(record: logging.LogRecord) -> None:
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def how_it_ended(status: int) -> str:
    """
    >>> how_it_ended(-9), how_it_ended(3)
    ('it was killed by SIGKILL; was it out of memory?', 'it exited with status 3')
    """
    if status >= 0:
        return f"it exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"it was killed by {name}" + ("; was it out of memory?" if status == -signal.SIGKILL else "")
