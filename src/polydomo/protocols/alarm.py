"""A timer that a session sets again and again, without leaving one behind each time.

``BrokerApi.set_timer`` cannot be undone. An alarm keeps its due time itself and sets timers in short steps, so that few are pending at any
time and none long after the session has gone.
"""

from typing import Final

from polydomo.limits import ALARM_STEP
from polydomo.protocols.session import Session

HAIR: Final = 1e-6  # timers are never early, but floating-point arithmetic is


class Alarm:
    """Give it as the key to ``on_timer``: ``rings`` says whether it is due."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._due = 0.0  # 0: not set
        self._next = 0.0  # when the earliest pending timer comes; 0: none is pending

    def set(self, seconds: float) -> None:
        now = self._session.broker.now
        self._due = now + seconds
        self._arm(now)

    def clear(self) -> None:
        self._due = 0.0

    def rings(self) -> bool:
        """To be called from the session's ``on_timer``: True once for each ``set``, when its time is over."""
        now = self._session.broker.now
        if self._next and now + HAIR >= self._next:
            self._next = 0.0
        if not self._due:
            return False
        if now + HAIR >= self._due:
            self._due = 0.0
            return True
        self._arm(now)
        return False

    def _arm(self, now: float) -> None:
        when = min(self._due, now + ALARM_STEP)
        if not self._next or when + HAIR < self._next:
            self._next = when
            self._session.broker.set_timer(when - now, self._session, self)
