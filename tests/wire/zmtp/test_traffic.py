"""ZMTP traffic: commands, bounds, long messages without needless copying, pausing and closing in the middle."""

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo import limits
from polydomo.wire.frames import frame, head, join
from polydomo.wire.link import PAUSE_AT_LIMIT, PAUSE_NOT_READING, Bounds, Hub, LinkHandler
from polydomo.wire.security.mechanism import command
from polydomo.wire.zmtp import link as zmtp
from polydomo.wire.zmtp.link import ZmtpLink
from tests.wire.zmtp.rig import GREETING_30, GREETING_31, converse, dialer, in_traffic, listener, ready, taken

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL = Bounds(max_frame=2000, max_frames=8, max_message=5000, max_handshake=500)
KIB, MIB = limits.KIB, limits.MIB


def long_head(size: int, more: bool) -> bytes:
    return bytes((3 if more else 2,)) + size.to_bytes(8, "big")


def why(link: ZmtpLink) -> str:
    assert link.closing is not None
    return link.closing.removeprefix("protocol violation: ")


def kept(link: ZmtpLink) -> int:
    """How many bytes of unfinished messages the link holds."""
    return len(link._rest) + (0 if link._gather is None else len(link._gather.getbuffer()))


# --- commands between messages


def test_ping_is_answered_with_its_context() -> None:
    link, log = in_traffic()
    link.receive(command(b"PING", b"\x00\x0a"))
    assert taken(link) == command(b"PONG")
    link.receive(join([b"a"]) + command(b"PING", b"\x00\x0asixteen bytes...") + join([b"b"]))
    assert taken(link) == command(b"PONG", b"sixteen bytes...")
    assert log.messages == [join([b"a"]), join([b"b"])]
    link.receive(command(b"PONG", b"whatever") + command(b"FUTURE", b"unknown commands are ignored"))
    assert link.closing is None and taken(link) == b""


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x0aseventeen bytes.."])
def test_a_ping_out_of_shape(content: bytes) -> None:
    link, _ = in_traffic()
    link.receive(command(b"PING", content))
    assert "PING" in why(link)


def test_we_can_ping() -> None:
    (server, _), (client, _) = listener(), dialer()
    converse(server, client)
    client.ping(2.5, b"ctx")
    said = taken(client)
    assert said == command(b"PING", b"\x00\x19ctx")
    server.receive(said)
    assert taken(server) == command(b"PONG", b"ctx")
    old, _ = listener()
    old.receive(GREETING_30 + ready())
    taken(old)
    old.ping()
    assert taken(old) == b"", "ZMTP 3.0 has no PING"


def test_subscribe_and_cancel_reach_the_handler_in_order() -> None:
    link, log = in_traffic(socket_type=b"SUB")
    stream = (
        command(b"SUBSCRIBE", b"a") + join([b"\x01b"]) + command(b"CANCEL", b"a") + command(b"SUBSCRIBE", b"x" * 300)
    )
    for cut in range(len(stream)):
        log.events.clear()
        link.receive(stream[:cut])
        link.receive(stream[cut:])
        assert log.events == [(b"SUBSCRIBE", b"a"), join([b"\x01b"]), (b"CANCEL", b"a"), (b"SUBSCRIBE", b"x" * 300)]


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (command(b"ERROR", b"\x05ouch!"), "ouch!"),
        (command(b"READY", b""), "READY twice"),
        (b"\x05\x05\x04PING", "frame flags 0x05"),  # "a command is always one frame"
        (b"\x08\x00", "frame flags 0x08"),
        (b"\x80\x00", "frame flags 0x80"),
        (b"\x0c\x00", "frame flags 0x0c"),
        (frame(b"a", True) + b"\x10\x00", "frame flags 0x10"),
        (frame(b"a", True) + command(b"PING", b"\x00\x00"), "command inside a message"),
        (frame(b"a", True) + command(b"PING", bytes(300)), "command inside a message"),
        (frame(bytes(5000), True) + command(b"PING", b"\x00\x00"), "command inside a message"),
        (frame(bytes(5000), True) + b"\x20\x00", "frame flags 0x20"),
        (command(b"SUBSCRIBE", bytes(limits.MAX_HANDSHAKE)), "the limit is"),
        (b"\x06" + (2**64 - 1).to_bytes(8, "big"), "the limit is"),
    ],
)
def test_input_that_closes_the_connection(said: bytes, word: str) -> None:
    link, log = in_traffic()
    link.receive(join([b"before"]) + said + join([b"after"]))
    assert word in why(link)
    assert log.messages == [join([b"before"])]
    for cut in range(1, len(said), max(1, len(said) // 50)):
        other, heard = in_traffic()
        other.receive(join([b"before"]) + said[:cut])
        other.receive(said[cut:])
        other.receive(join([b"after"]))
        assert word in why(other), f"split at {cut}"
        assert heard.messages == [join([b"before"])]


def test_a_command_that_closes_stops_what_follows() -> None:
    link, log = in_traffic(socket_type=b"SUB")
    log.close_after = 1
    link.receive(command(b"SUBSCRIBE", b"a") + command(b"SUBSCRIBE", b"b") + join([b"c"]))
    assert log.events == ["open", (b"SUBSCRIBE", b"a")]


# --- bounds


@pytest.mark.parametrize("length", [2001, 4 * 1024 * MIB, 2**63, 2**64 - 1])
def test_a_frame_over_the_limit_is_refused_before_its_body(length: int) -> None:
    for lead in (b"", frame(b"first", True), frame(bytes(1900), True)):
        link, log = in_traffic(SMALL)
        link.receive(lead)
        link.receive(long_head(length, False)[:5])
        assert link.closing is None
        link.receive(long_head(length, False)[5:])
        assert f"{length} bytes" in why(link) or "message of over" in why(link)
        assert log.messages == [] and kept(link) <= len(lead) + 9


def test_exactly_at_the_bounds_is_allowed() -> None:
    whole = [bytes(1000)] * 4 + [bytes(5000 - 4 * 1009 - 3 * 2 - 9), b"", b"", b""]
    message = join(whole)
    assert len(message) == 5000 and len(whole) == 8
    for step in (1, 7, 1000, 5000):
        link, log = in_traffic(SMALL)
        for i in range(0, 5000, step):
            link.receive(message[i : i + step])
        assert log.messages == [message] and link.closing is None
    over = join([*whole[:4], whole[4] + b"x", b"", b"", b""])
    for step in (1, 7, 1000, 5001):
        link, log = in_traffic(SMALL)
        for i in range(0, len(over), step):
            link.receive(over[i : i + step])
        assert "the limit is 5000" in why(link) and log.messages == []


@pytest.mark.parametrize("step", [1, 2, 3, 64 * KIB])
def test_a_message_of_a_million_frames_closes_the_connection(step: int) -> None:
    link, log = in_traffic()
    data = b"\x01\x00" * 1_000_000
    most = 0
    for i in range(0, len(data), step):
        link.receive(data[i : i + step])
        most = max(most, kept(link))
        if link.closing is not None:
            break
    assert why(link) == f"message of more than {limits.MAX_FRAMES} frames"
    assert i <= 2 * limits.MAX_FRAMES
    assert most <= 2 * limits.MAX_FRAMES and log.messages == []


@pytest.mark.parametrize("size", [10, 100, 1900])
def test_an_endless_message_closes_the_connection(size: int) -> None:
    bounds = Bounds(max_frame=2000, max_frames=100_000, max_message=50_000)
    link, log = in_traffic(bounds)
    most = 0
    for _ in range(100_000):
        link.receive(frame(bytes(size), True))
        if link.closing is not None:
            break
        most = max(most, kept(link))
    assert "the limit is 50000" in why(link)
    assert most <= 50_000 and log.messages == []


def test_input_of_a_closing_connection_is_discarded() -> None:
    link, log = in_traffic(SMALL)
    link.receive(b"\xff\xff")
    assert link.closing is not None
    for _ in range(10):
        link.receive(bytes(1000))
    assert kept(link) == 0 and log.messages == []


def test_a_promised_length_takes_no_memory() -> None:
    link, _ = in_traffic()
    link.receive(long_head(limits.MAX_FRAME - 100, False) + bytes(100))
    assert kept(link) == 109 and link.closing is None


# --- long messages


class Counted(io.BytesIO):
    """Counts the bytes that are copied."""

    written = 0
    taken = 0

    def write(self, data: "Buffer") -> int:
        size = super().write(data)
        Counted.written += size
        return size

    def getvalue(self) -> bytes:
        value = super().getvalue()
        Counted.taken += len(value)
        return value


@pytest.mark.parametrize("frames", [1, 8, 200])
def test_a_long_message_is_copied_once_in_and_once_out(frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB in pieces of 1 KiB: were they concatenated, 32 GiB would have to be copied."""
    monkeypatch.setattr(zmtp, "BytesIO", Counted)
    Counted.written = Counted.taken = 0
    part = bytes(8 * MIB // frames)
    message = join([part] * frames)
    link, log = in_traffic()
    for i in range(0, len(message), KIB):
        link.receive(message[i : i + KIB])
        assert len(link._rest) <= zmtp.GATHER + KIB
    assert log.messages == [message]
    assert Counted.written <= len(message)
    assert Counted.taken <= len(message)
    assert kept(link) == 0


@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, 255, 256, 4000, 4095, 4096, 4097, 9000]), min_size=1, max_size=5), max_size=4
    ),
    st.lists(st.integers(1, 6000), min_size=1, max_size=5),
)
@settings(max_examples=60)
def test_long_messages_in_any_split(sizes: list[list[int]], steps: list[int]) -> None:
    messages = [join([bytes((i,)) * size for i, size in enumerate(frames)]) for frames in sizes]
    stream = b"".join(messages) + join([b"end"])
    link, log = in_traffic()
    position = turn = 0
    while position < len(stream):
        step = steps[turn % len(steps)]
        link.receive(stream[position : position + step])
        position += step
        turn += 1
    assert log.messages == [*messages, join([b"end"])] and kept(link) == 0


def test_frames_in_long_form_pass_as_they_came() -> None:
    link, log = in_traffic()
    message = long_head(0, True) + long_head(3, False) + b"abc"
    for cut in range(1, len(message)):
        link.receive(message[:cut])
        link.receive(message[cut:])
    assert log.messages == [message] * (len(message) - 1)


# --- pausing and closing in the middle


@given(st.integers(0, 6), st.lists(st.integers(1, 5000), min_size=1, max_size=6), st.booleans())
@settings(max_examples=60)
def test_pause_keeps_input_and_resume_continues_exactly(after: int, steps: list[int], long: bool) -> None:
    messages = [join([b"%d" % i, bytes(9000 if long and i % 2 else 10)]) for i in range(6)]
    stream = b"".join(messages)
    link, log = in_traffic()
    log.pause_after = after
    if after == 0:
        link.pause(PAUSE_AT_LIMIT)
    position = turn = 0
    while position < len(stream):
        step = steps[turn % len(steps)]
        link.receive(stream[position : position + step])
        position += step
        turn += 1
        if after < 6:
            assert len(log.messages) <= after, "not one message more than before the pause"
    assert log.messages == messages[: after if after < 6 else 6]
    link.resume(PAUSE_AT_LIMIT)
    assert (link in link.hub.resumed) == (after <= 6)
    link.receive(b"")
    assert log.messages == messages and link.closing is None and kept(link) == 0


def test_two_reasons_of_a_pause_are_cleared_separately() -> None:
    link, log = in_traffic()
    link.pause(PAUSE_AT_LIMIT)
    link.pause(PAUSE_NOT_READING)
    link.receive(join([b"a"]))
    link.resume(PAUSE_AT_LIMIT)
    link.receive(b"")
    assert log.messages == [] and link.hub.resumed == []
    link.resume(PAUSE_NOT_READING)
    assert link.hub.resumed == [link]
    link.receive(b"")
    assert log.messages == [join([b"a"])]
    link.resume(PAUSE_NOT_READING)
    assert link.hub.resumed == [link]


def test_a_pause_in_the_middle_of_a_long_message() -> None:
    message = join([bytes(20_000)])
    link, log = in_traffic()
    link.receive(message[:10_000])
    link.pause(PAUSE_AT_LIMIT)
    link.receive(message[10_000:] + join([b"next"]))
    assert log.messages == []
    link.resume(PAUSE_AT_LIMIT)
    link.receive(b"")
    assert log.messages == [message, join([b"next"])]


def test_closing_stops_parsing() -> None:
    link, log = in_traffic()
    log.close_after = 1
    link.receive(join([b"a"]) + join([b"b"]) + b"\xff\xff")
    link.receive(join([b"c"]))
    assert log.messages == [join([b"a"])]
    assert link.closing == "enough", "what came after the close is not even judged"
    taken(link)
    link.send(join([b"late"]))
    assert link.out == []


def test_sending_joins_small_pieces_and_does_not_copy_large_ones() -> None:
    link, _ = in_traffic()
    big = bytes(limits.BIG_BODY)
    link.send(b"\x01\x01a", b"\x00\x01b")
    link.send_pieces((b"\x01\x01a", b"\x00\x01", b"b"), 1)
    link.send(b"\x00\x01c")
    assert b"".join(link.out) == b"\x01\x01a\x00\x01b" * 2 + b"\x00\x01c" and not link.needs_full_flush
    link.send(head(1, True) + b"a", memoryview(big))
    assert link.out[-2:] == [b"\x01\x01a", big] and link.needs_full_flush
    assert link.hub.dirty == [link], "once, however much is sent"


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6))
@settings(max_examples=150)
def test_no_traffic_raises(noise: list[bytes]) -> None:
    link, _ = in_traffic(SMALL)
    for data in noise:
        link.receive(data)
        assert kept(link) <= SMALL.max_message


def test_a_lost_connection_frees_its_unfinished_message_at_once() -> None:
    """Not when the garbage collector runs: the account of memory no longer counts it."""
    hub = Hub()
    link = ZmtpLink(hub, LinkHandler(), "tcp://127.0.0.1:1")
    link.receive(GREETING_31 + ready())
    link.receive(b"\x02" + (1 << 20).to_bytes(8, "big") + bytes(1 << 19))
    assert hub.input_bytes > 1 << 19 and link._gather is not None
    link.lost()
    assert hub.input_bytes == 0 and link._gather is None and not link._rest
