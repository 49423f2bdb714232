"""The broker on its sockets: listeners, one flush per turn of the loop, one timer, and leaving in order."""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import select
import socket
import stat
import time
from pathlib import Path

from polydomo import limits
from polydomo.broker.core import Broker, Entropy
from polydomo.broker.policy import Policy
from polydomo.broker.record import Recorder
from polydomo.errors import SettingError
from polydomo.server import logs
from polydomo.server.connection import Connection
from polydomo.server.logbook import Logbook
from polydomo.server.logs import say
from polydomo.server.settings import Settings
from polydomo.wire.address import IPC, Address
from polydomo.wire.link import Hub
from polydomo.wire.zmtp import Bounds

LOG = logs.get("server")


class SystemEntropy(Entropy):
    def take(self, size: int) -> bytes:
        return secrets.token_bytes(size)


class BrokerServer:
    """One broker on any number of listeners, in the running event loop.

    >>> async def serve() -> None:
    ...     server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]))
    ...     await server.start()
    ...     print(server.urls)
    ...     await server.stop()
    """

    def __init__(self, settings: Settings, recorder: Recorder | None = None) -> None:
        self.settings = settings
        bounds = settings.limits
        self.hub = Hub()
        self.bounds = Bounds(bounds.max_frame, bounds.max_frames, bounds.max_message, bounds.max_handshake)
        self.choke = limits.CHOKE_UNSENT
        self.max_unsent = bounds.max_unsent
        self.broker = Broker(
            time.monotonic(),
            SystemEntropy(),
            policy_of(settings),
            settings.tuning(),
            recorder if recorder is not None else Logbook(),
            wall=time.time() - time.monotonic(),
        )
        self.connections: dict[Connection, None] = {}
        self.shaking: dict[Connection, float] = {}  # handshakes under way, oldest first, and when each is over
        self.closing: dict[Connection, None] = {}
        self.urls: list[str] = []
        self.ipc_peers = 0
        self.awake = False  # this turn's flush is scheduled
        self._servers: list[asyncio.Server] = []
        self._paths: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._idle = asyncio.Event()
        self._epoll: select.epoll | None = None
        self._watched: dict[int, Connection] = {}
        self._full = False

    # --- starting and leaving -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens every listener, or none: raises SettingError with one clear line."""
        self.loop = asyncio.get_running_loop()
        try:
            for listener in self.settings.listeners():
                await self._listen(listener.address)
        except BaseException:
            await self._close_listeners()
            raise
        self.broker.address = self.urls[0]
        self._sweep()

    async def _listen(self, address: Address) -> None:
        try:
            if address.kind == IPC:
                _clear_socket(address.path)
                server = await self.loop.create_unix_server(lambda: Connection(self, True), address.path)
                os.chmod(address.path, 0o600)
                self._paths.append(address.path)
                self.urls.append(str(address))
            else:
                host = None if address.host == "*" else address.host
                server = await self.loop.create_server(
                    lambda: Connection(self, False), host, address.port, backlog=1024, reuse_address=True
                )
                port = server.sockets[0].getsockname()[1]
                self.urls.append(str(Address(address.kind, address.host, port)))
        except OSError as error:
            raise SettingError(f"cannot listen on {address}: {_reason(error)}") from None
        self._servers.append(server)
        say(LOG, logging.INFO, "listening", address=self.urls[-1])

    async def stop(self, grace: float = 0.0) -> None:
        """Stops accepting, lets requests in flight finish within ``grace`` seconds, says DISCONNECT to workers, and closes everything."""
        await self._close_listeners()
        self.wake()
        self.broker.drain()
        end = time.monotonic() + grace
        while self.broker.open_requests and time.monotonic() < end:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), end - time.monotonic())
        if self.broker.open_requests:
            say(LOG, logging.WARNING, "grace time is over", open_requests=self.broker.open_requests)
        self.wake()
        self.broker.shutdown()
        self.flush()
        for connection in list(self.connections):
            connection.transport.close()
        end = time.monotonic() + limits.CLOSE_TIME
        while self.connections and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        if self._epoll is not None:
            self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    async def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._paths.clear()

    # --- one turn of the loop -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """The first event of a turn: reads the clock, and sees to it that the turn ends with a flush."""
        if not self.awake:
            self.awake = True
            self.hub.now = self.broker.now = time.monotonic()
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """The end of a turn: stalled peers go on where they may, everything gathered is written, the timer is set."""
        self.awake = False
        hub = self.hub
        self.broker.turn()
        while hub.resumed:
            hub.resumed.pop().receive(b"")
        while hub.dirty:
            dirty = hub.dirty
            hub.dirty = []
            for link in dirty:
                connection = link.owner
                if link.closed or not isinstance(connection, Connection):
                    link.dirty = False
                else:
                    connection.flush()
        if not self.broker.open_requests:
            self._idle.set()
        when = self.broker.next_deadline()
        if when is not None and (self._timer is None or when < self._timer_at):
            self._set_timer(when)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_later(max(0.0, when - time.monotonic()), self._due)

    def _due(self) -> None:
        self._timer = None
        self.wake()
        self.broker.advance()

    def _sweep(self) -> None:
        """Once a second: handshakes that take too long, and the end of log floods."""
        now = time.monotonic()
        for connection, end in list(self.shaking.items()):
            if end > now:
                break
            del self.shaking[connection]
            say(LOG, logging.WARNING, "handshake took too long", peer=connection.peer)
            connection.transport.abort()
        logs.sweep()
        self.loop.call_later(1.0, self._sweep)

    # --- connections --------------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        if len(self.connections) >= self.settings.limits.max_connections:
            say(LOG, logging.WARNING, "connection refused", peer=connection.peer, why="limits.max_connections reached")
            return False
        self.connections[connection] = None
        self.shaking[connection] = time.monotonic() + self.settings.limits.handshake_time
        return True

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.shaking.pop(connection, None)
        self.closing.pop(connection, None)
        self.unwatch(connection)

    def watch(self, connection: Connection) -> None:
        """The connection is not read: the kernel tells through an epoll of our own when the peer closes it."""
        sock = connection.transport.get_extra_info("socket")
        if sock is None or not hasattr(select, "epoll"):
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            self.loop.add_reader(self._epoll.fileno(), self._hung_up)
        self._epoll.register(sock.fileno(), select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
        self._watched[sock.fileno()] = connection

    def unwatch(self, connection: Connection) -> None:
        for number, other in list(self._watched.items()):
            if other is connection:
                del self._watched[number]
                if self._epoll is not None:
                    with contextlib.suppress(OSError):
                        self._epoll.unregister(number)

    def _hung_up(self) -> None:
        assert self._epoll is not None
        for number, _ in self._epoll.poll(0):
            connection = self._watched.get(number)
            if connection is not None:
                connection.transport.abort()
                self.unwatch(connection)


def policy_of(settings: Settings) -> Policy:
    bounds = settings.limits
    return Policy(
        attempts=settings.attempts,
        queue_expiry=settings.queue_expiry,
        busy_timeout=settings.busy_timeout,
        requeue_after_partial=settings.requeue_after_partial,
        max_outstanding=bounds.max_outstanding,
        max_queue=bounds.max_queue,
        max_held_bytes=bounds.max_held_bytes,
        max_services=bounds.max_services,
        max_message=bounds.max_message,
    )


def prepare_data(directory: str) -> Path:
    """Makes the data directory; raises SettingError if it cannot be written to."""
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise SettingError(f"data: cannot write to {directory}: {_reason(error)}") from None
    return path


def _clear_socket(path: str) -> None:
    """Removes the socket file of a broker that was killed; refuses if somebody still answers there."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise OSError(errno.EEXIST, "a file that is not a socket is in the way")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "address already in use")


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is already in use; stop the other program or choose another with --listen"
    if error.errno == errno.EACCES:
        return "permission denied"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)
