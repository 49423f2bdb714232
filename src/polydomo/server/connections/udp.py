"""UDP sockets for ``broker.catalog``: heartbeats arrive on the listeners' ports, and the broker broadcasts its own from there."""

import asyncio
import logging
import socket

from polydomo.broker.catalog.udp_heartbeats import BEAT, UdpHeartbeats
from polydomo.server import logs
from polydomo.server.connections.beacon import Place
from polydomo.server.host import Host
from polydomo.server.logs import say
from polydomo.server.resources import remedy

LOG = logs.get("udp")


class Heartbeats:
    """All UDP sockets of a broker, one for each address that it listens on."""

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, server: Host, to: Place | None) -> None:
        self.server = server
        self.to = to  # destination of the broker's heartbeats; None: not sent
        self.datagrams = UdpHeartbeats(server.broker, server.broker.catalog, server.broker.changes)
        self.mouths: dict[int, asyncio.DatagramTransport] = {}  # the socket to broadcast from, by listener port
        self._transports: list[asyncio.DatagramTransport] = []

    async def listen(self, router: socket.socket) -> None:
        """ "Services send to the UDP port with the router's number". If that port is taken, UDP is disabled; heartbeats can use TCP."""
        sock = None
        try:
            sock = socket.socket(router.family, socket.SOCK_DGRAM)
            if router.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.bind(router.getsockname())
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: HeartbeatReceiver(self), sock=sock
            )
        except OSError as error:
            say(
                LOG,
                logging.WARNING,
                "no heartbeats by UDP",
                address=str(router.getsockname()[:2]),
                why=remedy(error),
            )
            if sock is not None:
                sock.close()
            return
        self._transports.append(transport)
        if router.family == socket.AF_INET:
            self.mouths.setdefault(router.getsockname()[1], transport)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for transport in self._transports:
            transport.abort()
        self._transports.clear()
        self.mouths.clear()

    def receive(self, data: bytes, host: str) -> None:
        self.server.wake()
        kind = self.datagrams.receive(data, host)
        if kind != BEAT:
            say(LOG, logging.DEBUG, "datagram", peer=f"udp://{host}", what=kind, bytes=len(data))
        elif self._timer is None:
            self._beat()

    def _beat(self) -> None:
        """Broadcasts if it is due, and reschedules itself as long as a service sends heartbeats over UDP."""
        self._timer = None
        if self.to is None or not self._transports:
            return
        self.server.wake()
        for port, datagram in self.datagrams.beats(list(self.mouths)):
            self.mouths[port].sendto(datagram, self.to)
        when = self.datagrams.due()
        if when is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, when - self.server.broker.now), self._beat)


class HeartbeatReceiver(asyncio.DatagramProtocol):
    def __init__(self, heartbeats: Heartbeats) -> None:
        self.heartbeats = heartbeats

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        host = addr[0].partition("%")[0]
        self.heartbeats.receive(data, host[7:] if host.startswith("::ffff:") and "." in host else host)

    def error_received(self, exc: Exception) -> None:
        say(LOG, logging.WARNING, "datagram not sent", why=str(exc))
