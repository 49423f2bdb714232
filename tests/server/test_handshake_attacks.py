"""Attacks on the handshake: floods, replays, old cookies, half handshakes. Honest peers are served meanwhile."""

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
    settings = {"access": str(place.access), "limits.handshake_time": "4s"}
    with polydomo.testing.broker(settings=settings) as broker:
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


def test_half_handshakes_end(place: Place, broker: polydomo.testing.Broker) -> None:
    opened = []
    for data in (b"", GREETING[:11], GREETING):
        raw = RawCurve(broker.url, place)
        raw.socket.sendall(data)
        opened.append(raw)
    stopped = RawCurve(broker.url, place)
    stopped.hello()
    stopped.read_command()
    for raw in [*opened, stopped]:
        assert raw.closed()
        raw.socket.close()


@pytest.mark.real_time
@pytest.mark.parametrize("count", [1_500, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_flood_of_hellos(place: Place, broker: polydomo.testing.Broker, count: int) -> None:
    """The same valid HELLO over and over: each costs the broker a key agreement and the attacker nothing."""
    with RawCurve(broker.url, place) as first:
        first.hello()
        attack = first.sent
    host, port = broker.url.removeprefix("tcp://").split(":")
    assert broker._server is not None
    server = broker._server
    before, memory = server.pacer.delayed, resident()
    over = threading.Event()
    slowest = 0.0
    served = 0

    def honest() -> None:
        nonlocal slowest, served
        with polydomo.Client(broker.url, **place.keys("alice")) as client:
            client.call("echo", "x", timeout=PATIENCE)
            while not over.is_set():
                began = time.monotonic()
                assert client.call("echo", "x", timeout=PATIENCE).text == "X"
                slowest = max(slowest, time.monotonic() - began)
                served += 1

    caller = threading.Thread(target=honest)
    caller.start()
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            opened.append(socket.create_connection((host, int(port)), PATIENCE))
            opened[-1].sendall(attack)
            if len(opened) > 400:
                for raw in opened[:200]:
                    raw.close()
                del opened[:200]
            if number == count // 2:  # a new peer gets in during the flood, too
                with polydomo.Client(broker.url, **place.keys("alice"), connect_timeout=PATIENCE) as late:
                    assert late.call("echo", "late", timeout=PATIENCE).text == "LATE"
    finally:
        over.set()
        caller.join(PATIENCE)
        for raw in opened:
            raw.close()
    assert (
        served > 10 and slowest < 5.0
    )  # a bound that a busy machine keeps, and a broker that does nothing else would not
    assert server.pacer.delayed > before
    broker.wait_until(lambda server: server.pacer.waiting == 0 and len(server.connections) < 10, timeout=PATIENCE)
    assert resident() - memory < 100 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
