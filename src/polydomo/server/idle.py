"""Idle connections give way: when there are as many connections as there may be, a new one takes the place of one that does nothing.

Connections that sent nothing after their handshake go first, then clients that have been silent for long and have no open request; those
of the source with most connections before others. Workers, subscribers, publishers and bridges are never idle in this sense.
"""

from typing import TYPE_CHECKING

from polydomo.limits import IDLE_SILENT, IDLE_TIME
from polydomo.protocols.detect import Detector
from polydomo.protocols.session import Session

if TYPE_CHECKING:
    from polydomo.server.connection import Connection

WAITING = ("sub", "pub", "bridge")  # protocols whose peers may be silent for good


class IdleConnections:
    def __init__(self) -> None:
        self._marks: dict[
            Connection, tuple[int, float]
        ] = {}  # how much was done for it by when it was last seen to do something
        self._victims: list[Connection] = []  # the first to go is last

    def sweep(self, connections: "dict[Connection, None]", now: float) -> None:
        """Called once a second while there are nearly as many connections as there may be."""
        marks: dict[Connection, tuple[int, float]] = {}
        for connection in connections:
            mark = connection.link.work_left if connection.link is not None else 0
            old = self._marks.get(connection)
            marks[connection] = old if old is not None and old[0] == mark else (mark, now)
        self._marks = marks

    def forget(self, connection: "Connection") -> None:
        self._marks.pop(connection, None)

    def victim(self, connections: "dict[Connection, None]", now: float) -> "Connection | None":
        """A connection that may be closed to make room; None if all are in use."""
        if not self._victims:
            self._victims = self._find(connections, now)
        while self._victims:
            found = self._victims.pop()
            if found in connections and self._is_idle(found, now):
                return found
        return None

    def _find(self, connections: "dict[Connection, None]", now: float) -> "list[Connection]":
        counts: dict[str, int] = {}
        for connection in connections:
            counts[connection.source] = counts.get(connection.source, 0) + 1
        idle = [connection for connection in connections if self._is_idle(connection, now)]
        idle.sort(key=lambda connection: (_is_silent(connection), counts[connection.source], now - connection.since))
        return idle

    def _is_idle(self, connection: "Connection", now: float) -> bool:
        if connection.transport.is_closing() or connection.link is None or not connection.link.open:
            return False  # its handshake has a time limit of its own
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


def _is_silent(connection: "Connection") -> bool:
    """It has said nothing since its handshake."""
    return connection.link is not None and isinstance(connection.link.handler, Detector)
