"""Finding brokers by their beacons.

A beacon is a broadcast that any program can send. A client with the broker's public key connects only to a broker with the matching
secret key; a client without one trusts its network.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from dataclasses import dataclass

from polydomo.errors import NotConnected
from polydomo.limits import BEACON_PORT
from polydomo.protocols.dbp_udp import read_beacon
from polydomo.wire.address import DISCOVER, TCP, Address

ANYWHERE = Address(DISCOVER, "*", BEACON_PORT)


@dataclass
class FoundBroker:
    """A broker, and how many of its beacons arrived."""

    address: Address
    count: int = 0


class BeaconReceiver(asyncio.DatagramProtocol):
    """Collects beacons; all other datagrams on the port are ignored."""

    def __init__(self, without: "Container[Address]" = ()) -> None:
        self.without = without
        self.brokers: dict[Address, FoundBroker] = {}
        self.first: asyncio.Future[Address] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        port = read_beacon(data)
        if port:
            address = Address(TCP, addr[0], port)
            self.brokers.setdefault(address, FoundBroker(address)).count += 1
            if not self.first.done() and address not in self.without:
                self.first.set_result(address)


async def find(at: Address = ANYWHERE, timeout: float = 5.0, without: "Container[Address]" = ()) -> Address:
    """The broker whose beacon arrives first, except those in ``without``. Raises NotConnected if none arrives in time.

    ``at`` is the address to listen at; on Linux it may be the broadcast address itself, such as 127.255.255.255.
    """
    async with _listening(at, without) as ear:
        try:
            async with asyncio.timeout(timeout):
                return await ear.first
        except TimeoutError:
            raise NotConnected(f"{at}: no beacon arrived within {timeout:g} s") from None


async def listen(seconds: float, at: Address = ANYWHERE) -> list[FoundBroker]:
    """All brokers whose beacons arrive within that time."""
    async with _listening(at) as ear:
        await asyncio.sleep(seconds)
        return list(ear.brokers.values())


@asynccontextmanager
async def _listening(at: Address, without: "Container[Address]" = ()) -> AsyncIterator[BeaconReceiver]:
    loop = asyncio.get_running_loop()
    try:
        sock = open_beacon_socket(at)
    except OSError as error:
        raise NotConnected(f"{at}: cannot listen for beacons: {error.strerror or error}") from None
    transport, ear = await loop.create_datagram_endpoint(lambda: BeaconReceiver(without), sock=sock)
    try:
        yield ear
    finally:
        ear.first.cancel()
        transport.abort()


def open_beacon_socket(at: Address) -> socket.socket:
    """Binds with address reuse, so that several programs can listen on the port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for option in ("SO_REUSEADDR", "SO_REUSEPORT"):
            if hasattr(socket, option):
                sock.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
        sock.bind(("" if at.host == "*" else at.host, at.port))
    except BaseException:
        sock.close()
        raise
    return sock
