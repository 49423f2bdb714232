"""The standard output and standard error of the processes of a pool: each line belongs to the call that its process runs."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from polydomo.limits import MAX_LOG_RECORD, POOL_OUTPUT_PIECE

log = logging.getLogger("polydomo.output")

STDOUT = 1
STDERR = 2

# Called with a stream and a line that a function has written to it, in the context of its call. Only the last line may lack its end.
OnOutput = Callable[[int, bytes], None]


class OutputPipe:
    """Reads what a process writes to one of its streams, line by line."""

    def __init__(self, fd: int, stream: int, on_line: OnOutput) -> None:
        self._fd = fd
        self._stream = stream
        self._on_line = on_line
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._drain)

    def finish(self) -> None:
        """The call has ended: reads everything that was written so far, also a line without an end."""
        self._drain()
        if self._rest:
            line, self._rest = self._rest, b""
            self._on_line(self._stream, line)

    def close(self) -> None:
        self.finish()
        self._release()

    def _drain(self) -> None:
        while self._fd >= 0:
            try:
                data = os.read(self._fd, POOL_OUTPUT_PIECE)
            except BlockingIOError:
                return
            if not data:
                self._release()
                return
            *lines, self._rest = (self._rest + data).splitlines(keepends=True)
            if self._rest.endswith(b"\n") or len(self._rest) > MAX_LOG_RECORD:
                lines.append(self._rest)
                self._rest = b""
            for line in lines:
                self._on_line(self._stream, line)

    def _release(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def show_or_log(stream: int, line: bytes) -> None:
    """Logs the line as a record of the call (logger ``polydomo.output``) if the program has configured logging for it; otherwise writes it
    to the worker's own stream."""
    if log.hasHandlers() and log.isEnabledFor(logging.INFO):
        log.info("%s", _text(line).rstrip(), extra={"stream": "stdout" if stream == STDOUT else "stderr"})
    else:
        show(stream, line)


def show(stream: int, line: bytes) -> None:
    """Writes the line to the worker's own stream."""
    target = sys.stdout if stream == STDOUT else sys.stderr
    try:
        target.write(_text(line))
        target.flush()
    except (OSError, ValueError):
        pass  # the worker's own stream is closed


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")
