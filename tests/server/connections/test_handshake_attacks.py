"""Attacks on the handshake: floods, replays, old cookies, half handshakes. Honest peers are served meanwhile."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import polydomo
import polydomo.testing
from polydomo.server.server import BrokerServer
from polydomo.wire import frames
from tests.server.raw_curve import GREETING, RawCurve
from tests.server.secured import PATIENCE, Place

REQUEST = frames.join([b"MDXC01", b"\x01", b"echo", b"1", b"replayed"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("attacks"))


@pytest.fixture(scope="module")
def broker(place: Place) -> Iterator[polydomo.testing.Broker]:
    settings = {"access": str(place.access)}
    with polydomo.testing.broker(settings=settings, tuning={"handshake_time": 60.0}) as broker:
        worker = polydomo.Worker(broker.url, **place.keys("pool"))
        worker.add("echo", lambda call: call.text.upper())
        with worker:
            broker.wait_for("echo")
            yield broker


def accepted(broker: polydomo.testing.Broker) -> int:
    assert broker._server is not None
    return broker._server.broker.newest_request


def test_a_whole_session_replayed(place: Place, broker: polydomo.testing.Broker) -> None:
    with RawCurve(broker.url, place) as honest:
        honest.shake()
        honest.send(b"".join(bytes(piece) for piece in honest.mechanism.encode([REQUEST])))
        assert b"REPLAYED" in honest.mechanism.decode(honest.socket.recv(65536))
        before = accepted(broker)
        with RawCurve(broker.url, place) as thief:
            thief.socket.sendall(honest.sent)  # every byte that the honest client sent
            assert thief.closed()
    assert accepted(broker) == before


def test_a_message_sent_twice_closes_the_connection(place: Place, broker: polydomo.testing.Broker) -> None:
    with RawCurve(broker.url, place) as peer:
        peer.shake()
        message = b"".join(bytes(piece) for piece in peer.mechanism.encode([REQUEST]))
        before = accepted(broker)
        peer.send(message)
        peer.send(message)
        assert peer.closed()
    assert accepted(broker) == before + 1


def test_a_cookie_of_another_connection(place: Place, broker: polydomo.testing.Broker) -> None:
    with RawCurve(broker.url, place) as one, RawCurve(broker.url, place) as two:
        one.hello()
        two.hello()
        initiate = one.initiate()
        two.read_command()
        two.send(initiate)
        assert two.closed()
        one.send(initiate)
        assert one.read_command()[0] == b"READY"


def test_an_old_cookie(place: Place, broker: polydomo.testing.Broker) -> None:
    with RawCurve(broker.url, place) as peer:
        peer.hello()
        initiate = peer.initiate()

        def rotate(server: BrokerServer) -> bool:
            assert server.access is not None
            for _ in range(2):
                server.access.cookies.rotate(server.access.entropy(32))
            return True

        broker.wait_until(rotate)
        peer.send(initiate)
        assert peer.closed()


def test_half_handshakes_end(place: Place) -> None:
    opened = []
    with polydomo.testing.broker(settings={"access": str(place.access)}, tuning={"handshake_time": 1.0}) as broker:
        for data in (b"", GREETING[:11], GREETING):
            raw = RawCurve(broker.url, place)
            raw.socket.sendall(data)
            opened.append(raw)
        stopped = RawCurve(broker.url, place)
        with contextlib.suppress(ConnectionError):  # a slow machine may need longer than that second
            stopped.hello()
        for raw in [*opened, stopped]:
            assert raw.closed()
            raw.socket.close()


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_flood_of_hellos(place: Place, broker: polydomo.testing.Broker, count: int) -> None:
    """The same valid HELLO over and over: each costs the broker a key agreement and the attacker nothing."""
    with RawCurve(broker.url, place) as first:
        first.hello()
        attack = first.sent
    assert broker._server is not None
    pacer = broker._server.pacer
    before, memory, rate = pacer.delayed, resident(), pacer.rate
    with polydomo.Client(broker.url, **place.keys("alice")) as client, Flood(broker.url, attack) as flood:
        assert client.call("echo", "x", timeout=PATIENCE).text == "X"
        try:
            pacer.rate = 0.0  # however slow the flood is on this machine, it is too fast for the broker
            flood.send(pacer.burst + 10)
            broker.wait_until(lambda server: server.pacer.delayed >= before + 10, timeout=PATIENCE)
            assert client.call("echo", "x", timeout=PATIENCE).text == "X"  # who is connected does not wait
        finally:
            pacer.rate = rate
        flood.send(count // 2)
        with polydomo.Client(broker.url, **place.keys("alice"), connect_timeout=PATIENCE) as late:
            assert late.call("echo", "late", timeout=PATIENCE).text == "LATE"  # a new peer gets in, too
        flood.send(count // 2)
        assert client.call("echo", "x", timeout=PATIENCE).text == "X"
    broker.wait_until(lambda server: server.pacer.waiting == 0 and len(server.connections) < 10, timeout=PATIENCE)
    assert resident() - memory < 100 << 20


@pytest.mark.long
def test_a_flood_does_not_slow_down_a_connected_client(place: Place, broker: polydomo.testing.Broker) -> None:
    with RawCurve(broker.url, place) as first:
        first.hello()
        attack = first.sent
    over = threading.Event()
    waited: list[float] = []

    def honest() -> None:
        with polydomo.Client(broker.url, **place.keys("alice")) as client:
            client.call("echo", "x", timeout=PATIENCE)
            while not over.is_set():
                began = time.monotonic()
                assert client.call("echo", "x", timeout=PATIENCE).text == "X"
                waited.append(time.monotonic() - began)

    caller = threading.Thread(target=honest)
    caller.start()
    try:
        with Flood(broker.url, attack) as flood:
            flood.send(10_000)
    finally:
        over.set()
        caller.join(PATIENCE)
    # A bound that a busy machine keeps, and a broker that does nothing but handshakes would not.
    assert len(waited) > 10 and max(waited) < 5.0


class Flood:
    """Connections that send the same bytes and read nothing; the oldest are closed."""

    def __init__(self, url: str, data: bytes) -> None:
        host, port = url.removeprefix("tcp://").split(":")
        self.address = (host, int(port))
        self.data = data
        self.opened: list[socket.socket] = []

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *exc: object) -> None:
        self._close(len(self.opened))

    def send(self, count: int) -> None:
        for _ in range(count):
            self.opened.append(socket.create_connection(self.address, PATIENCE))
            self.opened[-1].sendall(self.data)
            if len(self.opened) > 400:
                self._close(200)

    def _close(self, count: int) -> None:
        for raw in self.opened[:count]:
            raw.close()
        del self.opened[:count]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
