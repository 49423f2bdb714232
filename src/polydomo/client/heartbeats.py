"""A service's heartbeats by UDP, as DBP has them: beats go to the broker's port, and its broadcasts are listened for."""

import asyncio
import socket
import time
from typing import cast

from polydomo.client.discovery import open_beacon_socket
from polydomo.protocols.dbp_udp import ServiceBeats
from polydomo.wire.address import Address


class UdpBeats(asyncio.DatagramProtocol):
    """Made by ``open_beats``. Broadcasts that come from another machine than the broker's are ignored."""

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
        """Beats. False if the broker was not heard lately: then the beat has to go over the connection."""
        datagram = self.beats.beat(time.monotonic(), time.time())
        if datagram is not None:
            self.transport.sendto(datagram, self.broker)
            self.sent += 1
        return datagram is not None

    def close(self) -> None:
        self.transport.abort()


async def open_beats(name: str, interval: float, broker: tuple[str, int], at: Address) -> UdpBeats:
    """``broker`` is its IPv4 address and router port, ``at`` where its broadcasts are heard. Raises OSError."""
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
