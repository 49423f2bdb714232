"""Publications that wait for a subscriber which reads slowly, or which is still being sent last values."""

from collections import deque
from collections.abc import Callable

from polydomo.model.session import ProtocolSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.link import PAUSE_NOT_READING


class Backlog:
    """The queue of one subscriber. Its session sends directly while nothing waits."""

    def __init__(self, session: ProtocolSession, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._send = send
        self._missed = 0  # messages that the subscriber missed since it became slow
        self.messages: deque[bytes] = deque()
        self.size = 0  # bytes

    def add(self, message: bytes, skip_slow: bool) -> None:
        """Queues a message. Beyond the limit, the subscriber misses it (``skip_slow``) or is disconnected."""
        session = self._session
        if self.size + len(message) <= session.broker.tuning.max_backlog:
            self.messages.append(message)
            self.size += len(message)
        elif skip_slow:
            self._missed += 1
            if self._missed == 1:
                what = f"{self.size} bytes are queued for it; it misses messages"
                session.broker.report_slow_subscriber(session, what)
        elif not session.link.state:
            session.link.close(CloseCause.NOT_READING, f"{self.size} bytes are queued for it", abort=True)

    def release(self) -> int:
        """Sends the queue if the subscriber reads and has all last values. Returns the number of messages that it missed before that."""
        session = self._session
        if session.catching_up or session.link.pauses & PAUSE_NOT_READING:
            return 0
        while self.messages:
            self._send(self.messages.popleft())
        self.size = 0
        missed, self._missed = self._missed, 0
        if missed:
            session.broker.report_slow_subscriber(session, f"it reads again, after missing {missed} messages")
        return missed
