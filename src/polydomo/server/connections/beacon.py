"""The beacon: broadcasts the broker's address over UDP.

"As for providing the location of the CCS itself, a beacon will be attached so anyone who knows what to listen for can find it." Off
by default. A broker that listens only on loopback sends the beacon only to loopback.
"""

import asyncio
import logging
import socket

from polydomo.protocols.dbp.udp import beacon
from polydomo.server import logs
from polydomo.server.logs import say

LOG = logs.get("beacon")

Place = tuple[str, int]


def place(setting: str, usual: str) -> Place | None:
    """The address of a ``Broadcast`` setting; None if it is off."""
    if setting == "off":
        return None
    host, _, port = (usual if setting == "on" else setting).rpartition(":")
    return host, int(port)


def broadcaster(host: str) -> socket.socket:
    """A UDP socket that may broadcast. It sends from ``host`` if that is a single IPv4 address."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if host and ":" not in host:
            sock.bind((host, 0))
    except BaseException:
        sock.close()
        raise
    return sock


class Beacon:
    """Sends ``SHALOM <port>`` now and then every ``interval`` seconds."""

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, to: Place, host: str, port: int, interval: float) -> None:
        self.to = to
        self.sent = 0
        self._datagram = beacon(port)
        self._interval = interval
        self._socket = broadcaster(host)

    def start(self) -> None:
        say(
            LOG,
            logging.INFO,
            "beacon",
            to=f"{self.to[0]}:{self.to[1]}",
            says=self._datagram.decode(),
            interval=self._interval,
        )
        self._send()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()

    def _send(self) -> None:
        try:
            self._socket.sendto(self._datagram, self.to)
            self.sent += 1
        except OSError as error:  # the network may be up again for the next beacon
            say(
                LOG,
                logging.WARNING,
                "beacon not sent",
                to=f"{self.to[0]}:{self.to[1]}",
                why=error.strerror or str(error),
            )
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._send)
