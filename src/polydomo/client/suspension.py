"""Timeouts that do not count time in which this process was suspended.

After a suspension (SIGSTOP, a laptop that slept, a virtual machine that stood still) every timer is due at once, before the answers that
arrived meanwhile have been read. A wait for a broker must not end because of that.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from polydomo.limits import OVERSLEPT, SUSPENSION_LOOK


class SuspensionMeter:
    """Measures in a ``with`` block how long the event loop did not run. ``seconds`` is the total; it is current when a timer that is set
    later than ``SUSPENSION_LOOK`` seconds ahead is called."""

    def __init__(self, timeout: asyncio.Timeout | None = None) -> None:
        self.seconds = 0.0
        self._timeout = timeout  # it is extended by every suspension
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._schedule()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        self._due = self._loop.time() + SUSPENSION_LOOK
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = self._loop.time() - self._due
        if late > OVERSLEPT:
            self.seconds += late
            deadline = None if self._timeout is None or self._timeout.expired() else self._timeout.when()
            if self._timeout is not None and deadline is not None:
                self._timeout.reschedule(deadline + late)
        self._schedule()


@asynccontextmanager
async def running_timeout(seconds: float | None) -> AsyncIterator[None]:
    """``asyncio.timeout``, but time in which the event loop did not run is not counted."""
    async with asyncio.timeout(seconds) as timeout:
        with SuspensionMeter(timeout):
            yield


async def wait_running(futures: "Sequence[asyncio.Future[Any]]", seconds: float | None, first: bool = False) -> None:
    """Waits until all futures, or with ``first`` one of them, are done, but at most ``seconds``. It does not cancel them."""
    try:
        async with running_timeout(seconds):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)
    except TimeoutError:
        pass
