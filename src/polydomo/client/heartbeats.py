"""DBP heartbeats of a service over UDP: sends them to the broker's port, and listens for its broadcasts."""

import asyncio
import socket
import time
from typing import cast

from polydomo.client.discovery import open_beacon_socket
from polydomo.protocols.dbp.udp import ServiceBeats
from polydomo.wire.address import Address


class UdpBeats(asyncio.DatagramProtocol):
    """Created by ``open_beats``. Broadcasts from machines other than the broker's are ignored."""

    transport: asyncio.DatagramTransport

    def __init__(self, beats: ServiceBeats, broker: tuple[str, int]) -> None:
        self.beats = beats
        self.broker = broker
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if addr[0] == self.broker[0]:
            self.beats.receive(time.monotonic(), data)

    def beat(self) -> bool:
        """Sends a heartbeat. Returns False if no broadcast arrived recently; then the heartbeat must be sent over the connection."""
        datagram = self.beats.beat(time.monotonic(), time.time())
        if datagram is not None:
            self.transport.sendto(datagram, self.broker)
            self.sent += 1
        return datagram is not None

    def close(self) -> None:
        self.transport.abort()


async def open_beats(name: str, interval: float, broker: tuple[str, int], at: Address) -> UdpBeats:
    """``broker`` is its IPv4 address and port; ``at`` is the address to listen on for its broadcasts. Raises OSError."""
    beats = ServiceBeats(name, interval, broker[1], time.monotonic())
    sock = open_beacon_socket(at)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: UdpBeats(beats, broker), sock=sock
        )
    except BaseException:
        sock.close()
        raise
    return protocol
