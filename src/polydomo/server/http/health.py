"""Lets a health checker see that the broker is shutting down before its listeners close."""

import asyncio
import contextlib
import time

from polydomo import limits


class Health:
    """Records when a health checker asked last and how often it asks. At shutdown, the broker waits for the next check, if one is due."""

    def __init__(self) -> None:
        self.leaving = False
        self._asked_at = 0.0
        self._interval = 0.0  # seconds between the last two checks; 0 if there were fewer than two
        self._seen = asyncio.Event()  # a check was answered during shutdown

    def asked(self) -> None:
        """Called when a health check is answered."""
        now = time.monotonic()
        self._interval = now - self._asked_at if self._asked_at else 0.0
        self._asked_at = now
        if self.leaving:
            self._seen.set()

    async def seen(self, seconds: float) -> None:
        """Waits until a checker has seen the shutdown: at most ``seconds``, and at most two check intervals after the last check."""
        due = self._asked_at + 2 * self._interval - time.monotonic() if self._interval else 0.0
        wait = min(seconds, due, limits.HEALTH_WAIT)
        if wait > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._seen.wait(), wait)
