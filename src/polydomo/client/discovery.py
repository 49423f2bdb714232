"""Finding brokers by their beacons.

A beacon is a broadcast that any program can send. A client with the broker's public key connects only to a broker with the matching
secret key (``search``); a client without one trusts its network.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from polydomo.client.suspension import running_timeout, wait_running
from polydomo.errors import AccessDenied, NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import BEACON_PORT, DISCOVERY_PATIENCE
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


class Discardable(Protocol):
    """A connection."""

    def discard(self) -> None: ...


C = TypeVar("C", bound=Discardable)


async def search(at: Address, attempt: Callable[[Address, float], Coroutine[Any, Any, C]], timeout: float) -> C:
    """Searches for the broker that has a given key: tries all brokers whose beacons arrive, one after the other.

    ``attempt`` connects. It gets an address and the remaining seconds, and raises NotConnected or ProtocolViolation.

    Only a broker with the secret key can complete the handshake, so no answer of a program that has not proved the key ends the search: not
    an ERROR command, not a violation of the protocol, and not silence.

    One that is silent for ``DISCOVERY_PATIENCE`` gives way to the next one, if there is one, and is tried again after it. Raises
    AccessDenied if a broker has denied access, or else NotConnected, when the time is over.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    failure: PolydomoError | None = None
    trial: asyncio.Task[C] | None = None
    result: C | None = None
    async with listening(at) as beacons:
        following = loop.create_task(beacons.new.get())
        try:
            while True:
                await asyncio.wait([following], timeout=max(deadline - loop.time(), 0))
                if not following.done() or (failure is not None and loop.time() >= deadline):
                    raise _summary(at, timeout, failure)
                found = following.result()
                following = loop.create_task(beacons.new.get())
                trial = loop.create_task(attempt(found, max(deadline - loop.time(), 0.001)))
                await asyncio.wait([trial], timeout=DISCOVERY_PATIENCE)
                if not trial.done():  # the trial ends at the deadline
                    await asyncio.wait([trial, following], return_when=asyncio.FIRST_COMPLETED)
                if not trial.done():
                    trial.cancel()
                    beacons.new.put_nowait(found)
                    continue
                try:
                    result = trial.result()
                    return result
                except (NotConnected, ProtocolViolation) as error:
                    if not isinstance(failure, AccessDenied):
                        failure = error
        finally:
            following.cancel()
            if trial is not None and result is None:
                _stop(trial)


def _stop(trial: "asyncio.Task[C]") -> None:
    trial.cancel()
    if trial.done() and not trial.cancelled() and trial.exception() is None:
        trial.result().discard()  # it has connected at the moment in which the search was cancelled


def _summary(at: Address, timeout: float, failure: PolydomoError | None) -> PolydomoError:
    if failure is None:
        return no_beacon(at, timeout)
    text = (
        f"{at}: no broker with this server key accepted the connection within {timeout:g} s; one answer was: {failure}"
    )
    if isinstance(failure, AccessDenied):
        return AccessDenied(failure.status, text)
    return NotConnected(text)
