"""Bodies as bytes: splitting, joining, and invalid bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo import limits
from polydomo.errors import ProtocolViolation
from polydomo.limits import BIG_BODY
from polydomo.wire import frames
from polydomo.wire.frames import (
    EMPTY_FRAME,
    bounds,
    chain,
    count,
    cut,
    flat,
    frame,
    head,
    join,
    more,
    split,
    whole_bodies,
)

contents = st.lists(
    st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 255, b"y" * 256, b"z" * 70_000])), max_size=6
)


def test_heads_take_the_shortest_form() -> None:
    assert head(0, False) == b"\x00\x00"
    assert head(255, True) == b"\x01\xff"
    assert head(256, False) == b"\x02\x00\x00\x00\x00\x00\x00\x01\x00"
    assert head(2**32, True) == b"\x03\x00\x00\x00\x01\x00\x00\x00\x00"
    assert frame(b"ab", True) == b"\x01\x02ab"
    assert frame(memoryview(b"ab"), False) == b"\x00\x02ab"
    assert join([b""]) == EMPTY_FRAME


@given(contents)
def test_join_and_split_are_each_others_inverse(parts: list[bytes]) -> None:
    body = join(parts)
    assert split(body) == parts == split(memoryview(body))
    assert count(body) == len(parts)
    assert flat(body) == b"".join(parts)
    assert b"".join([more(parts), join([b"end"])]) == join([*parts, b"end"])


@given(contents, st.integers(0, 200))
def test_bounds_walk_over_a_body(parts: list[bytes], before: int) -> None:
    data = bytes(before) + join(parts)
    position = before
    for i, part in enumerate(parts):
        start, end, flags = bounds(data, position)
        assert data[start:end] == part
        assert bool(flags & frames.MORE) == (i < len(parts) - 1)
        assert bool(flags & frames.LONG) == (len(part) > 255)
        position = end
    assert position == len(data)


@given(st.lists(contents, max_size=4))
def test_chain_is_the_frames_of_one_after_the_other(bodies: list[list[bytes]]) -> None:
    joined = [join(parts) for parts in bodies]
    together = [part for parts in bodies for part in parts]
    assert split(chain(list(joined))) == together
    assert split(chain([memoryview(body) for body in joined])) == together


def test_a_chain_of_one_is_not_copied() -> None:
    body = join([b"x" * 1000])
    assert chain([b"", body, b""]) is body
    assert chain([]) == chain([b""]) == b""


def test_frames_in_long_form_are_read() -> None:
    body = b"\x03" + (1).to_bytes(8, "big") + b"a" + b"\x02" + bytes(8)
    assert split(body) == [b"a", b""] and count(body) == 2 and flat(body) == b"a"
    assert split(chain([body, join([b"b"])])) == [b"a", b"", b"b"]


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x05abc",
        b"\x02" + (9).to_bytes(8, "big") + b"abc",
        b"\x00\x01ab",
        b"\x00\x00\x00\x00",
        b"\x01\x01a",
        b"\x01\x00",
    ],
)
def test_incomplete_bodies(body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        split(body)


def test_only_big_bodies_are_views() -> None:
    data = b"head" + bytes(BIG_BODY) + b"tail"
    small = cut(data, 4, 4 + BIG_BODY - 1)
    big = cut(data, 4, 4 + BIG_BODY)
    assert isinstance(small, bytes) and isinstance(big, memoryview)
    assert big.obj is data and bytes(big) == bytes(BIG_BODY)


ENVELOPE = more([b"", b"A", b"echo"])
MESSAGES = [
    *[[b"", b"A", b"echo", body] for body in (b"", b"x", b"y" * 255, b"z" * 256, b"w" * 3000)],
    [b"", b"A", b"echo", ENVELOPE],  # a body like an envelope, and one that would be a message of its own
    [b"", b"A", b"echo", b"two" + ENVELOPE + b"\x00\x01x"],
    [b"", b"A", b"echo", b"one", b"two"],
    [b"", b"A", b"echo"],
    [b"", b"B", b"echo", b"x"],
]


def one_by_one(data: bytes, start: int, most: int) -> list[bytes]:
    """What ``whole_bodies`` may find, by walking from frame to frame."""
    found = []
    while data.startswith(ENVELOPE, start):
        start += len(ENVELOPE)
        if start + 2 > len(data) or (data[start] & frames.LONG and start + 9 > len(data)):
            break
        begin, end, flags = bounds(data, start)
        if flags & frames.MORE or end > len(data) or (flags & frames.LONG and end - begin > most):
            break
        found.append(data[start:end])
        start = end
    return found


@given(st.lists(st.sampled_from(MESSAGES), max_size=12), st.integers(0, 9000), st.binary(max_size=5))
def test_whole_bodies_are_what_a_walk_over_the_frames_finds(
    messages: list[list[bytes]], cut_off: int, before: bytes
) -> None:
    whole = before + b"".join(map(join, messages))
    data = whole[: max(len(before), len(whole) - cut_off % (len(whole) + 1))]
    found = whole_bodies(data, len(before), len(data), ENVELOPE, 2000)
    walk = one_by_one(data, len(before), 2000)
    assert found == walk[: len(found)], "whatever it leaves is taken apart after it"
    if data == whole and all(message in MESSAGES[:4] for message in messages):
        assert found == walk


def test_only_as_many_connections_as_needed_are_closed() -> None:
    data = b"".join(join([b"", b"A", b"echo", b"%d" % i]) for i in range(1000))
    found = whole_bodies(data, 0, len(data), ENVELOPE, 2000)
    assert found == one_by_one(data, 0, 2000)[: len(found)] and 1 < len(found) <= limits.MOST_AT_ONCE
    large = join([b"", b"A", b"echo", b"x" * limits.CUT_AT_ONCE])
    assert whole_bodies(large * 2, 0, len(large) * 2, ENVELOPE, 10 * limits.CUT_AT_ONCE) == []  # the long way takes it
