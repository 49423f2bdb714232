"""Runs service functions of any kind: normal, async, generator, async generator.

Normal functions and generators run in threads, so that they do not block the event loop. The threads are daemons, so that a function that
does not end in time cannot keep the process from exiting.
"""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from polydomo.worker.call import Call, Forward, body_of

# Sends a partial reply; raises Abandoned if it can no longer be delivered.
Send = Callable[[list[bytes]], Awaitable[None]]


class RemoteFunction:
    """A function that runs in another process."""

    async def serve(self, call: Call, send: Send) -> list[bytes] | Forward:
        """Runs it; if this is cancelled, the function ends. Raises CallFailed and FunctionFailed."""
        raise NotImplementedError


LocalFunction = Callable[[Any], Any]  # of a Call, or of a list of them (``worker.batches``)
Function = LocalFunction | RemoteFunction


OURS = (
    __name__,
    "polydomo.worker.batcher",
    "polydomo.worker.batches",
    "polydomo.worker.processes.child",
    "polydomo.worker.schema_check",
    "polydomo.worker.service_connection",
    "polydomo.worker.typed",
)  # modules whose frames are removed from tracebacks


class FunctionFailed(Exception):
    """A function in another process raised an exception."""

    def __init__(self, text: str, traceback: str) -> None:
        super().__init__(text)
        self.traceback = traceback


class Abandoned(Exception):
    """The request's connection is gone, so a generator can stop."""


def runs_on_loop(function: Function) -> bool:
    """Whether the function can be cancelled on the loop: a coroutine function or an async generator, also as an object's ``__call__``, or a
    remote function."""
    if isinstance(function, RemoteFunction):
        return True
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in (function, call))


async def execute(function: Function, call: Call, send: Send, threads: "Threads") -> list[bytes] | Forward:
    """Runs the function and returns the final body, or the service that is to complete the call. Yielded values go to
    ``send``; exceptions propagate."""
    if isinstance(function, RemoteFunction):
        return await function.serve(call, send)
    if runs_on_loop(function):
        outcome = function(call)
    else:
        loop = asyncio.get_running_loop()

        def deliver(body: list[bytes]) -> None:
            asyncio.run_coroutine_threadsafe(_sent(send, body), loop).result()

        outcome = await threads.run(loop, lambda: run_blocking(function, call, deliver))
    return await completed(outcome, send)


async def completed(outcome: Any, send: Send) -> list[bytes] | Forward:
    """The final body, from what a function returned: a value, an awaitable or an async generator."""
    if inspect.isasyncgen(outcome):
        try:
            async for part in outcome:
                await send(body_of(part))
        finally:
            await outcome.aclose()
        return []
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return outcome if isinstance(outcome, Forward) else body_of(outcome)


def run_blocking(function: LocalFunction, call: Call, deliver: Callable[[list[bytes]], None]) -> object:
    """Runs off the loop. Returns the function's return value; the parts of a generator are delivered one by one, each after the previous
    one."""
    outcome = function(call)
    if not inspect.isgenerator(outcome):
        return outcome
    try:
        while True:
            try:
                part = next(outcome)
            except StopIteration as stop:
                return stop.value
            deliver(body_of(part))
    finally:
        outcome.close()


E = TypeVar("E", bound=BaseException)


def from_the_function(error: E) -> E:
    """The error with a traceback that begins in the service function, without the library's frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in OURS:
        trace = trace.tb_next
    return error.with_traceback(trace)


def error_text(error: BaseException) -> str:
    """
    >>> error_text(KeyError("x")), error_text(AssertionError())
    ("KeyError: 'x'", 'AssertionError')
    """
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}" if text else name


async def _sent(send: Send, body: list[bytes]) -> None:
    await send(body)


class Threads:
    """Daemon threads that are started on demand and then kept. There are at most as many as functions run at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = 0
        self._busy = 0  # changed on the loop only

    async def run(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> object:
        future: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()  # run in the context of the caller's task

        def task() -> None:
            try:
                result, error = context.run(function), None
            except BaseException as problem:
                # A coroutine cannot raise StopIteration, and a function's SystemExit fails its call instead of ending the worker.
                error = problem if isinstance(problem, Exception) else RuntimeError(error_text(problem))
                if isinstance(error, StopIteration):
                    error = RuntimeError("StopIteration")
                error = error.with_traceback(problem.__traceback__)
                result = None
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                pass  # the loop is closed: the worker did not wait

        self._busy += 1
        try:
            if self._busy > self._count:
                self._count += 1
                threading.Thread(target=self._serve, name=f"{self.name}-{self._count}", daemon=True).start()
            self._tasks.put(task)
            return await future
        finally:
            self._busy -= 1

    def stop(self) -> None:
        """Stops the threads once they are free."""
        for _ in range(self._count):
            self._tasks.put(None)
        self._count = 0

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _settle(future: "asyncio.Future[object]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
