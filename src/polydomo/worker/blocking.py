"""The blocking worker: the asyncio one, on an event loop of its own."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from polydomo.client.background import Background, new_event_loop
from polydomo.client.security import Security
from polydomo.limits import GRACE
from polydomo.protocols import registry
from polydomo.worker.aio import AsyncWorker, F

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Offers services at a broker. Arguments, and what a function gets and gives, are those of ``AsyncWorker``.

    ```python
    from polydomo import Worker

    worker = Worker("tcp://127.0.0.1:5246")

    @worker.service("echo")
    def echo(call):
        return call.body

    worker.run()
    ```

    ``run`` serves until SIGTERM or SIGINT, which lets the calls that run finish within ``grace`` seconds, says goodbye to the broker, and
    returns; a second signal returns at once. In a program that has other things to do, ``with worker:`` (or ``start`` and
    ``stop``) serves from a thread instead.
    """

    def __init__(
        self,
        to: str | None = None,
        protocol: str = registry.DEFAULT,
        *,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
        concurrency: int = 1,
        prefetch: int = 0,
        connections: int = 1,
        grace: float = GRACE,
        beat: float | None = None,
        name: str = "",
        **options: object,
    ) -> None:
        self._worker = AsyncWorker(
            to,
            protocol,
            key=key,
            server_key=server_key,
            context=context,
            security=security,
            concurrency=concurrency,
            prefetch=prefetch,
            connections=connections,
            grace=grace,
            beat=beat,
            name=name,
            **options,
        )
        self._background: Background | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while ``run`` runs

    def __repr__(self) -> str:
        return repr(self._worker).replace("AsyncWorker", type(self).__name__)

    @property
    def url(self) -> str:
        return self._worker.url

    @property
    def protocol(self) -> str:
        return self._worker.protocol

    def service(self, name: str | bytes) -> Callable[[F], F]:
        """Decorates the function that serves ``name``."""
        return self._worker.service(name)

    def add(self, name: str | bytes, function: Callable[..., Any], *, schema: "dict[str, Any] | None" = None) -> None:
        """``function`` serves ``name`` from the next ``run`` or ``start`` on. ``schema`` describes a function that is not typed."""
        self._worker.add(name, function, schema=schema)

    def run(self) -> None:
        """Serves until SIGTERM, SIGINT (in the main thread), or ``stop`` from another thread.

        What the worker logs is shown on standard error unless the program has configured logging itself: one line says what is
        offered and where.
        """
        with _logs_shown(), asyncio.Runner(loop_factory=new_event_loop) as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._until_signal())
            except asyncio.CancelledError:
                pass  # the second signal
            finally:
                self._loop = None

    async def _until_signal(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        signals = 0

        def leave() -> None:
            nonlocal signals
            signals += 1
            if signals == 1:
                self._worker.stop()
            else:
                task.cancel()

        with _handled(leave):
            await self._worker.run()

    def start(self) -> None:
        """Serves from a thread of its own; returns when it has registered, or while it goes on trying to."""
        if self._background is not None:
            raise RuntimeError("the worker has been started already")
        background = Background(self, "polydomo-worker")
        try:
            background.run(self._worker.__aenter__())
        except BaseException:
            background.stop()
            raise
        self._background = background

    def stop(self) -> None:
        """Ends ``run`` in another thread, or what ``start`` started, politely."""
        if self._background is not None:
            background, self._background = self._background, None
            try:
                background.run(self._worker.__aexit__(None, None, None))
            finally:
                background.stop()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._worker.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _logs_shown() -> Iterator[None]:
    """For a program without logging of its own: the worker's lines on standard error, as long as it runs."""
    log = logging.getLogger("polydomo.worker")
    if log.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("polydomo: %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(before or logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def _handled(leave: Callable[[], None]) -> Iterator[None]:
    """``leave`` is called on SIGTERM and SIGINT, where signals can be had at all; afterwards everything is as it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, leave)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
