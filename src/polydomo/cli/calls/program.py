"""Serves a service with a program: standard input is the request's body, standard output is the reply."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable

from polydomo.cli.common.child_guard import ChildGuard
from polydomo.errors import CallFailed
from polydomo.limits import MAX_BODY, MAX_FAILURE_TEXT, MAX_LOG_RECORD
from polydomo.model.outcomes import FAILED, TOO_LARGE
from polydomo.worker.call import Call

CHUNK = 256 * 1024  # bytes read from the program at a time


class Program:
    """Runs a program for each call. A nonzero exit status fails the call with the last line of standard error. A program whose caller
    has given up is killed.

    The program runs in a separate session, so that Ctrl-C lets it finish and its child processes end with it. A ``ChildGuard`` ends it
    if this process is killed.
    """

    def __init__(self, words: list[str], on_error_line: Callable[[str], None] | None = None) -> None:
        self.words = words
        self.on_error_line = on_error_line  # called with each line of standard error during the call
        self.running: set[int] = set()  # process ids, to kill them on immediate exit
        self.starting = 0  # programs that may already run, but whose process ids are not known yet
        self.guard = ChildGuard()

    async def whole(self, call: Call) -> bytes:
        """Returns the program's whole output as one reply."""
        output = bytearray()
        async for piece in self._run(call):
            output += piece
            if len(output) > MAX_BODY:
                raise CallFailed(TOO_LARGE, f"{self.words[0]} wrote over {MAX_BODY} bytes")
        return bytes(output)

    async def lines(self, call: Call) -> AsyncIterator[bytes]:
        """Yields each line of the output as a partial reply."""
        rest = b""
        async for piece in self._run(call):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > MAX_BODY:
                raise CallFailed(TOO_LARGE, f"{self.words[0]} wrote a line of over {MAX_BODY} bytes")
        if rest:
            yield rest

    def kill(self) -> None:
        """Kills all running programs."""
        for pid in self.running:
            _kill(pid)

    async def _run(self, call: Call) -> AsyncIterator[bytes]:
        self.starting += 1
        try:
            starting = asyncio.ensure_future(self._start())
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await self._abort(starting)
                raise
            self.running.add(process.pid)
        finally:
            self.starting -= 1
        feeding = asyncio.ensure_future(_feed(process, call))
        complaining = asyncio.ensure_future(_last_line(process, self.on_error_line))
        try:
            assert process.stdout is not None
            while piece := await process.stdout.read(CHUNK):
                yield piece
            last = await complaining
            status = await process.wait()
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()
            self.running.discard(process.pid)
            self.guard.ended(process.pid)
            feeding.cancel()
            complaining.cancel()
        if status:
            how = f"exit status {status}" if status > 0 else f"killed by {_signal_name(-status)}"
            raise CallFailed(FAILED, last or f"{self.words[0]}: {how}")

    async def _abort(self, starting: "asyncio.Future[asyncio.subprocess.Process]") -> None:
        """The call was cancelled while its program was being started."""
        try:
            process = await starting
        except CallFailed:
            return
        _kill(process.pid)
        await process.wait()
        self.guard.ended(process.pid)

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            self.guard.start()
            return await asyncio.create_subprocess_exec(
                *self.words,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
                preexec_fn=self.guard.enter,
            )
        except OSError as error:
            self.guard.failed()
            raise CallFailed(FAILED, f"cannot run {self.words[0]}: {error.strerror or error}") from None


async def _feed(process: asyncio.subprocess.Process, call: Call) -> None:
    assert process.stdin is not None
    try:
        process.stdin.writelines(call)
        await process.stdin.drain()
    except ConnectionError:
        pass  # a program need not read its input
    finally:
        process.stdin.close()


async def _last_line(process: asyncio.subprocess.Process, on_line: Callable[[str], None] | None) -> str:
    """Forwards standard error, and returns its last line that is not empty."""
    assert process.stderr is not None
    tail = rest = b""
    while piece := await process.stderr.read(CHUNK):
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()
        tail = (tail + piece)[-MAX_FAILURE_TEXT:]
        if on_line is not None:
            *whole, rest = (rest + piece).split(b"\n")
            rest = rest[:MAX_LOG_RECORD]  # bound the memory for a program that never ends its line
            for each in whole:
                _report(each, on_line)
    if on_line is not None:
        _report(rest, on_line)
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _report(line: bytes, on_line: Callable[[str], None]) -> None:
    text = line[:MAX_LOG_RECORD].decode("utf-8", "backslashreplace").rstrip()
    if text:
        on_line(text)


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
