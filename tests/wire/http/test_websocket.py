"""WebSocket: the handshake, messages in any split, and frames that a client must not send."""

import struct

import pytest
from websockets.protocol import CLIENT, Protocol

from polydomo.limits import MAX_FRAMES
from polydomo.wire.http.head import HttpError, read_head
from polydomo.wire.http.websocket import WebSocket, accept_key

UPGRADE = (
    "GET /v1/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_handshake_of_the_rfc() -> None:
    assert accept_key(read_head(UPGRADE.encode())) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("GET", "POST", 426),
        ("Connection: Upgrade", "Connection: keep-alive", 426),
        ("websocket\r", "h2c\r", 426),
        ("Version: 13", "Version: 8", 426),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "!", 400),
    ],
)
def test_other_handshakes_are_rejected(old: str, new: str, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        accept_key(read_head(UPGRADE.replace(old, new).encode()))
    assert caught.value.status == status


class Peer:
    """A client's end, by the published library."""

    def __init__(self, **options: int) -> None:
        self.protocol = Protocol(CLIENT)
        self.server = WebSocket(**options)

    def data(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def close_code(self) -> int | None:
        self.protocol.receive_data(self.server.out())
        received = self.protocol.close_rcvd
        return received.code if received is not None else None


def test_messages_both_ways() -> None:
    peer = Peer()
    peer.protocol.send_text(b"h\xc3\xa4")
    peer.protocol.send_binary(b"\xff")
    assert peer.server.receive(peer.data()) == ["hä", b"\xff"]
    peer.server.send("text")
    peer.server.send_encoded(b"{}")
    peer.server.send(b"binary")
    peer.protocol.receive_data(peer.server.out())
    assert [bytes(frame.data) for frame in peer.protocol.events_received()] == [b"text", b"{}", b"binary"]  # type: ignore[union-attr]


def test_fragments_with_a_ping_between_in_any_split() -> None:
    peer = Peer()
    peer.protocol.send_text(b"one ", fin=False)
    peer.protocol.send_ping(b"?")
    peer.protocol.send_continuation(b"two", fin=True)
    data = peer.data()
    for at in range(1, len(data)):
        server = WebSocket()
        assert server.receive(data[:at]) + server.receive(data[at:]) == ["one two"]
        assert server.out().endswith(b"\x8a\x01?")  # the pong


def test_an_orderly_close() -> None:
    peer = Peer()
    peer.protocol.send_close(1000)
    peer.server.receive(peer.data())
    assert peer.close_code() == 1000 and peer.server.finished and peer.server.close_reason == ""


def masked(first: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes((first,)) + length + b"\0\0\0\0" + payload


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (1002, b"\x81\x01a"),  # not masked
        (1002, masked(0xC1, b"a")),  # a reserved bit
        (1002, masked(0x83, b"a")),  # a reserved opcode
        (1002, masked(0x80, b"a")),  # a continuation of nothing
        (1002, masked(0x01, b"a") + masked(0x81, b"b")),  # a message within a fragmented one
        (1002, masked(0x09, b"a")),  # a fragmented ping
        (1002, masked(0x89, b"a" * 126)),  # a long ping
        (1002, masked(0x88, b"a")),  # a close code of one byte
        (1002, masked(0x88, b"\x00\x00")),  # a close code that must not be sent
        (1007, masked(0x88, b"\x03\xe8\xff")),  # a close reason that is not UTF-8
        (1007, masked(0x81, b"\xff")),  # a text that is not UTF-8
        (1008, masked(0x01, b"a") + masked(0x00, b"") * MAX_FRAMES),  # fragments without end
        (1009, b"\x82\xff" + struct.pack(">Q", 2**40)),  # larger than the limit
        (1009, masked(0x02, b"a" * 600) + masked(0x80, b"a" * 600)),  # ... in fragments
    ],
)
def test_frame_abuse_ends_the_connection(code: int, data: bytes) -> None:
    peer = Peer(max_message=1024)
    assert peer.server.receive(data) == []
    assert peer.close_code() == code
    assert peer.server.finished
    assert peer.server.receive(masked(0x81, b"ignored")) == []
