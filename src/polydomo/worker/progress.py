"""Progress of calls: any thread may call ``Call.progress``, as often as it likes. The first report is sent at once, further ones at most
every ``PROGRESS_INTERVAL``, and the last one always."""

import asyncio
import threading
import time
from collections.abc import Callable

from polydomo.limits import PROGRESS_INTERVAL

Report = Callable[[float, str], None]


class LoopReporter:
    """Sends the reports of one call on the event loop."""

    def __init__(self, send: Report) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._last = (0.0, "")
        self._due = False  # the last report is not sent yet
        self._next = 0.0

    def report(self, share: float, text: str) -> None:
        self._last = (share, text)
        if not self._due:
            self._due = True
            try:
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError:
                pass  # the loop is closed: the worker has ended

    def finish(self) -> None:
        """The call ends: sends the last report if that has not been done."""
        if self._due:
            self._pass_on()

    def _begin(self) -> None:
        self._loop.call_at(max(self._next, self._loop.time()), self.finish)

    def _pass_on(self) -> None:
        self._due = False  # before the report is read: another thread may write a new one
        self._next = self._loop.time() + PROGRESS_INTERVAL
        self._send(*self._last)


class ThreadReporter:
    """Sends the reports of one call in a process of the pool, which has no event loop that always runs."""

    def __init__(self, send: Report) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._last: tuple[float, str] | None = None  # not sent yet
        self._next = 0.0
        self._timer: threading.Timer | None = None
        self._over = False

    def report(self, share: float, text: str) -> None:
        with self._lock:
            if self._over:
                return
            self._last = (share, text)
            wait = self._next - time.monotonic()
            if wait <= 0:
                self._pass_on()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self._ring)
                self._timer.daemon = True
                self._timer.start()

    def finish(self) -> None:
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            self._pass_on()

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
            if not self._over:
                self._pass_on()

    def _pass_on(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            self._next = time.monotonic() + PROGRESS_INTERVAL
            self._send(*last)
