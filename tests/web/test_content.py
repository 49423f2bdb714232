"""Bodies of HTTP: content negotiation, frames as JSON and as multipart, problems."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import JSON_PIECE, MAX_BODY_FRAMES, MAX_CONTROL
from polydomo.web import content
from polydomo.wire.frames import join, split
from polydomo.wire.http.head import HttpError

BODIES = st.lists(st.binary(max_size=300), max_size=6)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", content.OCTETS),
        ("*/*", content.OCTETS),
        ("application/json", content.JSON),
        ("application/json, text/plain, */*", content.OCTETS),  # what axios sends
        ("application/json, */*;q=0.5", content.JSON),
        ("multipart/*", content.MULTIPART),
        ("application/*;q=0.3, multipart/mixed;q=0.4", content.MULTIPART),
        ("application/octet-stream;q=0, */*", content.JSON),
        ("image/png", ""),
        ("*/*;q=nonsense", ""),
        (" , ;, application/json ;q=1.0", content.JSON),
    ],
)
def test_choosing_a_media_type(accept: str, chosen: str) -> None:
    assert content.choose(accept, (content.OCTETS, content.JSON, content.MULTIPART)) == chosen


@given(BODIES)
def test_frames_survive_json(frames: list[bytes]) -> None:
    body = join(frames)
    _, data = content.response_body(content.FRAMES_JSON, body, bytes)
    assert content.request_body(content.FRAMES_JSON, data) == body
    assert json.loads(data)["frames"] == content.frames_to_json(body)


def test_a_large_frame_with_control_characters_is_base64() -> None:
    """As a string it would take six times its size."""
    zeros, text = bytes(MAX_CONTROL + 1), b"line\r\n\t" * MAX_CONTROL
    _, data = content.response_body(content.FRAMES_JSON, join([zeros, zeros[1:], text]), bytes)
    found = json.loads(data)["frames"]
    assert list(found[0]) == ["base64"] and found[1:] == [zeros[1:].decode(), text.decode()]
    assert content.request_body(content.FRAMES_JSON, data) == join([zeros, zeros[1:], text])


LARGE = MAX_CONTROL + 1
NEARLY = b"\xff" + b"x" * LARGE  # not UTF-8


@pytest.mark.parametrize(
    "frames",
    [
        [b'"' * 3 * LARGE],
        ["\u00e4\u20ac\U0001f600".encode() * (LARGE // 2)],  # characters that lie across pieces
        [b"x" + "\u20ac".encode() * LARGE, b"", b"small"],
        [NEARLY, b"text" * LARGE, NEARLY[::-1]],
        ["\u20ac".encode() * LARGE + b"\xe2\x82"],  # it ends inside a character
        [bytes(3 * LARGE), bytes(10)],
        [b"x" * JSON_PIECE, *(b"%d" % number for number in range(MAX_BODY_FRAMES - 1))],
    ],
    ids=["quotes", "characters", "three", "not text", "cut", "zeros", "many"],
)
def test_large_bodies_are_written_in_pieces(frames: list[bytes]) -> None:
    body = join(frames)
    pieces = content.event_of_frames(content.EVENTS, b"final", body)
    assert max(map(len, pieces)) <= 2 * JSON_PIECE + 200 and len(pieces) > 1
    whole = b"".join(reversed(pieces))
    assert whole == content.event("final", {"frames": content.frames_to_json(body)})
    lines = b"".join(reversed(content.event_of_frames(content.LINES, b"partial", body)))
    assert lines == content.line("partial", {"frames": content.frames_to_json(body)})


@given(BODIES)
def test_frames_survive_multipart(frames: list[bytes]) -> None:
    kind, data = content.response_body(content.MULTIPART, join(frames), os.urandom)
    assert split(content.request_body(kind, data)) == frames


def test_a_boundary_cannot_be_predicted() -> None:
    """So a worker cannot write it into a frame, and frames need not be searched for it."""
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return bytes([len(asked)]) * size

    first, data = content.to_multipart(join([b"x"]), random)
    second, _ = content.to_multipart(join([b"x"]), random)
    assert asked == [content.BOUNDARY_RANDOM] * 2 and content.BOUNDARY_RANDOM >= 16
    assert first != second
    guess = first.partition("boundary=")[2].encode()
    kind, data = content.to_multipart(join([b"\r\n--" + guess + b"\r\n", guess + b"--"]), random)
    assert split(content.from_multipart(kind, data)) == [b"\r\n--" + guess + b"\r\n", guess + b"--"]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("multipart/mixed", b""),
        ("multipart/mixed; boundary=a", b""),
        ("multipart/mixed; boundary=a", b"--a\r\n\r\nx"),
        ("multipart/mixed; boundary=a", b"--a\r\nno end of headers\r\n--a--"),
        ("multipart/mixed; boundary=a", b"--a\r\n\r\nx\r\n--ab\r\n\r\ny\r\n--a--"),
        ("multipart/mixed; boundary=" + "a" * 71, b"--a--"),
        ("multipart/mixed; boundary=a", b"--a\r\n\r\n" * (MAX_BODY_FRAMES + 3)),
        (content.FRAMES_JSON, b""),
        (content.FRAMES_JSON, b"[]"),
        (content.FRAMES_JSON, b'{"frames": 1}'),
        (content.FRAMES_JSON, b'{"frames": [1]}'),
        (content.FRAMES_JSON, b'{"frames": [{"base64": "*"}]}'),
        (content.FRAMES_JSON, b'{"frames": ["\\ud800"]}'),
        (content.FRAMES_JSON, b"[" * 100_000),
        (content.FRAMES_JSON, b"\xff"),
    ],
)
def test_malformed_bodies_are_rejected(kind: str, data: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        content.request_body(kind, data)
    assert caught.value.status in (400, 413) and not caught.value.close


def test_a_part_may_have_headers_or_none() -> None:
    data = b"preamble\r\n--a\r\n\r\none\r\n--a\r\nContent-Type: text/plain\r\nX: y\r\n\r\ntwo\r\n--a--\r\nepilogue"
    assert split(content.from_multipart('multipart/mixed; boundary="a"', data)) == [b"one", b"two"]


def test_anything_else_is_one_frame() -> None:
    assert split(content.request_body("application/json", b'{"frames": []}')) == [b'{"frames": []}']
    assert split(content.request_body("", b"")) == [b""]


def test_problem() -> None:
    assert content.problem(504, "timeout", "its deadline passed", service="slow", request="") == {
        "type": "urn:polydomo:timeout",
        "title": "Gateway Timeout",
        "status": 504,
        "detail": "its deadline passed",
        "service": "slow",
    }
