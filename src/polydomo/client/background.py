"""An event loop in a background thread, for the blocking classes."""

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from polydomo.errors import NotConnected

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop if it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Background:
    """Runs coroutines for other threads. The thread ends with ``stop``, or when ``owner`` is garbage collected."""

    def __init__(self, owner: object, name: str) -> None:
        self.loop = new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=_run, args=(self.loop,), name=name, daemon=True)
        self._thread.start()
        self._last: asyncio.Task[object] | None = None
        self._finalizer = weakref.finalize(owner, _stop, self.loop, self._thread)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        if not self._finalizer.alive:
            coroutine.close()
            raise NotConnected(f"{self._thread.name} was closed")
        if self.forked:  # a forked process does not have the thread, so the call would wait forever
            coroutine.close()
            raise RuntimeError(
                f"{self._thread.name} was created before this process was forked; create a new one in this process"
            )
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from the event loop's own thread would deadlock")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine in the background thread and waits for it. An interrupt cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Runs the cleanup of a garbage-collected object. The garbage collector may call this in any thread, even the loop's own."""
        if not self._finalizer.alive or self.forked:
            coroutine.close()
        elif threading.current_thread() is self._thread:
            # Keep a reference, or the task may be collected before it ends.
            self._last = self.loop.create_task(coroutine)
        else:
            self.run(coroutine)

    def stop(self) -> None:
        self._finalizer()

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that has the thread."""
        return os.getpid() != self._process


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
