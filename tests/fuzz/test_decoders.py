"""Any bytes, in any split, give a message or a protocol error, within bounds of time and memory. `make fuzz` tries far more of them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from polydomo.wire import frames, sp
from polydomo.wire.link import Hub
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from tests.fuzz import words
from tests.fuzz.targets import BOUNDS, GREETING, HELLO_REQ, TARGETS, Messages, Room, ready

CORPUS = Path(__file__).parent / "corpus"
SOME = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name: str) -> None:
    """Inputs that once found a fault, and valid bytes, whole and cut at every byte."""
    files = sorted((CORPUS / name).glob("*"))
    assert files, f"no corpus for {name}"
    for path in files:
        data = path.read_bytes()
        for end in range(0, len(data), max(1, len(data) // 40)):
            TARGETS[name](data[:end])
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@SOME
@given(data=st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@SOME
@given(choice=st.integers(0, 1_000), at=st.integers(0, 10_000), cut=st.integers(0, 8), more=st.binary(max_size=8))
def test_valid_bytes_with_one_error(name: str, choice: int, at: int, cut: int, more: bytes) -> None:
    known = words.corpus()[name]
    data = known[choice % len(known)]
    place = at % (len(data) + 1)
    TARGETS[name](data[:place] + more + data[place + cut :])


@SOME
@given(messages=st.lists(words.message, min_size=1, max_size=8), kind=st.integers(0, 6))
@example(messages=[[b"MDXW01", b"\x01", b"echo"], [b"MDXW01", b"\x04", b"000000001001", b"", b"\x00"]], kind=0)
def test_known_words_in_any_order(messages: list[list[bytes]], kind: int) -> None:
    TARGETS["broker_zmtp"](bytes((kind,)) + b"".join(map(frames.join, messages)))


@SOME
@given(
    said=st.lists(st.tuples(st.integers(0, 2), words.message, st.floats(0, 4)), min_size=1, max_size=12),
    lost=st.integers(0, 12),
)
def test_known_words_of_several_peers(said: list[tuple[int, list[bytes], float]], lost: int) -> None:
    """Peers that know the words and not the grammar, an honest client and worker among them, time passing, one connection breaking."""
    room = Room()
    room.honest()
    links = [room.zmtp() for _ in range(3)]
    for i, (who, message, seconds) in enumerate(said):
        if i == lost:
            links[who].lost()
        if not links[who].closed:
            links[who].receive(frames.join(message))
        room.turn()
        room.broker.check_invariants()
        room.wait(seconds)
    room.close()


@SOME
@given(
    messages=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=6),
    junk=st.binary(max_size=30),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
)
def test_zmtp_any_split_gives_the_same(messages: list[list[bytes]], junk: bytes, cuts: list[int]) -> None:
    data = b"".join(map(frames.join, messages)) + junk
    whole, pieces, bytewise = (_zmtp(data, split) for split in ([], cuts, list(range(len(data)))))
    assert whole == pieces == bytewise
    assert whole[0][: len(messages)] == [frames.join(message) for message in messages]


def _zmtp(data: bytes, cuts: list[int]) -> "tuple[list[bytes], bool]":
    handler = Messages()
    link = ZmtpLink(Hub(), handler, "peer", bounds=BOUNDS)
    link.receive(GREETING + ready(b"DEALER"))
    last = 0
    for cut in sorted({*cuts, len(data)}):
        if last < cut <= len(data):
            link.receive(data[last:cut])
            last = cut
    return handler.taken, link.closing is not None


@SOME
@given(
    bodies=st.lists(st.binary(max_size=300), max_size=6),
    junk=st.binary(max_size=30),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
)
def test_sp_any_split_gives_the_same(bodies: list[bytes], junk: bytes, cuts: list[int]) -> None:
    messages = [(0x80000000 | i).to_bytes(4, "big") + body for i, body in enumerate(bodies)]
    data = b"".join(len(one).to_bytes(8, "big") + one for one in messages) + junk
    whole, pieces, bytewise = (_sp(data, split) for split in ([], cuts, list(range(len(data)))))
    assert whole == pieces == bytewise
    assert whole[0][: len(messages)] == messages


def _sp(data: bytes, cuts: list[int]) -> "tuple[list[bytes], bool]":
    handler = Messages()
    link = SpLink(Hub(), handler, "peer", max_message=8192)
    link.receive(HELLO_REQ)
    last = 0
    for cut in sorted({*cuts, len(data)}):
        if last < cut <= len(data):
            link.receive(data[last:cut])
            last = cut
    return handler.taken, link.closing is not None


# --- bounds ------------------------------------------------------------------------------------------------------------------


def kept(link: ZmtpLink | SpLink) -> int:
    """Bytes that a link holds of an unfinished message."""
    gather = link._gather
    return len(link._rest) + (len(gather.getvalue()) if gather is not None else 0)


@pytest.mark.parametrize(
    "piece", [b"\x01\x00", b"\x01\xff" + bytes(255), b"\x03" + (2000).to_bytes(8, "big") + bytes(2000)]
)
def test_an_endless_multipart_message_ends_at_a_bound(piece: bytes) -> None:
    link = ZmtpLink(Hub(), Messages(), "peer", bounds=BOUNDS)
    link.receive(GREETING + ready(b"DEALER"))
    for _ in range(10_000):
        link.receive(piece)
        assert kept(link) <= BOUNDS.max_message + len(piece)
        if link.closing is not None:
            break
    assert link.closing is not None and "protocol violation" in link.closing


@pytest.mark.parametrize("size", [BOUNDS.max_frame + 1, 1 << 40, (1 << 64) - 1])
def test_a_frame_that_is_too_long_is_refused_before_its_body(size: int) -> None:
    link = ZmtpLink(Hub(), Messages(), "peer", bounds=BOUNDS)
    link.receive(GREETING + ready(b"DEALER") + b"\x02" + size.to_bytes(8, "big"))
    assert link.closing is not None and kept(link) == 0
    other = SpLink(Hub(), Messages(), "peer", max_message=8192)
    other.receive(HELLO_REQ + max(size, 8193).to_bytes(8, "big"))
    assert other.closing is not None and kept(other) == 0


def test_a_handshake_that_never_ends_is_closed() -> None:
    link = ZmtpLink(Hub(), Messages(), "peer", bounds=BOUNDS)
    link.receive(GREETING)
    for _ in range(10_000):
        link.receive(b"\x04\xff" + bytes(100))
        assert len(link._rest) <= 2 * BOUNDS.max_handshake
        if link.closing is not None:
            break
    assert link.closing is not None


def test_work_grows_with_the_bytes_and_not_with_the_pieces() -> None:
    """A message in single bytes is looked at once, not from its beginning with every byte: no more than some calls per byte."""
    import sys

    body = bytes(8000)
    data = frames.join([b"", b"MDPC01", b"echo", body[:4000], body[:3000]])
    counts = []
    for size in (1, len(data)):
        link = ZmtpLink(Hub(), Messages(), "peer", bounds=BOUNDS)
        link.receive(GREETING + ready(b"DEALER"))
        lines = 0

        def trace(frame: object, event: str, argument: object) -> object:
            nonlocal lines
            lines += event == "line"
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            for at in range(0, len(data), size):
                link.receive(data[at : at + size])
        finally:
            sys.settrace(None)
        counts.append(lines)
    assert counts[0] < 80 * len(data), counts


def test_nesting_and_numbers_without_end_are_refused() -> None:
    for name, data in (
        ("cbor_header", b"\x81" * 100_000),
        ("memo_message", b"\x84fmemo01\x01\x40" + b"\x81" * 100_000),
        ("emqp_words", b"[" * 100_000),
        ("emqp_words", b"timeout:" + b"9" * 100_000),
        ("emqp_words", b'{"a":' * 50_000),
        ("broker_zmtp", b"\x00" + frames.join([b"", b"UwU", bytes(4), b"[" * 4000])),
        ("dbp_end", frames.join([b"", b"o_O", bytes(4), b'{"a":' * 3000])),
        ("url", b"tcp://" + b"[" * 10_000),
    ):
        TARGETS[name](data)


def test_sp_messages_split() -> None:
    data = sp.message(b"\x80\x00\x00\x01", b"body")
    assert sp.split(data, 8, len(data)) == [b"\x80\x00\x00\x01", b"body"]
