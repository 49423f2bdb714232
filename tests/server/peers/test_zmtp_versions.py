"""Old and new ZMTP: 2.0 as libzmq 3.x and JeroMQ 0.3 speak it, 3.0, and 3.1."""

from collections.abc import Iterator

import pytest

from tests.server.harness import Broker, Socket, Worker
from tests.server.raw import NULL, SIGNATURE, Raw, dealer, raw, ready

DEALER_2, REQ_2, PUB_2, SUB_2, REP_2 = 5, 3, 1, 2, 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("versions")) as broker, Worker(broker, "echo"):
        yield broker


def shake_2(peer: Raw, number: int, ours: int, identity: bytes = b"") -> None:
    """As libzmq 3.x does it: the signature, and then nothing until the other has said its version."""
    peer.write(SIGNATURE)
    assert peer.read(11) == SIGNATURE + b"\x03"
    peer.write(bytes((1, number)))
    assert peer.read(3) == bytes((ours, 0, 0))
    peer.write(bytes((0, len(identity))) + identity)


@pytest.mark.parametrize("identity", [b"", b"me"])
def test_a_dealer_of_zmtp_2(broker: Broker, identity: bytes) -> None:
    with raw(broker.address) as peer:
        shake_2(peer, DEALER_2, 6, identity)
        for body in (b"x", b"", b"y" * 300, b"z" * 100_000):
            assert peer.call(b"echo", body) == [b"worker", body]


def test_a_req_of_zmtp_2(broker: Broker) -> None:
    with raw(broker.address) as peer:
        shake_2(peer, REQ_2, 6)
        assert peer.call(b"echo", b"x") == [b"worker", b"x"]


def test_a_worker_of_zmtp_2(broker: Broker) -> None:
    with raw(broker.address) as worker, Socket("DEALER", broker.url) as client:
        shake_2(worker, DEALER_2, 6)
        worker.send(b"", b"MDPW01", b"\x01", b"old")
        client.send(b"", b"MDPC01", b"old", b"x")
        *_, token, empty, body = worker.receive()
        assert (empty, body) == (b"", b"x")
        worker.send(b"", b"MDPW01", b"\x03", token, b"", b"y")
        assert client.receive()[2:] == [b"old", b"y"]


def test_everything_at_once_from_zmtp_2(broker: Broker) -> None:
    with raw(broker.address) as peer:
        peer.write(SIGNATURE + b"\x01\x05\x00\x00\x01\x00\x01\x06MDPC01\x01\x04echo\x00\x01x")
        assert peer.read(14) == SIGNATURE + b"\x03\x06\x00\x00"
        assert peer.receive()[3:] == [b"worker", b"x"]


def test_commands_are_not_allowed_in_zmtp_2(broker: Broker) -> None:
    with raw(broker.address) as peer:
        shake_2(peer, DEALER_2, 6)
        peer.write(b"\x04\x07\x04PING\x00\x00")
        peer.closed()
        assert "frame flags 0x04" in broker.complaint(peer)["why"]


def test_a_socket_of_zmtp_2_that_cannot_talk_to_a_broker(broker: Broker) -> None:
    with raw(broker.address) as peer:
        peer.write(SIGNATURE + bytes((1, REP_2)))
        peer.closed()
        assert "'REP' cannot talk to a broker" in broker.complaint(peer)["why"]


@pytest.mark.parametrize("minor", [0, 1, 7])
def test_zmtp_3_of_any_minor(broker: Broker, minor: int) -> None:
    with dealer(broker.address, minor=minor) as peer:
        assert peer.call(b"echo", b"x") == [b"worker", b"x"]


def test_an_unknown_version(broker: Broker) -> None:
    """ "A peer MUST accept higher protocol versions as valid." """
    with raw(broker.address) as peer:
        peer.write(SIGNATURE + b"\x04\x02" + NULL + ready(b"DEALER"))
        peer.read(64)
        peer.read(peer.read(2)[1])
        assert peer.call(b"echo", b"x") == [b"worker", b"x"]


@pytest.mark.parametrize("how", ["2.0", "3.0", "3.1"])
def test_subscriptions_of_each_version(broker: Broker, how: str) -> None:
    topic = f"news-{how}".encode()
    with raw(broker.address) as reader, raw(broker.address) as writer:
        if how == "2.0":
            shake_2(reader, SUB_2, 9)
            shake_2(writer, PUB_2, 10)
        else:
            reader.shake(b"SUB", minor=int(how[2]))
            writer.shake(b"PUB", minor=int(how[2]))
        if how == "3.1":
            reader.write(b"\x04" + bytes((10 + len(topic),)) + b"\x09SUBSCRIBE" + topic)
            assert writer.read(12) == b"\x04\x0a\x09SUBSCRIBE"
        else:
            reader.send(b"\x01" + topic)
            assert writer.receive() == [b"\x01"]
        # what the reader has asked for is known before the writer's message comes: both are asked about first
        while not any(row["protocol"] == "sub" for row in broker.ask("clients")):
            pass
        writer.send(b"other", b"no")
        writer.send(topic, b"yes", b"")
        assert reader.receive() == [topic, b"yes", b""]
