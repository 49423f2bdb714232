"""Many connections with output: workers are written to at once; clients with queued requests get several turns in one write."""

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from polydomo.limits import CROWD, CROWD_CLIENTS, CROWD_TURNS
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings
from polydomo.wire.link import Link
from tests.server.raw import Raw
from tests.server.turning import until

WORKERS = 2 * CROWD
CLIENTS = CROWD_CLIENTS


class Pen:
    """Stands in front of a transport and notes each piece that is written."""

    def __init__(self, transport: Any, note: Callable[[int], None]) -> None:
        self._transport = transport
        self._note = note

    def write(self, data: bytes) -> None:
        self._note(data.count(b"reply"))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Crowd:
    """Workers and clients of one broker, in one loop that is turned by hand. Every client asks more than the workers take at once."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        host, port = server.urls[0].removeprefix("tcp://").split(":")
        self.address = host, int(port)
        self.workers: list[Raw] = []
        self.clients: list[Raw] = []
        self.written: list[tuple[str, int]] = []  # to whom, and how many replies in it

    async def come(self, requests: int) -> None:
        for _ in range(WORKERS):
            self.workers.append(peer := await asyncio.to_thread(self._peer))
            peer.send(b"", b"MDPW01", b"\x01", b"echo")
        await until(lambda: len(self.server.broker.workers) == WORKERS)
        for _ in range(CLIENTS):
            self.clients.append(await asyncio.to_thread(self._peer))
        broker = self.server.broker
        for asked, peer in enumerate(
            self.clients * requests, 1
        ):  # in turn: any ``CROWD`` workers have requests of all clients
            peer.send(b"", b"MDPC01", b"echo", b"ask")
            await until(lambda asked=asked: broker.open_requests == asked)  # type: ignore[misc]
        await until(lambda: not self.server.hub.dirty)
        for connection in self.server.connections:
            link = connection.link
            assert link is not None
            connection.transport = Pen(connection.transport, self._noter(link))  # type: ignore[assignment]

    def _peer(self) -> Raw:
        peer = Raw(self.address)
        peer.shake()
        return peer

    def _noter(self, link: Link) -> Callable[[int], None]:
        who = "worker" if link.handler.worker_count else "client"
        return lambda replies: self.written.append((who, replies))

    async def answer(self, workers: list[Raw]) -> None:
        """These workers answer within one turn of the broker."""
        paused = [connection.transport for connection in self.server.connections]
        for transport in paused:
            transport.pause_reading()
        for worker in workers:
            token = (await asyncio.to_thread(worker.receive))[3]
            worker.send(b"", b"MDPW01", b"\x03", token, b"", b"reply")
        senders = {worker.socket.getsockname() for worker in workers}
        inputs = [each.get_extra_info("socket") for each in paused if each.get_extra_info("peername") in senders]
        # The kernel may take its time on a busy machine.
        await until(lambda: len(select.select(inputs, [], [], 0)[0]) == len(workers))
        for transport in paused:
            transport.resume_reading()

    async def crowd_up(self) -> None:
        """Enough workers answer that output to clients may be delayed."""
        await self.answer(self.workers[:CROWD])
        await until(lambda: len(self.pieces("worker")) == CROWD)

    def pieces(self, who: str) -> list[int]:
        return [replies for whom, replies in self.written if whom == who]


@asynccontextmanager
async def crowd(requests: int) -> AsyncIterator[Crowd]:
    # without heartbeats: nothing is written but what the tests are about
    server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"], beat=60.0))
    await server.start()
    made = Crowd(server)
    try:
        await made.come(requests)
        yield made
    finally:
        await server.stop()
        for peer in made.workers + made.clients:
            peer.close()


def test_clients_that_wait_for_more_are_written_to_later_and_in_one_piece(run: Callable[[Any], None]) -> None:
    async def play() -> None:
        async with crowd(requests=20) as world:
            await world.crowd_up()
            assert not world.pieces("client"), "their replies are kept, the workers' next requests are not"
            await until(lambda: sum(world.pieces("client")) == CROWD)
            assert len(world.pieces("client")) == CLIENTS, "each in one piece"

    run(play())


def test_no_output_is_delayed_while_the_broker_is_idle(run: Callable[[Any], None]) -> None:
    async def play() -> None:
        async with crowd(requests=20) as world:
            await world.crowd_up()
            for _ in range(CROWD_TURNS):
                await asyncio.sleep(0)
            assert sum(world.pieces("client")) == CROWD

    run(play())


def test_a_client_with_nothing_else_to_wait_for_is_written_to_at_once(run: Callable[[Any], None]) -> None:
    async def play() -> None:
        async with crowd(requests=1) as world:
            spare = WORKERS - CLIENTS  # they have nothing to do, and are not written to
            assert spare > 0
            busy = [
                worker for worker, found in zip(world.workers, world.server.broker.workers, strict=True) if found.held
            ]
            await world.answer(busy)
            await until(lambda: bool(world.written))
            assert world.pieces("client") == [1] * CLIENTS

    run(play())


def test_delayed_output_is_written_before_the_broker_stops(run: Callable[[Any], None]) -> None:
    async def play() -> None:
        async with crowd(requests=20) as world:
            await world.crowd_up()
            assert not world.pieces("client")
            await world.server.stop()
            assert sum(world.pieces("client")) == CROWD

    run(play())
