"""Deadlines of connections: for a handshake, and for the last bytes of a connection that is closing.

Time in which this process was suspended does not count: what peers sent meanwhile is still unread (``postpone``). A closing connection is
aborted when its peer has stopped reading, or after ``closing_time`` seconds.
"""

import logging

from polydomo.limits import CLOSE_MOST, CLOSE_PROGRESS, CLOSE_TIME
from polydomo.server import logs
from polydomo.server.connections.base import BaseConnection
from polydomo.server.logs import say

LOG = logs.get("server")


class ClosingConnection:
    """The deadline of one closing connection."""

    def __init__(self, now: float, most: float, unsent: int) -> None:
        self.deadline = now + CLOSE_TIME
        self.last_deadline = now + most
        self.unsent = unsent  # bytes that it had still to read when the deadline was set

    def extend(self, now: float, unsent: int) -> bool:
        """Called when the deadline has passed. Sets the next one if the peer still reads; returns False if it does not."""
        if not unsent or self.unsent - unsent < CLOSE_PROGRESS or now >= self.last_deadline:
            return False
        self.unsent = unsent
        self.deadline = min(now + CLOSE_TIME, self.last_deadline)
        return True

    def postpone(self, seconds: float) -> None:
        self.deadline += seconds
        self.last_deadline += seconds


class OverdueConnections:
    """Closes connections at their deadlines. The server calls ``sweep`` every ``SWEEP_INTERVAL`` seconds."""

    def __init__(self, handshake_time: float) -> None:
        self._handshake_time = handshake_time
        self.closing_time = (
            CLOSE_MOST  # the longest time for a closing connection; at shutdown, the rest of the grace time
        )
        self._handshakes: dict[BaseConnection, float] = {}  # with the deadline, oldest first
        self._closing: dict[BaseConnection, ClosingConnection] = {}

    def began_handshake(self, connection: BaseConnection, now: float) -> None:
        self._handshakes[connection] = now + self._handshake_time

    def completed_handshake(self, connection: BaseConnection) -> None:
        self._handshakes.pop(connection, None)

    def is_closing(self, connection: BaseConnection) -> bool:
        return connection in self._closing

    def began_closing(self, connection: BaseConnection, now: float) -> None:
        self._closing[connection] = ClosingConnection(
            now, self.closing_time, connection.transport.get_write_buffer_size()
        )

    def forget(self, connection: BaseConnection) -> None:
        self._handshakes.pop(connection, None)
        self._closing.pop(connection, None)

    def sweep(self, now: float) -> None:
        for connection in self._overdue_handshakes(now):
            say(LOG, logging.WARNING, "handshake timed out", peer=connection.peer)
            connection.transport.abort()
        for connection in [each for each, closing in self._closing.items() if closing.deadline <= now]:
            if not self._closing[connection].extend(now, connection.transport.get_write_buffer_size()):
                del self._closing[connection]
                connection.transport.abort()

    def postpone(self, seconds: float) -> None:
        """The process was suspended for this time."""
        for connection in self._handshakes:
            self._handshakes[connection] += seconds
        for closing in self._closing.values():
            closing.postpone(seconds)

    def _overdue_handshakes(self, now: float) -> list[BaseConnection]:
        found: list[BaseConnection] = []
        for connection, deadline in self._handshakes.items():
            if deadline > now:
                break
            found.append(connection)
        for connection in found:
            del self._handshakes[connection]
        return found
