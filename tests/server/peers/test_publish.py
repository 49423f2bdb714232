"""Publishing with real peers: pyzmq's PUB, XPUB, SUB and XSUB through the broker's one port, and publishers that it dials itself."""

import asyncio
import json
import struct
import time
from collections.abc import Callable, Iterator

import pytest
import zmq

import polydomo.testing
from polydomo.server.server import BrokerServer
from polydomo.server.settings.sections import Values
from polydomo.server.settings.settings import Settings

PATIENCE = 60_000  # milliseconds; only a machine that has stopped would use it up


@pytest.fixture
def context() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    with zmq.Context() as context:
        yield context
        context.destroy(linger=0)


class Peers:
    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", broker: polydomo.testing.Broker) -> None:
        self.context = context
        self.broker = broker

    def dial(self, kind: int, url: str = "") -> "zmq.Socket[bytes]":
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
        socket.connect(url or self.broker.url)
        return socket

    def subscriber(self, *prefixes: bytes) -> "zmq.Socket[bytes]":
        """A SUB whose subscriptions have reached the broker."""
        before = self.subscriptions()
        socket = self.dial(zmq.SUB)
        for prefix in prefixes:
            socket.setsockopt(zmq.SUBSCRIBE, prefix)
        self.broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == before + len(prefixes))
        return socket

    def subscriptions(self) -> int:
        found: list[int] = []
        self.broker.wait_until(lambda server: not found.append(len(server.broker.publishing.subscriptions)))  # type: ignore[func-returns-value]
        return found[0]

    def publisher(self, kind: int = zmq.PUB) -> "zmq.Socket[bytes]":
        """A PUB that the broker has subscribed to."""
        socket = self.context.socket(zmq.XPUB if kind == zmq.PUB else kind)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
        socket.setsockopt(zmq.LINGER, PATIENCE)
        socket.connect(self.broker.url)
        assert socket.recv() == b"\x01"  # the broker wants everything
        return socket

    def values(self, count: int) -> None:
        """Waits until this many topics have a value."""
        self.broker.wait_until(lambda server: len(server.broker.publishing.last_values) == count)


@pytest.fixture
def peers(context: "zmq.Context[zmq.Socket[bytes]]", broker: polydomo.testing.Broker) -> Peers:
    return Peers(context, broker)


def test_a_late_subscriber_gets_last_values_then_the_stream(peers: Peers) -> None:
    publisher = peers.publisher()
    for number in range(3):
        publisher.send_multipart([b"weather.oslo", b"%d" % number])
    publisher.send_multipart([b"weather.bergen", b"rain", b"always"])
    publisher.send_multipart([b"news", b"none"])
    peers.values(3)
    subscriber = peers.subscriber(b"weather.")
    publisher.send_multipart([b"weather.oslo", b"3"])
    publisher.send_multipart([b"weather.oslo", b"4"])
    heard = [subscriber.recv_multipart() for _ in range(4)]
    assert heard == [
        [b"weather.bergen", b"rain", b"always"],
        [b"weather.oslo", b"2"],
        [b"weather.oslo", b"3"],
        [b"weather.oslo", b"4"],
    ]


def test_a_plain_pub_and_an_xsub_meet_too(peers: Peers) -> None:
    subscriber = peers.dial(zmq.XSUB)
    subscriber.send(b"\x01t")
    peers.broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 1)
    publisher = peers.dial(zmq.PUB)
    heard: list[list[bytes]] = []
    subscriber.setsockopt(zmq.RCVTIMEO, 5)
    end = time.monotonic() + PATIENCE / 1000
    while not heard and time.monotonic() < end:  # a PUB drops what it sends before it has heard of a subscription
        publisher.send_multipart([b"topic", b"hello"])
        try:
            heard.append(subscriber.recv_multipart())
        except zmq.Again:
            pass
    assert heard == [[b"topic", b"hello"]]


def test_a_stopped_subscriber_is_disconnected_without_affecting_others(
    context: "zmq.Context[zmq.Socket[bytes]]",
) -> None:
    settings = Settings(values=Values(max_unsent=100_000))
    with polydomo.testing.broker(settings=settings) as broker:
        peers = Peers(context, broker)
        stopped = context.socket(zmq.SUB)
        stopped.setsockopt(zmq.RCVHWM, 1)
        stopped.setsockopt(zmq.RCVBUF, 4096)
        stopped.setsockopt(zmq.SUBSCRIBE, b"")
        stopped.setsockopt(zmq.RECONNECT_IVL, -1)
        stopped.connect(broker.url)
        broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 1)
        fine = peers.subscriber(b"t")
        fine.setsockopt(zmq.RCVHWM, 0)
        publisher = peers.publisher()
        publisher.setsockopt(zmq.SNDHWM, 0)
        sent = 0
        cut: list[bool] = []

        def look(server: BrokerServer) -> bool:
            if len(server.broker.publishing.subscriptions) == 1:
                cut.append(True)
            return True

        while not cut and sent < 5000:
            for _ in range(50):
                publisher.send_multipart([b"t", b"%d" % sent, bytes(4000)])
                sent += 1
            for _ in range(50):
                fine.recv_multipart()
            broker.wait_until(look)
        assert cut, "it was never cut off"


# --- DBP --------------------------------------------------------------------------------------------------------------


def dbp(peers: Peers, command: bytes, body: bytes) -> tuple[bytes, bytes]:
    with peers.dial(zmq.REQ) as socket:
        socket.send_multipart([command, struct.pack("=f", 1.0), body])
        answer = socket.recv_multipart()
    return answer[0], answer[2]


def test_an_info_request_asks_for_last_values(peers: Peers) -> None:
    publisher = peers.publisher()
    publisher.send_multipart([b"a.1", b"one"])
    publisher.send_multipart([b"a.2", b"two", b"three"])
    publisher.send_multipart([b"a.3", b"\xff"])
    publisher.send_multipart([b"b", b"other"])
    peers.values(4)
    command, body = dbp(peers, b"u_U", b"values:a.")
    assert command == b"o_O"
    assert json.loads(body) == {"values:a.": {"a.1": "one", "a.2": ["two", "three"], "a.3": {"base64": "/w=="}}}
    command, body = dbp(peers, b"u_U", b"values:nothing, nobody")
    assert json.loads(body) == {"values:nothing": {}, "Error": "No Registered Service With the Name nobody"}
    assert dbp(peers, b"UwU", b'{"name": "values:x"}')[0] == b"(O_O)"


def registration(port: int, **more: object) -> bytes:
    info = {"name": "station", "interfaces": {"pub": {"ip": "127.0.0.1", "port": port}}, "topics": ["weather."]}
    return json.dumps({**info, **more}).encode()


def event(socket: "zmq.Socket[bytes]", wanted: bytes) -> None:
    """Waits for a subscription to arrive at an XPUB, or to end."""
    assert socket.recv() == wanted


def test_the_broker_subscribes_to_what_a_registration_names(peers: Peers) -> None:
    station = peers.context.socket(zmq.XPUB)
    station.setsockopt(zmq.RCVTIMEO, PATIENCE)
    port = station.bind_to_random_port("tcp://127.0.0.1")
    assert dbp(peers, b"UwU", registration(port)) == (b"OwO", b"")
    event(station, b"\x01weather.")
    subscriber = peers.subscriber(b"w")
    station.send_multipart([b"weather.oslo", b"snow"])
    assert subscriber.recv_multipart() == [b"weather.oslo", b"snow"]
    assert dbp(peers, b"UoU", registration(port, topics=["sea."]))[0] == b"u.u"
    # the old connection ends and a new one begins: the station hears of them in either order
    assert {station.recv(), station.recv()} == {b"\x00weather.", b"\x01sea."}
    with peers.dial(zmq.DEALER) as leaving:
        leaving.send_multipart([b"", b"</3", struct.pack("=f", 1.0), b"station"])
        event(station, b"\x00sea.")


def test_the_broker_reconnects_to_a_publisher(peers: Peers) -> None:
    station = peers.context.socket(zmq.XPUB)
    station.setsockopt(zmq.RCVTIMEO, PATIENCE)
    port = station.bind_to_random_port("tcp://127.0.0.1")
    station.close(linger=0)
    assert dbp(peers, b"UwU", registration(str(port)))[0] == b"OwO"  # type: ignore[arg-type]
    for _ in range(2):
        station = peers.context.socket(zmq.XPUB)
        station.setsockopt(zmq.RCVTIMEO, PATIENCE)
        bind(station, port)
        event(station, b"\x01weather.")
        station.close(linger=0)


def bind(socket: "zmq.Socket[bytes]", port: int) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while True:  # the port of a socket that was just closed may be taken a moment longer
        try:
            socket.bind(f"tcp://127.0.0.1:{port}")
            return
        except zmq.ZMQError:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize(
    "change",
    [
        lambda port: {"interfaces": {"pub": {"ip": "192.0.2.1", "port": port}}},
        lambda port: {"topics": []},
        lambda port: {"topics": {"weather.": 1}},
        lambda port: {"interfaces": {"pub": {"ip": "127.0.0.1"}}},
    ],
)
def test_publishers_that_are_not_dialled(peers: Peers, change: Callable[[int], dict[str, object]]) -> None:
    """Only the address that registered, and only the port it names."""
    with peers.context.socket(zmq.XPUB) as station:
        port = station.bind_to_random_port("tcp://127.0.0.1")
        assert dbp(peers, b"UwU", registration(port, **change(port)))[0] == b"OwO"
        peers.broker.wait_until(
            lambda server: server.catalog_connections.version == server.broker.catalog.dialled_version
        )
        peers.broker.wait_until(lambda server: not server.catalog_connections._calls)


def test_a_broker_that_shuts_down_dials_no_publishers() -> None:
    """A service may register while the last requests finish; nothing would close the connection that the broker dials then."""
    info: dict[str, object] = {"name": "station", "topics": ["weather."], "interfaces": {"pub": {"port": 7}}}

    async def leave() -> set[str]:
        server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]))
        await server.start()
        await server.stop()
        server.broker.catalog.register(server.broker.now, "station", "127.0.0.1", info, 0.0)
        server.flush()
        return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}

    assert asyncio.run(leave()) == set()
