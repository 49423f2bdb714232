"""Calls at a fixed rate: a thread that wakes the event loop once per millisecond.

A client that waits for a reply before it sends the next call sends less when the broker is slow, and so it does not measure the calls that
would have waited (coordinated omission). Here calls are due at fixed times, and the latency of each counts from the time at which it was
due, whenever it was sent.

The thread sleeps more precisely than an event loop, whose timers have a resolution of a millisecond.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable

TICK = 0.001  # seconds between two bursts of calls, at 1,000 calls per second and more

Due = Callable[[float, int], None]  # the time at which calls are due, and how many


class Pacer:
    """Calls ``due`` in the event loop, ``rate`` calls per second, from ``begin`` to ``end`` (``time.perf_counter``)."""

    def __init__(self, rate: float, begin: float, end: float, due: Due) -> None:
        self._due = due
        self._step = max(TICK, 1.0 / rate)
        self._rate = rate
        self._begin = begin
        self._steps = max(1, round((end - begin) / self._step))
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._reached = 0  # steps that the thread has slept through
        self._done = 0  # ... and whose calls were made
        self._calls = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._stopped = False
        self._thread = threading.Thread(target=self._sleep, daemon=True)

    async def run(self) -> int:
        """Returns the number of calls."""
        self._loop.add_reader(self._read, self._woken)
        self._thread.start()
        try:
            await self._finished
        finally:
            self._stopped = True
            self._loop.remove_reader(self._read)
            self._thread.join()
            os.close(self._read)
            os.close(self._write)
        return self._calls

    def _sleep(self) -> None:
        for step in range(self._steps):
            wait = self._begin + step * self._step - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            if self._stopped:
                return
            self._reached = step + 1
            try:
                os.write(self._write, b".")
            except BlockingIOError:
                pass  # the loop has not read for long: it will see how many steps were reached

    def _woken(self) -> None:
        os.read(self._read, 65536)
        while self._done < self._reached:
            when = self._begin + self._done * self._step
            self._done += 1
            count = round(self._done * self._step * self._rate) - self._calls
            self._calls += count
            if count:
                self._due(when, count)
        if self._done == self._steps and not self._finished.done():
            self._finished.set_result(None)
