"""A timer that a session can set repeatedly without leaving stale timers behind.

``BrokerApi.set_timer`` cannot be cancelled. An alarm stores its due time and sets timers in short steps, so that few are pending at any
time and none remains long after the session has closed.
"""

from typing import Final

from polydomo.limits import ALARM_STEP
from polydomo.model.session import ProtocolSession

HAIR: Final = 1e-6  # tolerance for rounding; timers never fire early


class Alarm:
    """Use it as the key of ``on_timer``; ``rings`` returns whether it is due."""

    def __init__(self, session: ProtocolSession) -> None:
        self._session = session
        self._due = 0.0  # 0: not set
        self._next = 0.0  # when the earliest pending timer is due; 0: none is pending

    def set(self, seconds: float) -> None:
        now = self._session.broker.now
        self._due = now + seconds
        self._arm(now)

    def clear(self) -> None:
        self._due = 0.0

    def rings(self) -> bool:
        """Called from the session's ``on_timer``. Returns True once for each ``set``, when it is due."""
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
