"""Watches connections that are not being read for disconnects, with a separate epoll: the event loop reports them only while it reads."""

import asyncio
import contextlib
import select

from polydomo.server.connections.base import BaseConnection


class DisconnectWatch:
    """Opens its epoll at startup, because no file descriptor may be left later, when a connection must be watched. Raises OSError."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[int, BaseConnection] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, connection: BaseConnection) -> None:
        """The connection is not being read. It is closed as soon as its peer closes it."""
        sock = connection.transport.get_extra_info("socket")
        if sock is None or self._epoll is None or connection.watched >= 0:
            return
        connection.watched = sock.fileno()
        self._epoll.register(connection.watched, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
        self._watched[connection.watched] = connection

    def unwatch(self, connection: BaseConnection) -> None:
        number = connection.watched
        connection.watched = -1
        if self._watched.pop(number, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(number)

    def _on_events(self) -> None:
        assert self._epoll is not None
        for number, _ in self._epoll.poll(0):
            connection = self._watched.get(number)
            if connection is not None:
                connection.transport.abort()
                self.unwatch(connection)

    def close(self) -> None:
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
