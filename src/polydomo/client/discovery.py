"""Finding brokers by their beacons.

A beacon is a broadcast that any program can send. A client with the broker's public key connects only to a broker with the matching
secret key; a client without one trusts its network.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from polydomo.client.suspension import running_timeout, wait_running
from polydomo.errors import NotConnected
from polydomo.limits import BEACON_PORT
from polydomo.protocols.dbp.udp import read_beacon
from polydomo.wire.address import DISCOVER, TCP, Address

ANYWHERE = Address(DISCOVER, "*", BEACON_PORT)


@dataclass
class FoundBroker:
    """A broker, and how many of its beacons arrived."""

    address: Address
    count: int = 0


class BeaconReceiver(asyncio.DatagramProtocol):
    """Collects beacons; all other datagrams on the port are ignored."""

    def __init__(self) -> None:
        self.brokers: dict[Address, FoundBroker] = {}
        self.new: asyncio.Queue[Address] = asyncio.Queue()  # each address once, in the order of the first beacons

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        port = read_beacon(data)
        if port:
            address = Address(TCP, addr[0], port)
            if address not in self.brokers:
                self.brokers[address] = FoundBroker(address)
                self.new.put_nowait(address)
            self.brokers[address].count += 1


def no_beacon(at: Address, timeout: float) -> NotConnected:
    return NotConnected(f"{at}: no beacon arrived within {timeout:g} s")


async def find(at: Address, timeout: float) -> Address:
    """The broker whose beacon arrives first. Raises NotConnected if none arrives in time.

    ``at`` is the address to listen at; on Linux it may be the broadcast address itself, such as 127.255.255.255.
    """
    async with listening(at) as beacons:
        try:
            async with running_timeout(timeout):
                return await beacons.new.get()
        except TimeoutError:
            raise no_beacon(at, timeout) from None


async def listen(seconds: float, at: Address = ANYWHERE) -> list[FoundBroker]:
    """All brokers whose beacons arrive within that time."""
    async with listening(at) as beacons:
        await wait_running([asyncio.get_running_loop().create_future()], seconds)
        return list(beacons.brokers.values())


@asynccontextmanager
async def listening(at: Address) -> AsyncIterator[BeaconReceiver]:
    """Receives beacons. Raises NotConnected if the address cannot be bound."""
    loop = asyncio.get_running_loop()
    try:
        sock = open_beacon_socket(at)
    except OSError as error:
        raise NotConnected(f"{at}: cannot listen for beacons: {error.strerror or error}") from None
    transport, beacons = await loop.create_datagram_endpoint(BeaconReceiver, sock=sock)
    try:
        yield beacons
    finally:
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
