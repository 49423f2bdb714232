"""Timeouts that do not count time in which this process was suspended.

After a suspension (SIGSTOP, a laptop that slept, a virtual machine that stood still) every timer is due at once, before the answers that
arrived meanwhile have been read. A wait for a broker must not end because of that.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from polydomo.limits import OVERSLEPT, SUSPENSION_LOOK


class LoopClock:
    """Notices when an event loop did not run. One timer serves all meters of the loop; it runs while there are any."""

    def __init__(self) -> None:
        self.meters: set[SuspensionMeter] = set()

    def add(self, meter: "SuspensionMeter") -> None:
        self.meters.add(meter)
        if len(self.meters) == 1:
            self._schedule()

    def remove(self, meter: "SuspensionMeter") -> None:
        self.meters.discard(meter)
        if not self.meters:
            self._timer.cancel()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + SUSPENSION_LOOK
        self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = asyncio.get_running_loop().time() - self._due
        if late > OVERSLEPT:
            for meter in self.meters:
                meter.suspended(late)
        self._schedule()


_clocks: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopClock]" = WeakKeyDictionary()


class SuspensionMeter:
    """Measures in a ``with`` block how long the event loop did not run: ``seconds`` is the total."""

    def __init__(self, timeout: asyncio.Timeout | None = None) -> None:
        self.seconds = 0.0
        self._timeout = timeout  # it is extended by every suspension
        self._clock = _clocks.setdefault(asyncio.get_running_loop(), LoopClock())

    def __enter__(self) -> Self:
        self._clock.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clock.remove(self)

    def suspended(self, seconds: float) -> None:
        self.seconds += seconds
        if self._timeout is not None and not self._timeout.expired():
            deadline = self._timeout.when()
            if deadline is not None:
                self._timeout.reschedule(deadline + seconds)


@asynccontextmanager
async def running_timeout(seconds: float) -> AsyncIterator[None]:
    """``asyncio.timeout``, but time in which the event loop did not run is not counted."""
    async with asyncio.timeout(seconds) as timeout:
        with SuspensionMeter(timeout):
            yield


async def wait_running(futures: "Sequence[asyncio.Future[Any]]", seconds: float, first: bool = False) -> None:
    """Waits until all futures, or with ``first`` one of them, are done, but at most ``seconds``. It does not cancel them."""
    try:
        async with running_timeout(seconds):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)
    except TimeoutError:
        pass
