"""A command that only reads from the broker survives one broken connection."""

import asyncio
import contextlib

import pytest

import polydomo.testing
from polydomo.cli.common.reading import read
from polydomo.client.aio import AsyncClient
from polydomo.errors import ConnectionLost, NotConnected


class Breaking:
    """A proxy in front of a broker that closes the first connections when they carry a request."""

    def __init__(self, url: str, breaks: int) -> None:
        self.host, self.port = "127.0.0.1", int(url.rpartition(":")[2])
        self.breaks = breaks

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(self.host, self.port)
        with contextlib.closing(writer), contextlib.closing(ours), contextlib.suppress(ConnectionError):
            back = asyncio.create_task(copy(theirs, writer))
            while data := await reader.read(65536):
                if self.breaks and b"MDPC01" in data:
                    self.breaks -= 1
                    break
                ours.write(data)
            back.cancel()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)


async def status(breaks: int) -> bytes:
    with polydomo.testing.broker() as broker:
        proxy = await asyncio.start_server(Breaking(broker.url, breaks).forward, "127.0.0.1", 0)
        async with proxy, AsyncClient(f"tcp://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", "mdp1") as client:
            return (await read(client, "polydomo.status"))[0]


def test_a_call_that_reads_is_repeated_once() -> None:
    assert asyncio.run(status(breaks=0)).startswith(b"{")
    assert asyncio.run(status(breaks=1)).startswith(b"{")
    with pytest.raises(ConnectionLost):
        asyncio.run(status(breaks=2))


def test_a_broker_that_is_not_there_is_not_tried_again() -> None:
    async def ask() -> None:
        async with AsyncClient("tcp://127.0.0.1:1", "mdp1", connect_timeout=0.05) as client:
            await read(client, "polydomo.status")

    with pytest.raises(NotConnected):
        asyncio.run(ask())
