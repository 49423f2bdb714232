"""The blocking worker: the asyncio worker on its own event loop."""

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
    """Offers services at a broker. Arguments and service functions are those of ``AsyncWorker``.

    ```python
    from polydomo import Worker

    worker = Worker("tcp://127.0.0.1:5246")

    @worker.service("echo")
    def echo(call):
        return call.body

    worker.run()
    ```

    ``run`` serves until SIGTERM or SIGINT. Then it lets running calls finish within ``grace`` seconds, disconnects, and returns. A second
    signal makes it return at once. Use ``with worker:`` (or ``start`` and ``stop``) to serve from a thread instead.
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
        processes: int = 0,
        max_calls: int = 0,
        max_memory: int = 0,
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
            processes=processes,
            max_calls=max_calls,
            max_memory=max_memory,
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

    def service(
        self, name: str | bytes, *, batch: int | None = None, wait: str | float | None = None
    ) -> Callable[[F], F]:
        """Decorator for the function that serves ``name``. With ``batch``, it gets lists of calls (see ``AsyncWorker.service``)."""
        return self._worker.service(name, batch=batch, wait=wait)

    def add(
        self,
        name: str | bytes,
        function: Callable[..., Any],
        *,
        schema: "dict[str, Any] | None" = None,
        batch: int | None = None,
        wait: str | float | None = None,
    ) -> None:
        """``function`` serves ``name`` from the next ``run`` or ``start`` on. ``schema`` describes a function that is not typed."""
        self._worker.add(name, function, schema=schema, batch=batch, wait=wait)

    def run(self) -> None:
        """Serves until SIGTERM, SIGINT (in the main thread), or ``stop`` from another thread.

        If the program has not configured logging, the worker logs to standard error, for example its services and the address.
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

        with handled_signals(leave):
            await self._worker.run()

    def start(self) -> None:
        """Serves from a background thread. Returns when it has registered, or after a few seconds; it keeps trying after that."""
        if self._background is not None:
            raise RuntimeError("the worker has already been started")
        background = Background(self, "polydomo-worker")
        try:
            background.run(self._worker.__aenter__())
        except BaseException:
            background.stop()
            raise
        self._background = background

    def stop(self) -> None:
        """Stops ``run`` in another thread, or the thread of ``start``; running calls may finish."""
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
    """Logs the worker's messages to standard error while it runs, if the program has not configured logging."""
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
def handled_signals(leave: Callable[[], None]) -> Iterator[None]:
    """Calls ``leave`` on SIGTERM and SIGINT, if signals can be handled in this thread, and restores the handlers afterwards."""
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
