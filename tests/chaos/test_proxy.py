"""The network that misbehaves, before a plain TCP echo and a plain UDP socket."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from chaos.proxy import BOTH, DOWN, UP, DatagramRoute, Network, Route, Weather

WAIT = 60.0
MOMENT = 0.2  # long enough for bytes that are on their way to have arrived


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[tuple[Route, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A route to an echo, and a connection through it that has been used once."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    network = Network(random.Random(1))
    try:
        route = await network.route("peer", server.sockets[0].getsockname()[:2])
        reader, writer = await dial(route)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        yield route, reader, writer
        writer.transport.abort()
    finally:
        await network.close()
        server.close()


async def dial(route: Route) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(route.url.rpartition(":")[2]))


def played(play: Callable[[Route, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WAIT), stage() as (route, reader, writer):
            await play(route, reader, writer)

    asyncio.run(run())


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes for a moment."""
    try:
        async with asyncio.timeout(MOMENT):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


def test_delay_keeps_the_order() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.set(Weather(delay=0.05, jitter=0.05))
        began = asyncio.get_running_loop().time()
        for number in range(5):
            writer.write(bytes([number]))
            await asyncio.sleep(0.01)
        assert await reader.readexactly(5) == bytes(range(5))
        assert asyncio.get_running_loop().time() - began >= 0.1

    played(play)


@pytest.mark.parametrize("way", [UP, DOWN])
def test_held_bytes_arrive_later(way: str) -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.set(Weather(held=frozenset((way,))))
        writer.write(b"x")
        assert await silent(reader)
        route.heal()
        assert await reader.readexactly(1) == b"x"

    played(play)


def test_bytes_sent_before_the_end_arrive_after_the_other_direction_broke() -> None:
    gone = asyncio.Event()

    async def farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"goodbye")
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def run() -> None:
        server = await asyncio.start_server(farewell, "127.0.0.1", 0)
        network = Network(random.Random(1))
        route = await network.route("peer", server.sockets[0].getsockname()[:2])
        route.set(Weather(held=frozenset((DOWN,))))
        reader, writer = await dial(route)
        writer.write(b"x")
        await gone.wait()
        for _ in range(5):  # nobody is there to read it: this way breaks
            writer.write(b"y")
            await asyncio.sleep(0.02)
        route.heal()
        assert await reader.read() == b"goodbye"
        writer.close()
        await network.close()
        server.close()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT):
            await run()

    asyncio.run(bounded())


def test_dropped_bytes_never_arrive_and_the_connection_is_closed() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.set(Weather(swallowed=frozenset(BOTH)))
        writer.write(b"x")
        assert await silent(reader)
        route.heal()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        assert route.counts.swallowed == 1

    played(play)


def test_narrow_then_wide() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.set(Weather(rate=10.0))
        writer.write(bytes(10_000))
        first = await reader.read(10_000)
        assert 0 < len(first) < 1000, "after a pause of the machine more than a byte is due"
        route.heal()
        await reader.readexactly(10_000 - len(first))

    played(play)


def test_cut() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert route.cut() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

    played(play)


def test_cut_within() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.cut_within(3)
        writer.write(b"0123456789")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(10)

    played(play)


@pytest.mark.parametrize("side", BOTH)
def test_half_open(side: str) -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert route.half_open(side) == 1
        if side == UP:  # the broker's side is gone, and the peer sees nothing of it
            writer.write(b"x")
            assert await silent(reader)
            route.heal()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

    played(play)


def test_refused() -> None:
    async def play(route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route.set(Weather(refused=True))
        other, _ = await dial(route)
        with pytest.raises(ConnectionResetError):
            await other.read(1)
        writer.write(b"x")  # those that are there stay
        assert await reader.readexactly(1) == b"x"

    played(play)


def test_datagrams() -> None:
    async def run() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as far, socket.socket(type=socket.SOCK_DGRAM) as near:
            far.bind(("127.0.0.1", 0))
            far.setblocking(False)
            route = DatagramRoute("peer", far.getsockname(), random.Random(1))
            await route.open()
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(WAIT):
                near.sendto(b"1", ("127.0.0.1", route.port))
                assert await loop.sock_recv(far, 10) == b"1"
                route.weather = Weather(twice=1.0)
                near.sendto(b"2", ("127.0.0.1", route.port))
                assert [await loop.sock_recv(far, 10) for _ in range(2)] == [b"2", b"2"]
                route.weather = Weather(drop=1.0)
                near.sendto(b"3", ("127.0.0.1", route.port))
                while not route.counts.dropped:
                    await asyncio.sleep(0.005)
                route.heal()
                near.sendto(b"4", ("127.0.0.1", route.port))
                assert await loop.sock_recv(far, 10) == b"4"
            route.close()

    asyncio.run(run())
