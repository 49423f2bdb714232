"""A registration that beats by UDP, with a real broker on loopback."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from polydomo.client.catalog import AsyncCatalog, RegistrationObserver, open_beats, stay_registered
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings
from polydomo.wire.address import DISCOVER, Address
from tests.server.nearby import LOOPBACK, free_port, settings

WAIT = 60.0
CAMERA: dict[str, object] = {"name": "camera", "port": 8080, "heartbeat": 0.1}


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, WAIT))


@asynccontextmanager
async def serving(made: Settings) -> AsyncIterator[BrokerServer]:
    made.beats_missed = 300  # a machine that pauses is not what these tests are about
    server = BrokerServer(made)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until_counted(server: BrokerServer, kind: str, count: int) -> None:
    while server.broker.counters.datagrams[kind] < count:
        await asyncio.sleep(0.005)


def test_a_registration_beats_by_udp_while_broadcasts_arrive() -> None:
    async def scenario() -> None:
        port = free_port()
        async with serving(settings(broadcast=port)) as server:
            place = AsyncCatalog(server.urls[0])
            staying = asyncio.ensure_future(
                stay_registered(place, CAMERA, RegistrationObserver(), Address(DISCOVER, LOOPBACK, port))
            )
            await until_counted(server, "beat", 5)
            assert server.broker.counters.datagrams["sent"] >= 1
            assert server.broker.directory.beats_by_udp("camera")
            staying.cancel()
            await asyncio.wait([staying])
            await place.close()

    run(scenario())


def test_without_the_brokers_broadcast_it_beats_over_the_connection() -> None:
    async def scenario() -> None:
        async with serving(settings()) as server:  # which takes beats by UDP but broadcasts none
            place = AsyncCatalog(server.urls[0])
            at = Address(DISCOVER, LOOPBACK, free_port())
            staying = asyncio.ensure_future(stay_registered(place, CAMERA, RegistrationObserver(), at))
            await until_counted(server, "beat", 1)
            entry = server.broker.catalog.entries["camera"]
            first = entry.datagram
            while not (entry.seen > entry.datagram + 0.3 and entry.state == "ready"):
                await asyncio.sleep(0.005)
            assert entry.datagram <= first + 0.3
            staying.cancel()
            await asyncio.wait([staying])
            await place.close()

    run(scenario())


def test_only_the_brokers_own_machine_is_listened_to() -> None:
    async def scenario() -> None:
        beats = await open_beats("camera", 1000.0, ("192.0.2.1", 5246), Address(DISCOVER, "127.0.0.1", free_port()))
        try:
            assert beats.beats.beat(0.0, 0.0) is not None  # not sent: that host is nowhere
            heard = beats.beats.heard
            assert heard is not None
            beat = udp.write(dbp.HEARTBEAT, "5246", 0.0)
            beats.datagram_received(beat, ("192.0.2.2", 5246))
            assert beats.beats.heard == heard
            beats.datagram_received(beat, ("192.0.2.1", 5246))
            assert beats.beats.heard > heard
        finally:
            beats.close()

    run(scenario())


def test_a_local_socket_has_no_udp(tmp_path: object) -> None:
    async def scenario() -> None:
        made = settings()
        made.listen = [f"ipc://{tmp_path}/broker.sock"]
        async with serving(made) as server, AsyncCatalog(server.urls[0]) as place:
            assert await place.beats_by_udp("camera", 1.0, Address(DISCOVER, LOOPBACK, free_port())) is None

    run(scenario())
