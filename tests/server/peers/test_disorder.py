"""Peers that violate MDP: the broker continues to serve others, and logs the violation in one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Broker, Socket, Worker, wait_for

READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
MDPW01 = (b"", b"MDPW01")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("disorder")) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Socket]:
    """Another peer, which is served all the time."""
    with Worker(broker, "echo", "--name=echo"), Socket("DEALER", broker.url) as client:
        yield client


@pytest.fixture(autouse=True)
def others_are_served(client: Socket) -> Iterator[None]:
    yield
    assert client.call(b"echo", b"still there?") == [b"echo", b"still there?"]


def registered(client: Socket, service: bytes) -> bool:
    return client.call(b"mmi.service", service) == [b"200"]


def enrol(peer: Socket, client: Socket, service: bytes) -> None:
    peer.send(*MDPW01, READY, service)
    wait_for(lambda: registered(client, service), "registration")


@pytest.mark.parametrize("frames", [(b"", b"MDPC01", b"echo"), (b"MDPC02", b"\x01", b"echo")], ids=["mdp1", "mdp2"])
def test_a_request_without_a_body(broker: Broker, frames: tuple[bytes, ...]) -> None:
    with Socket("DEALER", broker.url) as peer:
        peer.send(*frames)
        assert peer.receive()[-2:] == [
            b"echo",
            b"",
        ]  # the worker's name, and the one empty frame that its protocol needs


def test_ready_twice(broker: Broker, client: Socket) -> None:
    with Socket("DEALER", broker.url) as peer:
        enrol(peer, client, b"twice")
        peer.send(*MDPW01, READY, b"twice")
        assert peer.receive() == [*MDPW01, DISCONNECT]
        assert broker.complaint(peer)["what"] == "READY twice"
        assert not registered(client, b"twice")


def test_a_reply_to_a_client_that_is_not_there(broker: Broker, client: Socket) -> None:
    with Socket("DEALER", broker.url) as peer:
        enrol(peer, client, b"liar")
        peer.send(*MDPW01, REPLY, b"nobody", b"", b"x")
        line = broker.complaint(peer)
        assert (line["message"], line["what"], line["attempt"]) == ("stale reply dropped", "final", "nobody")
        assert registered(client, b"liar")


def test_a_reply_to_another_workers_request_is_stale(broker: Broker, client: Socket) -> None:
    with Socket("DEALER", broker.url) as honest, Socket("DEALER", broker.url) as thief:
        enrol(honest, client, b"honest")
        enrol(thief, client, b"thief")
        with Socket("DEALER", broker.url) as asking:
            asking.send(b"", b"MDPC01", b"honest", b"x")
            *_, request, token, empty, body = honest.receive()
            assert (request, empty, body) == (REQUEST, b"", b"x")
            thief.send(*MDPW01, REPLY, token, b"", b"stolen")
            assert broker.complaint(thief)["attempt"] == token.decode()
            honest.send(*MDPW01, REPLY, token, b"", b"mine")
            assert asking.receive() == [b"", b"MDPC01", b"honest", b"mine"]
            honest.send(*MDPW01, REPLY, token, b"", b"again")
            assert broker.complaint(honest)["attempt"] == token.decode()
            assert asking.call(b"mmi.service", b"honest") == [b"200"]


def test_disconnect_while_busy_gives_the_request_back(broker: Broker, client: Socket) -> None:
    with Socket("DEALER", broker.url) as leaver, Socket("DEALER", broker.url) as asking:
        enrol(leaver, client, b"leave")
        asking.send(b"", b"MDPC01", b"leave", b"x")
        assert leaver.receive()[-1] == b"x"
        leaver.send(*MDPW01, DISCONNECT)
        broker.logged("request requeued", service="leave", why="DISCONNECT")
        with Worker(broker, "leave", "--name=next"):
            assert asking.receive() == [b"", b"MDPC01", b"leave", b"next", b"x"]


@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.anything", b"polydomo.status"])
def test_a_reserved_name_cannot_be_registered(broker: Broker, name: bytes) -> None:
    with Socket("DEALER", broker.url) as peer:
        peer.send(*MDPW01, READY, name)
        assert peer.receive() == [*MDPW01, DISCONNECT]
        assert broker.complaint(peer)["what"] == f"READY refused: the name {name.decode()!r} is reserved"


def test_mmi_answers(client: Socket) -> None:
    assert client.call(b"mmi.service", b"echo") == [b"200"]
    assert client.call(b"mmi.service", b"nobody") == [b"404"]
    assert client.call(b"mmi.everything", b"x") == [b"501"]


@pytest.mark.parametrize(
    "frames",
    [
        (HEARTBEAT,),
        (REPLY, b"client", b"", b"x"),
    ],
    ids=["HEARTBEAT", "REPLY"],
)
def test_a_command_before_ready_gets_disconnect(broker: Broker, frames: tuple[bytes, ...]) -> None:
    with Socket("DEALER", broker.url) as peer:
        peer.send(*MDPW01, *frames)
        assert peer.receive() == [*MDPW01, DISCONNECT]


def test_a_request_from_a_worker_gets_disconnect(broker: Broker, client: Socket) -> None:
    with Socket("DEALER", broker.url) as peer:
        enrol(peer, client, b"confused")
        peer.send(*MDPW01, REQUEST, b"client", b"", b"x")
        assert peer.receive() == [*MDPW01, DISCONNECT]
        assert broker.complaint(peer)["what"] == "REQUEST from a worker"


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ((b"", b"MDPW01", b"\x09"), "worker command"),
        ((b"", b"MDPW01", READY), "worker command"),
        ((b"", b"MDPW01", READY, b"a", b"b"), "worker command"),
        ((b"", b"MDPC01"), "unknown protocol"),
        ((b"hello",), "unknown protocol"),
        ((b"MDPC02", b"\x07", b"echo", b"x"), "client command"),
        ((b"", b"MDPW01", READY, b"s" * 300), ""),
    ],
    ids=["command", "no-service", "two-services", "no-command", "no-protocol", "client-command", "long-name"],
)
def test_an_invalid_message_ends_the_connection(broker: Broker, frames: tuple[bytes, ...], why: str) -> None:
    with Socket("DEALER", broker.url) as peer:
        peer.send(*frames)
        broker.wait_until(lambda: bool(broker.complaints(peer)), "complaint")
        line = broker.complaints(peer)[0]  # libzmq connects again, but does not repeat itself
        assert why in line.get("why", "") + line.get("what", "")


def test_two_peers_may_use_the_same_identity(broker: Broker) -> None:
    """Replies go to the connection that sent the request, for any identity."""
    with (
        Socket("DEALER", broker.url, "--identity=same") as one,
        Socket("DEALER", broker.url, "--identity=same") as two,
    ):
        for number in range(10):
            one.send(b"", b"MDPC01", b"echo", b"one", b"%d" % number)
            two.send(b"", b"MDPC01", b"echo", b"two", b"%d" % number)
        for peer, name in ((one, b"one"), (two, b"two")):
            assert [peer.receive()[4:] for _ in range(10)] == [[name, b"%d" % number] for number in range(10)]


@pytest.mark.real_time
def test_pings_of_libzmq_do_no_harm(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--beat=0.5", "--beats-missed=1000") as broker,
        Socket("DEALER", broker.url, "--pings=20", "--ping-timeout=20000") as peer,
    ):
        peer.send(*MDPW01, READY, b"pinged")
        for _ in range(9):  # that PONG comes is tested in test_garbage.py; libzmq would be too patient to tell
            assert peer.receive() == [*MDPW01, HEARTBEAT]
        assert not broker.complained()


def test_a_silent_client_is_not_disconnected(broker: Broker) -> None:
    with Socket("DEALER", broker.url) as peer:
        peer.send(b"", b"MDPC01", b"nobody-offers-this", b"x")
        wait_for(
            lambda: [row["service"] for row in broker.ask("requests")] == ["nobody-offers-this"], "the waiting request"
        )
        assert peer.end() == 0
    wait_for(lambda: not broker.ask("requests"), "its end with the client")
