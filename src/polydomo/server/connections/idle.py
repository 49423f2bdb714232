"""Eviction of idle connections: at the connection limit, a new connection replaces an idle one.

Connections that sent nothing after their handshake are evicted first, then clients that have been silent for long and have no open
request; within each group, the source with the most connections first. Workers, subscribers, publishers and bridges are never evicted.
"""

from polydomo.limits import IDLE_SILENT, IDLE_TIME
from polydomo.model.records import Session
from polydomo.protocols.detect import Detector
from polydomo.server.connections.base import BaseConnection

WAITING = ("sub", "pub", "bridge")  # protocols whose peers may stay silent indefinitely


class IdleConnections:
    def __init__(self) -> None:
        self._marks: dict[BaseConnection, tuple[int, float]] = {}  # activity counter, and when it last changed
        self._victims: list[BaseConnection] = []  # the next to evict is last

    def sweep(self, connections: dict[BaseConnection, None], now: float) -> None:
        """Called once a second while the number of connections is near the limit."""
        marks: dict[BaseConnection, tuple[int, float]] = {}
        for connection in connections:
            mark = connection.link.work_left if connection.link is not None else 0
            old = self._marks.get(connection)
            marks[connection] = old if old is not None and old[0] == mark else (mark, now)
        self._marks = marks

    def forget(self, connection: BaseConnection) -> None:
        self._marks.pop(connection, None)

    def victim(self, connections: dict[BaseConnection, None], now: float) -> BaseConnection | None:
        """A connection to close to make room; None if all are in use."""
        if not self._victims:
            self._victims = self._find(connections, now)
        while self._victims:
            found = self._victims.pop()
            if found in connections and self._is_idle(found, now):
                return found
        return None

    def _find(self, connections: dict[BaseConnection, None], now: float) -> list[BaseConnection]:
        counts: dict[str, int] = {}
        for connection in connections:
            counts[connection.source] = counts.get(connection.source, 0) + 1
        idle = [connection for connection in connections if self._is_idle(connection, now)]
        idle.sort(key=lambda connection: (_is_silent(connection), counts[connection.source], now - connection.since))
        return idle

    def _is_idle(self, connection: BaseConnection, now: float) -> bool:
        if connection.transport.is_closing() or connection.link is None or not connection.link.open:
            return False  # the handshake has a timeout
        if _is_silent(connection):
            return now >= connection.since + IDLE_SILENT
        session = connection.link.handler
        mark = self._marks.get(connection)
        return (
            isinstance(session, Session)
            and mark is not None
            and mark[0] == connection.link.work_left
            and now >= mark[1] + IDLE_TIME
            and not session.requests
            and not session.worker_count
            and session.protocol not in WAITING
        )


def _is_silent(connection: BaseConnection) -> bool:
    """Whether it has sent nothing since its handshake."""
    return connection.link is not None and isinstance(connection.link.handler, Detector)
