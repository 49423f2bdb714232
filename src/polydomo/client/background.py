"""An event loop in a thread of its own, for the blocking faces."""

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
    """uvloop's where it is installed, asyncio's own otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Background:
    """Runs coroutines for threads that cannot. The thread ends with ``stop``, or when ``owner`` is no longer used."""

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
        if self.forked:  # a fork takes no threads along: nobody would ever run it, nor end it at its timeout
            coroutine.close()
            raise RuntimeError(f"{self._thread.name} was made before this process was forked; make one here")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from the event loop's own thread would wait for itself")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it there and waits here; an interrupt here cancels it there."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Runs what an abandoned object still has to do. The garbage collector may call from any thread, even the loop's own."""
        if not self._finalizer.alive or self.forked:
            coroutine.close()
        elif threading.current_thread() is self._thread:
            self._last = self.loop.create_task(coroutine)  # a task nobody holds may vanish before it ends
        else:
            self.run(coroutine)

    def stop(self) -> None:
        self._finalizer()

    @property
    def forked(self) -> bool:
        """This process is a copy of the one that has the thread."""
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
