"""Invalid bytes of every kind: each affects only the connection that sent it, with one log line that names the problem."""

import random
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from polydomo.limits import LOG_LINES, MAX_FRAMES
from polydomo.wire import frames
from tests.server.harness import Broker, Socket, Worker, wait_for
from tests.server.raw import NULL, SIGNATURE, Raw, dealer, own_host, raw, ready

HANDSHAKE_TIME = 1.0
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("garbage"), limits={"HANDSHAKE_TIME": 60.0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that ends a handshake after a second. No peer of it needs to complete one."""
    with Broker(tmp_path_factory.mktemp("hasty"), limits={"HANDSHAKE_TIME": HANDSHAKE_TIME}) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Socket]:
    """Another peer, which is served all the time."""
    with Worker(broker, "echo", "--name=echo"), Socket("DEALER", broker.url) as client:
        yield client


@pytest.fixture(autouse=True)
def others_are_served(broker: Broker, client: Socket) -> Iterator[None]:
    yield
    assert client.call(b"echo", b"still there?") == [b"echo", b"still there?"]
    # nothing is left of the others: the worker, the client and the one that asks
    wait_for(lambda: broker.ask("status")["connections"] == 3, "the end of the connection")


def words(value: object) -> str:
    """A test's name: what the log will say."""
    return value if isinstance(value, str) else ""


def long_frame(size: int, flags: int = 2) -> bytes:
    return bytes((flags,)) + struct.pack(">Q", size)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TLS_HELLO, "TLS is not enabled; set server.tls in the access file"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "unknown protocol (expected ZMTP, SP or HTTP): first bytes 53 53 48 2d"),
        (b"\x00SQ\x00", "unknown protocol (expected ZMTP, SP or HTTP): first bytes 00 53 51 00"),
        (b"\x05MDPC01", "unknown protocol"),
        (bytes(8), "unknown protocol"),
    ],
    ids=["TLS", "SSH", "nearly-SP", "frames", "zeros"],
)
def test_another_protocol_is_turned_away(broker: Broker, data: bytes, why: str) -> None:
    with raw(broker.address) as peer:
        peer.write(data)
        answer = peer.closed()
        line = broker.complaint(peer)
        assert line["message"] == "connection refused"
        assert why in line["why"]
        assert answer[:1] == (b"\x15" if "TLS" in why else b"")  # an alert, which is what a TLS client understands


@pytest.mark.parametrize("split", [1, 2, 3])
def test_the_wire_protocol_is_detected_from_bytes_that_arrive_one_by_one(broker: Broker, split: int) -> None:
    with raw(broker.address) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, 6, split):
            send_all(peer, TLS_HELLO[start : start + split])
        peer.closed()
        assert broker.complaint(peer)["why"] == "TLS is not enabled; set server.tls in the access file"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (SIGNATURE[:9] + b"\x00", "ZMTP 1.0 is not supported"),
        (b"\xff" + bytes(8) + b"\x7e\x03", "ZMTP 1.0 is not supported"),
        (SIGNATURE + b"\x00", "ZMTP 1.0 is not supported"),
        (SIGNATURE + b"\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32), "uses mechanism 'PLAIN'"),
        (SIGNATURE + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32), "uses mechanism 'CURVE'"),
        (SIGNATURE + b"\x03\x00" + bytes(52), "uses mechanism ''"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x00\x05hello", "message before the handshake was done"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x04\x06\x05HELLO", "command b'HELLO' in the NULL handshake"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x04\x00", "command without a name"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x04\x09\x05READY\x05ab", "metadata ends inside a property"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x04\x0c\x05READY\x01a\xff\xff\xff\xff", "metadata value longer"),
        (SIGNATURE + b"\x03\x01" + NULL + ready(b"REP"), "socket type 'REP' cannot talk to a broker"),
        (SIGNATURE + b"\x03\x01" + NULL + ready(b"\xff\x00"), "cannot talk to a broker"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x06" + struct.pack(">Q", 1 << 32), "handshake command longer than"),
        (SIGNATURE + b"\x03\x01" + NULL + b"\x06" + struct.pack(">Q", (1 << 64) - 1), "handshake command longer than"),
        (SIGNATURE + b"\x01\x05\x07\x00", "ZMTP 2.0 identity is not a short final frame"),
        (SIGNATURE + b"\x01\x77", "unknown ZMTP 2.0 socket type 119"),
    ],
    ids=words,
)
def test_a_handshake_gone_wrong(broker: Broker, data: bytes, why: str) -> None:
    with raw(broker.address) as peer:
        peer.write(data)
        peer.closed()
        line = broker.complaint(peer)
        assert line["protocol"] == "zmtp"
        assert why in line["why"]


@pytest.mark.parametrize("data", [b"", b"\xff", b"G", b"\x00SP", SIGNATURE, SIGNATURE + b"\x03\x01" + NULL, b"\x16"])
def test_a_handshake_that_does_not_end_is_ended(hasty: Broker, data: bytes) -> None:
    with raw(hasty.address) as peer:
        if data:
            peer.write(data)
        peer.closed()
        assert hasty.complaint(peer)["message"] == "handshake timed out"


def test_a_handshake_that_trickles_is_ended(hasty: Broker) -> None:
    whole = SIGNATURE + b"\x03\x01" + NULL + ready(b"DEALER")
    with raw(hasty.address) as peer:
        peer.socket.settimeout(HANDSHAKE_TIME / 20)
        assert not all(trickle(peer, byte) for byte in whole)
        assert hasty.complaint(peer)["message"] == "handshake timed out"


def trickle(peer: Raw, byte: int) -> bool:
    """Writes a byte, and waits a little for the end of the connection. False: that has come."""
    try:
        peer.write(bytes((byte,)))
        while peer.socket.recv(1000):
            pass
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


def test_a_handshake_byte_by_byte_is_fine(broker: Broker) -> None:
    with raw(broker.address) as peer:
        for byte in SIGNATURE + b"\x03\x01" + NULL + ready(b"DEALER"):
            peer.write(bytes((byte,)))
        peer.read(64)
        peer.read(peer.read(2)[1])
        peer.send(b"", b"MDPC01", b"echo", b"x")
        assert peer.receive()[3:] == [b"echo", b"x"]


def test_a_handshake_in_one_piece_with_its_first_request_is_fine(broker: Broker) -> None:
    with raw(broker.address) as peer:
        request = b"\x01\x00\x01\x06MDPC01\x01\x04echo\x00\x01x"
        peer.write(SIGNATURE + b"\x03\x01" + NULL + ready(b"DEALER") + request)
        peer.read(64)
        peer.read(peer.read(2)[1])
        assert peer.receive()[3:] == [b"echo", b"x"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (long_frame(1 << 32), "frame of 4294967296 bytes, the limit is 67108864"),
        (long_frame((1 << 64) - 1), "frame of 18446744073709551615 bytes"),
        (long_frame((64 << 20) + 1), "frame of 67108865 bytes"),
        (b"\x01\x00" * 1_000_000, f"message of more than {MAX_FRAMES} frames"),
        (b"\x01\x00" + long_frame(1 << 32, 3), "frame of 4294967296 bytes"),
        (b"\x08\x00", "frame flags 0x08"),
        (b"\xff" * 100, "frame flags 0xff"),
        (b"\x05\x00", "frame flags 0x05"),
        (b"\x01\x00\x04\x06\x05OTHER", "command inside a message"),
        (ready(b"DEALER"), "READY twice"),
        (b"\x04\x0a\x05ERROR\x03bad", "peer reports an error: 'bad'"),
        (b"\x06" + struct.pack(">Q", 1 << 40), "command of 1099511627785 bytes"),
        (b"\x04\x19\x04PING\x00\x01" + bytes(18), "PING with a context over 16 bytes"),
        (b"\x00\x05hello", "unknown protocol: the first message has the frames [b'hello']"),
        (b"\x00\x00", "unknown protocol: the first message has the frames [b'']"),
        (b"\x01\x00\x00\x00", "unknown protocol: the first message has the frames [b'', b'']"),
        (b"\x01\x06MDPC09\x00\x01x", "unknown protocol: the first message has the frames [b'MDPC09'"),
    ],
    ids=words,
)
def test_traffic_gone_wrong(broker: Broker, data: bytes, why: str) -> None:
    with dealer(broker.address) as peer:
        try:
            peer.write(data)
        except ConnectionError:
            pass  # it was closed before all of it was written
        peer.closed()
        assert why in broker.complaint(peer)["why"]


def test_a_message_that_never_ends_is_bounded(broker: Broker) -> None:
    """1,000 frames that may each be of 64 MiB: it is over when their sum is."""
    before = broker.memory()
    with dealer(broker.address) as peer:
        part = long_frame(1 << 20, 3) + bytes(1 << 20)
        for _ in range(100):
            send_all(peer, part)
        assert "the limit is 67108864" in broker.complaint(peer)["why"]
    assert broker.memory("VmHWM") - before < 160 << 20


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(hasty: Broker, seed: int) -> None:
    data = random.Random(seed).randbytes(2000)
    with raw(hasty.address) as peer:
        send_all(peer, data)
        peer.closed()
        assert hasty.complaint(peer)["message"] in ("connection refused", "handshake timed out")


@pytest.mark.parametrize(
    "seeds", [range(1000), pytest.param(range(1000, 100_000), marks=pytest.mark.long)], ids=["short", "long"]
)
def test_random_messages(broker: Broker, seeds: range) -> None:
    """Nothing of them may be left after the connection is closed: see ``others_are_served``."""
    for seed in seeds:
        babble(broker, random.Random(seed))


HEADS = [
    b"",
    b"MDPC01",
    b"MDPW01",
    b"MDPC02",
    b"MDPW02",
    b"MDXC01",
    b"MDXW01",
    b"DGBX\x01",
    b"eMQP/1.0",
    b"u_U",
    b"UwU",
]


def babble(broker: Broker, chance: random.Random) -> None:
    """A peer that sends frames of no sense, some behind a beginning that has some."""
    with dealer(broker.address) as peer:
        for _ in range(chance.randrange(1, 20)):
            parts = [chance.choice(HEADS) for _ in range(chance.randrange(3))]
            parts += [chance.randbytes(chance.choice((0, 1, 1, 1, 4, 12, 30, 300))) for _ in range(chance.randrange(6))]
            send_all(peer, frames.join(parts or [b""]))
        size = chance.randrange(300)
        send_all(peer, bytes((chance.choice((0, 0, 1, 1, 2, 3, 4)), min(size, 255))) + chance.randbytes(size))


def send_all(peer: Raw, data: bytes) -> None:
    try:
        peer.write(data)
    except ConnectionError:
        pass  # closed before all of it was written


def test_an_unfinished_message_is_gone_with_its_connection(broker: Broker) -> None:
    with dealer(broker.address) as peer:
        peer.write(b"\x01\x00\x01\x06MDPC01\x01\x04echo" + long_frame(10 << 20) + bytes(5 << 20))
    # no complaint: peers may leave at any time


def test_ping_is_answered_with_its_context(broker: Broker) -> None:
    with dealer(broker.address) as peer:
        peer.write(b"\x04\x0b\x04PING\x00\x0aabcd")
        assert peer.read(11) == b"\x04\x09\x04PONGabcd"


@pytest.mark.parametrize("size", [2000, 100_000])
def test_a_flood_of_bad_connections_does_not_flood_the_log(broker: Broker, size: int) -> None:
    before, start = len(broker.complained()), time.monotonic()
    host = own_host()

    def burst() -> bool:
        """All at once: a slow machine would close few enough in a second, if each waited for the one before."""
        others = [Raw(broker.address, host=host) for _ in range(50)]
        for other in others:
            send_all(other, b"nonsense" * (size // 8))
        for other in others:
            other.closed()
            other.close()
        return any("more like it" in line["message"] for line in broker.complained()[before:])

    wait_for(burst, "the summary")
    assert len(broker.complained()) - before <= (LOG_LINES + 1) * (time.monotonic() - start + 2)
