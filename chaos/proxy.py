"""A faulty network: a TCP and a UDP proxy whose routes can be disturbed while they run.

A *route* is a separate address that leads to the broker. Every peer has its own, so that a fault can affect a single peer. A TCP
route can delay bytes, limit their rate, hold them back, or drop them, in one or both directions. Dropped bytes are lost for good, as
if a machine on the way had crashed, so a connection that lost bytes is never repaired: it is closed.
"""

import asyncio
import random
import socket
import struct
from dataclasses import dataclass, field
from typing import cast

CHUNK = 64 * 1024
UP, DOWN = "up", "down"  # from the peer to the broker, and back
BOTH = (UP, DOWN)
LAST_WORDS = 5.0  # seconds for which one direction of a connection may continue after the other has ended
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


@dataclass
class Weather:
    """How a route behaves."""

    delay: float = 0.0  # seconds that every chunk takes
    jitter: float = 0.0  # ... plus up to this much; the order stays
    rate: float = 0.0  # bytes per second; 0: unlimited
    held: frozenset[str] = frozenset()  # directions in which bytes are held back until the fault ends
    swallowed: frozenset[str] = frozenset()  # directions in which bytes are dropped
    refused: bool = False  # new connections are reset
    drop: float = 0.0  # UDP: fraction of the datagrams that are lost,
    twice: float = 0.0  # come twice,
    late: float = 0.0  # come later than those sent after them


FINE = Weather()


@dataclass
class Counts:
    connections: int = 0
    bytes: int = 0
    swallowed: int = 0
    cut: int = 0
    dropped: int = 0  # datagrams


class Route:
    """An address that leads to the broker, for one peer."""

    url = ""

    def __init__(self, name: str, target: tuple[str, int], dice: random.Random) -> None:
        self.name = name
        self.target = target
        self.dice = dice
        self.weather = FINE
        self.counts = Counts()
        self.pairs: set[Pair] = set()
        self.changed = asyncio.Event()  # replaced whenever the conditions change
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=CHUNK)
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, weather: Weather) -> None:
        self.weather = weather
        if not weather.swallowed:
            for pair in list(self.pairs):
                if pair.doomed:
                    pair.cut()
        self.changed.set()
        self.changed = asyncio.Event()

    def heal(self) -> None:
        self.set(FINE)

    def cut(self) -> int:
        """Resets every connection on both sides and drops the bytes in transit."""
        pairs = list(self.pairs)
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def half_open(self, side: str) -> int:
        """Resets one side of every connection and keeps the other open. ``up``: resets the broker's side."""
        pairs = [pair for pair in self.pairs if not pair.half]
        for pair in pairs:
            pair.halve(side)
        return len(pairs)

    def cut_within(self, size: int) -> int:
        """Cuts the next chunk of each connection after ``size`` bytes, and closes the connection."""
        for pair in self.pairs:
            pair.fuse = size
        return len(self.pairs)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            _reset(writer)  # the route is closed; a task of start_server must not end cancelled
        finally:
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.weather.refused:
            _reset(writer)
            return
        try:
            there = await asyncio.open_connection(*self.target, limit=CHUNK)
        except OSError:
            _reset(writer)
            return
        pair = Pair(self, writer, there[1])
        self.pairs.add(pair)
        self.counts.connections += 1
        ways = [
            asyncio.create_task(pair.pump(UP, reader, there[1])),
            asyncio.create_task(pair.pump(DOWN, there[0], writer)),
        ]
        pair.ways = ways
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if pair.half:
                # One side stays open until it times out, or the route is cut or closed.
                await asyncio.wait(ways)
            else:
                # Bytes that one side sent before it closed still arrive, even if the other direction broke first.
                await asyncio.wait(ways, timeout=LAST_WORDS)
        finally:
            self.pairs.discard(pair)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            _finish(writer)
            _finish(there[1])


class Pair:
    """A connection: the peer's side and the broker's side of it."""

    doomed = False  # some of its bytes were dropped
    half = False  # one side was reset
    fuse = -1  # bytes left until the cut; negative: no cut is planned

    def __init__(self, route: Route, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.route = route
        self.writers = {UP: far, DOWN: near}
        self.ways: list[asyncio.Task[None]] = []

    def cut(self) -> None:
        self.route.counts.cut += 1
        self.half = False
        for writer in self.writers.values():
            _reset(writer)
        for way in self.ways:
            way.cancel()

    def halve(self, side: str) -> None:
        self.half = True
        self.doomed = True
        _reset(self.writers[side])

    async def pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copies bytes in one direction until either side closes."""
        route = self.route
        try:
            while data := await reader.read(CHUNK):
                await self._wait(way, len(data))
                if self.half or way in route.weather.swallowed:
                    self.doomed = True
                    route.counts.swallowed += len(data)
                    continue
                if self.fuse >= 0:
                    writer.write(data[: self.fuse])
                    await asyncio.wait_for(writer.drain(), 1.0)
                    self.cut()
                    return
                route.counts.bytes += len(data)
                if route.weather.rate:
                    await self._trickle(data, writer)
                else:
                    writer.write(data)
                await writer.drain()
            if not self.half:
                _finish(writer)
        except (OSError, TimeoutError):
            pass

    async def _wait(self, way: str, size: int) -> None:
        route = self.route
        while way in route.weather.held:
            await route.changed.wait()
        weather = route.weather
        if weather.delay or weather.jitter:
            await asyncio.sleep(weather.delay + route.dice.random() * weather.jitter)

    async def _trickle(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Passes bytes at the limited rate until the limit is lifted."""
        route = self.route
        at = 0
        while at < len(data):
            rate = route.weather.rate
            if not rate:
                writer.write(data[at:])
                return
            step = max(1, int(rate / 10))
            writer.write(data[at : at + step])
            await writer.drain()
            at += step
            try:
                async with asyncio.timeout(step / rate):
                    await route.changed.wait()
            except TimeoutError:
                pass


class DatagramRoute(asyncio.DatagramProtocol):
    """Forwards UDP heartbeats of peers to one address. Answers are not forwarded: heartbeats have none."""

    port = 0

    def __init__(self, name: str, target: tuple[str, int], dice: random.Random) -> None:
        self.name = name
        self.target = target
        self.dice = dice
        self.weather = FINE
        self.counts = Counts()
        self._transport: asyncio.DatagramTransport | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        weather, dice = self.weather, self.dice
        self.counts.bytes += len(data)
        if dice.random() < weather.drop:
            self.counts.dropped += 1
            return
        for _ in range(2 if dice.random() < weather.twice else 1):
            wait = weather.delay + (dice.random() if dice.random() < weather.late else 0.0)
            if wait:
                asyncio.get_running_loop().call_later(wait, self._send, data)
            else:
                self._send(data)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, self.target)

    def error_received(self, exc: Exception) -> None:
        """The broker is down: datagrams are lost, as UDP allows."""

    def heal(self) -> None:
        self.weather = FINE

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass
class Network:
    """All routes."""

    dice: random.Random
    routes: dict[str, Route] = field(default_factory=dict)
    datagrams: dict[str, DatagramRoute] = field(default_factory=dict)

    async def route(self, name: str, target: tuple[str, int]) -> Route:
        route = Route(name, target, self.dice)
        await route.open()
        self.routes[name] = route
        return route

    async def datagram_route(self, name: str, target: tuple[str, int]) -> DatagramRoute:
        route = DatagramRoute(name, target, self.dice)
        await route.open()
        self.datagrams[name] = route
        return route

    def heal(self) -> None:
        for route in self.routes.values():
            route.heal()
        for datagrams in self.datagrams.values():
            datagrams.heal()

    async def close(self) -> None:
        await asyncio.gather(*(route.close() for route in self.routes.values()))
        for datagrams in self.datagrams.values():
            datagrams.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset and drops the bytes in transit."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def _finish(writer: asyncio.StreamWriter) -> None:
    """Closes after everything that was received has been written."""
    if not writer.is_closing():
        writer.close()
