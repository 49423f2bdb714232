"""A process of the pool: runs one call after the other until the worker closes its connection."""

import asyncio
import inspect
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Mapping
from typing import NoReturn

from polydomo.errors import CallFailed
from polydomo.limits import MAX_FAILURE_TEXT
from polydomo.model.outcomes import FAILED
from polydomo.worker.batches import outcomes_of
from polydomo.worker.call import RUNNING, Call, Forward, Running
from polydomo.worker.functions import (
    LocalFunction,
    completed,
    error_text,
    from_the_function,
    run_blocking,
    runs_on_loop,
)
from polydomo.worker.processes import messages
from polydomo.worker.processes.messages import (
    CallReport,
    Ended,
    Failed,
    Final,
    Go,
    Onward,
    Outcome,
    Plain,
    Record,
    ReplyPart,
    RunCall,
    RunCalls,
)
from polydomo.worker.progress import ThreadReporter

PAGE = os.sysconf("SC_PAGE_SIZE")


class Channel:
    """The process's end of the connection to the worker. Any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, message: messages.ToWorker) -> None:
        content = messages.write(message)
        with self._lock:
            self._socket.sendall(content)

    def receive(self) -> messages.ToProcess | None:
        return messages.receive(self._socket)

    def send_part(self, body: list[bytes]) -> None:
        """Sends a partial reply and waits until the worker has passed it on."""
        self.send(ReplyPart(body))
        if not isinstance(self.receive(), Go):
            os._exit(0)  # the worker is gone


def serve(sock: socket.socket, output: tuple[int, int], functions: Mapping[bytes, LocalFunction]) -> NoReturn:
    """Serves calls until the connection is closed. ``output`` becomes standard output and standard error."""
    try:
        channel = Channel(sock)
        _redirect(output)
        _log_to(channel)
        runner = asyncio.Runner()
        while isinstance(message := channel.receive(), RunCall | RunCalls):
            outcome: Outcome | Ended
            if isinstance(message, RunCalls):
                outcome = _run_batch(message, functions, channel, runner)
            else:
                outcome = _run(message, functions, channel, runner)
            _flush()
            channel.send(outcome)
        os._exit(0)
    except (BrokenPipeError, ConnectionError):
        os._exit(0)  # the worker is gone
    finally:
        os._exit(1)


def _run(
    message: RunCall, functions: Mapping[bytes, LocalFunction], channel: Channel, runner: asyncio.Runner
) -> Outcome:
    call = message.call(time.monotonic())
    reporter = _reporter(channel, 0, call)
    mark = RUNNING.set(Running(call.service, call.request))
    try:
        found = _result(functions[message.function], call, channel, runner)
        return _outcome(found, used_memory())
    except BaseException as error:  # SystemExit too fails the call, and does not end the process
        return _outcome(error, used_memory())
    finally:
        reporter.finish()
        RUNNING.reset(mark)


def _reporter(channel: Channel, place: int, call: Call) -> ThreadReporter:
    reporter = ThreadReporter(lambda share, text: channel.send(CallReport(place, share, text)))
    call.on_progress = reporter.report
    return reporter


def _run_batch(
    message: RunCalls, functions: Mapping[bytes, LocalFunction], channel: Channel, runner: asyncio.Runner
) -> Ended | Failed:
    now = time.monotonic()
    function, calls = functions[message.function], [call.call(now) for call in message.calls]
    reporters = [_reporter(channel, place, call) for place, call in enumerate(calls)]
    mark = RUNNING.set(Running(calls[0].service, ""))
    try:
        value = function(calls)
        if inspect.isawaitable(value):
            value = runner.run(awaited(value))
        outcomes, memory = outcomes_of(value, len(calls)), used_memory()
        return Ended([_outcome(each, memory) for each in outcomes], memory)
    except BaseException as error:
        failed = _outcome(error, used_memory())
        assert isinstance(failed, Failed)
        return failed
    finally:
        for reporter in reporters:
            reporter.finish()
        RUNNING.reset(mark)


async def awaited(value: Awaitable[object]) -> object:
    return await value


def _outcome(found: "list[bytes] | Forward | BaseException", memory: int) -> Outcome:
    if isinstance(found, Forward):
        return Onward(found.service, found.body, found.metadata, memory)
    if isinstance(found, CallFailed):
        return Failed(found.code, found.text, "", memory)
    if isinstance(found, BaseException):
        shown = traceback.format_exception(from_the_function(found))
        return Failed(FAILED, error_text(found)[:MAX_FAILURE_TEXT], "".join(shown).rstrip(), memory)
    return Final(found, memory)


def _result(function: LocalFunction, call: Call, channel: Channel, runner: asyncio.Runner) -> list[bytes] | Forward:
    async def send(body: list[bytes]) -> None:
        channel.send_part(body)

    outcome = function(call) if runs_on_loop(function) else run_blocking(function, call, channel.send_part)
    if inspect.isasyncgen(outcome) or inspect.isawaitable(outcome):
        return runner.run(completed(outcome, send))
    coroutine = completed(outcome, send)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        body: list[bytes] | Forward = stop.value
        return body
    raise AssertionError("a value that is not awaitable is complete at once")


def used_memory() -> int:
    """Bytes of memory that this process uses; where the system does not say, the most that it has used."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _redirect(output: tuple[int, int]) -> None:
    """Standard output and error go to the worker, which knows the call that they belong to; there is no standard input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output[0], 1), (output[1], 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # the function has closed it


class ChannelHandler(logging.Handler):
    """Sends each log record to the worker, whose handlers write it."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.send(Record(_plain_fields(record)))
        except Exception:
            self.handleError(record)


def _plain_fields(record: logging.LogRecord) -> dict[str, Plain]:
    """The record with its message formatted and its exception as text, because arguments may be any objects."""
    fields = dict(vars(record))
    exc_info = fields.pop("exc_info", None)
    if exc_info and not record.exc_text:
        fields["exc_text"] = logging.Formatter().formatException(exc_info)
    fields.update(msg=record.getMessage(), args=None)
    return {
        name: value if value is None or isinstance(value, bool | int | float | str) else str(value)
        for name, value in fields.items()
    }


def _log_to(channel: Channel) -> None:
    """Replaces the handlers that were inherited: their streams and threads belong to the worker."""
    handler = ChannelHandler(channel)
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    for each in loggers:
        if each.handlers:
            each.handlers = [] if each.propagate else [handler]
    logging.root.handlers = [handler]
