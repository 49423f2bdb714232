"""CURVE's MESSAGE commands: frames are decrypted unchanged, and changed or repeated frames are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolViolation
from polydomo.wire import frames
from polydomo.wire.security.curve_traffic import OVERHEAD, CurveTraffic
from polydomo.wire.security.mechanism import command
from tests.wire.security.curve_rig import World

KEY = bytes(range(32))
message = st.lists(
    st.binary(max_size=300) | st.sampled_from([bytes(222), bytes(223), bytes(255), bytes(256)]), min_size=1
)


def pair(max_frame: int = 1 << 20) -> tuple[CurveTraffic, CurveTraffic]:
    return CurveTraffic(KEY, True, 1, 2, max_frame), CurveTraffic(KEY, False, 2, 1, max_frame)


def test_both_ends_of_a_handshake_understand_each_other() -> None:
    server, client = World().shaken()
    plain = frames.join([b"", b"MDPC01", b"echo", b"hello"])
    assert server.decode(b"".join(map(bytes, client.encode([plain])))) == plain
    assert client.decode(b"".join(map(bytes, server.encode([plain[:7], plain[7:]])))) == plain


@given(st.lists(message, min_size=1, max_size=5), st.integers(1, 700))
def test_frames_come_back_in_any_split(messages: list[list[bytes]], step: int) -> None:
    server, client = pair()
    plain = b"".join(frames.join(one) for one in messages) + command(b"PING", b"\x00\x00hello")
    sealed = client.seal(plain)
    opened = b"".join(server.open(sealed[i : i + step]) for i in range(0, len(sealed), step))
    assert opened == plain
    back = server.seal(plain)
    assert client.open(back) == plain and back != sealed


def test_each_frame_is_a_box_of_its_own() -> None:
    _, client = pair()
    sealed = client.seal(frames.join([b"ab", b"c"]))
    assert sealed[:2] == bytes((0, OVERHEAD + 2)) and sealed[2:10] == b"\x07MESSAGE"
    assert len(sealed) == 2 * (2 + OVERHEAD) + 3
    assert [sealed[10:18], sealed[10 + 37 : 18 + 37]] == [(3).to_bytes(8, "big"), (4).to_bytes(8, "big")]


def test_the_same_message_twice_is_sealed_in_two_ways() -> None:
    _, client = pair()
    assert client.seal(b"\x00\x02ab") != client.seal(b"\x00\x02ab")


def test_a_replayed_message_is_refused() -> None:
    server, client = pair()
    first, second = client.seal(b"\x00\x02ab"), client.seal(b"\x00\x02cd")
    assert server.open(second) == b"\x00\x02cd"
    for replayed in (second, first):
        with pytest.raises(ProtocolViolation, match="nonce"):
            server.open(replayed)


def test_a_message_sent_back_to_its_sender_is_refused() -> None:
    _, client = pair()
    with pytest.raises(ProtocolViolation):
        client.open(client.seal(b"\x00\x02ab"))


@given(st.integers(0, 60), st.integers(1, 255))
def test_a_changed_message_is_refused(place: int, by: int) -> None:
    server, client = pair(max_frame=200)
    sealed = bytearray(client.seal(b"\x00\x1a" + bytes(26)))
    assert len(sealed) == 61
    sealed[place] ^= by
    try:
        assert server.open(bytes(sealed)) == b"", "a greater length: the rest has not come"
    except ProtocolViolation:
        return
    # A frame said to be longer waits for the rest; MESSAGE may come as a command frame.
    assert place == 1 or (place == 0 and by & 2)


def test_message_as_a_command_frame_is_taken() -> None:
    server, client = pair()
    sealed = client.seal(b"\x01\x02ab")
    assert server.open(b"\x04" + sealed[1:]) == b"\x01\x02ab"


@pytest.mark.parametrize("flags", [1, 3, 5, 8, 0x80, 0xFF])
def test_other_flags_outside_the_box_are_refused(flags: int) -> None:
    server, client = pair()
    with pytest.raises(ProtocolViolation, match="flags"):
        server.open(bytes((flags,)) + client.seal(b"\x00\x02ab")[1:] + bytes(8))


def test_a_frame_over_the_limit_is_refused_before_it_is_held() -> None:
    server, client = pair(max_frame=1000)
    limit = client.seal(b"\x02" + (1000).to_bytes(8, "big") + bytes(1000))
    assert len(server.open(limit)) == 1009
    sealed = client.seal(b"\x02" + (1001).to_bytes(8, "big") + bytes(1001))
    with pytest.raises(ProtocolViolation, match=r"limits\.max_message"):
        server.open(sealed[:9])


def test_a_plain_frame_is_refused() -> None:
    for plain in (b"\x00\x02ab", b"\x00\x28" + bytes(40), command(b"READY", bytes(40))):
        server, _ = pair()
        with pytest.raises(ProtocolViolation, match="MESSAGE"):
            server.open(plain)


def test_only_whole_frames_can_be_sealed() -> None:
    server, _ = pair()
    with pytest.raises(ValueError):
        server.seal(b"\x00\x05ab")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_violation_or_unfinished(data: bytes) -> None:
    server, _ = pair()
    try:
        assert server.open(data) == b""
    except ProtocolViolation:
        pass


def test_a_long_frame_in_small_pieces_is_not_copied_again_and_again() -> None:
    server, client = pair(max_frame=8 << 20)
    size = 4 << 20
    sealed = client.seal(b"\x02" + size.to_bytes(8, "big") + bytes(size))
    pieces = [server.open(sealed[i : i + 4096]) for i in range(0, len(sealed), 4096)]
    assert [len(piece) for piece in pieces if piece] == [9 + size]
