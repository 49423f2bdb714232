"""The server on uvloop and on asyncio's own loop: both must provide what it needs of a transport."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent import futures

import pytest

import polydomo.testing
from polydomo.client import background
from polydomo.server.settings.settings import Settings
from polydomo.wire import frames
from tests.server.raw import Raw, dealer, raw

MIB = 1 << 20
HEAD = (b"", b"MDPW01")


@pytest.fixture
def handshake_time() -> float:
    return 60.0


hasty = pytest.mark.parametrize("handshake_time", [3.0])


@pytest.fixture(params=["uvloop", "asyncio"])
def broker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, handshake_time: float
) -> Iterator[polydomo.testing.Broker]:
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        monkeypatch.setattr(background, "new_event_loop", uvloop.new_event_loop)
    else:
        monkeypatch.setattr(background, "new_event_loop", asyncio.new_event_loop)
    settings = Settings()
    settings.limits.max_outstanding = 4
    settings.limits.max_connections = 20
    tuning = {"handshake_time": handshake_time, "mdp_beat": 60.0}  # the echo worker below does not beat
    with polydomo.testing.broker(settings=settings, tuning=tuning) as broker:
        broker.wait_until(lambda server: type(server.loop).__module__.startswith(request.param))
        yield broker


@pytest.fixture
def address(broker: polydomo.testing.Broker) -> tuple[str, int]:
    return "127.0.0.1", int(broker.url.rpartition(":")[2])


@pytest.fixture
def worker(broker: polydomo.testing.Broker, address: tuple[str, int]) -> Iterator[Raw]:
    """An echo worker."""
    with dealer(address) as peer:
        peer.send(*HEAD, b"\x01", b"echo")
        broker.wait_for("echo")
        echo = threading.Thread(target=serve, args=(peer,))
        echo.start()
        yield peer
        with contextlib.suppress(OSError):  # the broker may have closed it already
            peer.socket.shutdown(socket.SHUT_RDWR)
        echo.join()


def serve(peer: Raw) -> None:
    try:
        while True:
            message = peer.receive()
            if message[2] == b"\x02":
                peer.send(*HEAD, b"\x03", *message[3:])
    except (AssertionError, OSError):
        pass  # closed


def test_calls_of_every_size(address: tuple[str, int], worker: Raw) -> None:
    with dealer(address) as client:
        for size in (0, 1, 255, 256, 40_000, 300_000, 5 * MIB):
            body = bytes(range(256)) * (size // 256 + 1)
            assert client.call(b"echo", body[:size]) == [body[:size]]


def test_a_paused_connection_that_closes(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    with dealer(address) as client:
        for _ in range(10):
            client.send(b"", b"MDPC01", b"nobody", b"x")
        broker.wait_until(lambda server: any(not connection.reading for connection in server.connections))
    broker.wait_until(lambda server: not server.connections and not server.broker.open_requests)


def test_a_connection_that_is_reset(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    with dealer(address) as client:
        client.send(b"", b"MDPC01", b"nobody", b"x")
        broker.wait_until(lambda server: bool(server.broker.open_requests))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.wait_until(lambda server: not server.connections and not server.broker.open_requests)


def test_a_connection_closed_in_one_direction(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    with dealer(address) as client:
        client.socket.shutdown(socket.SHUT_WR)
        assert client.closed() == b""
        broker.wait_until(lambda server: not server.connections)


def test_a_reader_that_pauses_and_resumes(
    broker: polydomo.testing.Broker, address: tuple[str, int], worker: Raw
) -> None:
    """While it does not read it is not read; afterwards nothing is missing."""
    body = bytes(4 * MIB)
    request = frames.join([b"", b"MDPC01", b"echo", body])
    with raw(address, buffer=65536) as client, futures.ThreadPoolExecutor(1) as beside:
        client.shake()
        # Beside: with the first reply unread, the last request may not be taken.
        writing = beside.submit(client.write, request * 4)
        broker.wait_until(lambda server: any(connection.choked for connection in server.connections))
        for _ in range(4):
            assert client.receive()[3] == body
        writing.result()
        assert client.call(b"mmi.service", b"echo") == [b"200"]
        broker.wait_until(lambda server: all(connection.reading for connection in server.connections))


def test_too_many_connections(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    peers = [Raw(address) for _ in range(25)]
    for peer in peers[20:]:
        assert peer.closed() == b""
    for peer in peers:
        peer.close()
    broker.wait_until(lambda server: not server.connections)
    with dealer(address) as client:
        assert client.call(b"mmi.service", b"x") == [b"404"]


@hasty
def test_a_handshake_that_takes_too_long(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    with raw(address) as silent, dealer(address) as idle:
        assert silent.closed() == b""
        assert idle.call(b"mmi.service", b"x") == [b"404"]  # it has shaken hands, and may take its time


@hasty
def test_an_nng_peer_may_be_idle_after_its_hello(broker: polydomo.testing.Broker, address: tuple[str, int]) -> None:
    with raw(address) as nng, raw(address) as silent:
        nng.write(b"\x00SP\x00\x00\x30\x00\x00")
        assert nng.read(8) == b"\x00SP\x00\x00\x31\x00\x00"
        assert silent.closed() == b""  # it came later, and its time is over
        nng.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            nng.socket.recv(1)


def test_stop_and_start_with_peers_of_every_kind(
    broker: polydomo.testing.Broker, address: tuple[str, int], worker: Raw
) -> None:
    with (
        raw(address) as silent,
        dealer(address) as paused,
        raw(address, buffer=4096) as deaf,
        dealer(address) as client,
    ):
        for _ in range(10):
            paused.send(b"", b"MDPC01", b"nobody", b"x")
        deaf.shake()
        deaf.send(b"", b"MDPC01", b"echo", bytes(8 * MIB))
        broker.wait_until(lambda server: any(connection.choked for connection in server.connections))
        assert client.call(b"mmi.service", b"echo") == [b"200"]
        broker.stop()
        assert silent.closed() == b""
        assert client.closed() == b""
        broker.start()
    with dealer(address) as client:
        assert client.call(b"mmi.service", b"echo") == [b"404"]
