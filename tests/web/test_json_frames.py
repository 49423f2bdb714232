"""Messages with large frames in JSON, read in steps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import MAX_BODY_FRAMES, MAX_CONTROL, STEP_BYTES
from polydomo.web.content import frame_to_json
from polydomo.web.json_frames import JsonFrames

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=["Cs"]))


def read(data: bytes) -> "dict[str, object] | str":
    """The message, or why it was rejected."""
    found: list[dict[str, object] | str] = []
    reader = JsonFrames(data, found.append, found.append)
    while not reader.step():
        assert not found
    assert len(found) == 1
    return found[0]


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name not in ("frames", "body")),
        SCALARS,
        max_size=5,
    ),
    st.lists(st.binary(max_size=20) | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode), max_size=5),
    st.booleans(),
)
def test_messages_are_read_as_they_were_written(
    row: "dict[str, object]", frames: "list[bytes]", ascii_only: bool
) -> None:
    text = json.dumps({**row, "frames": [frame_to_json(frame) for frame in frames]}, ensure_ascii=ascii_only)
    assert read(text.encode()) == {**row, "frames": frames}


def test_one_frame() -> None:
    assert read(b'{"body": "x", "op": "call"}') == {"frames": [b"x"], "op": "call"}
    assert read(b'{"op": 1, "body": {"base64": "/w=="}}') == {"frames": [b"\xff"], "op": 1}
    assert read(b"{}") == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"a"}', '{"a":}', '{"a": 1,}', '{"a": 1} x', '{"a": [1]}', '{"a": {"b": 1}}', '{"frames": [1]}',
        '{"frames": ["a",]}', '{"frames": ["a" "b"]}', '{"frames": {}}', '{"frames": [{"base64": "!"}]}', '{"frames": [{"x": "y"}]}',
        '{"frames": [{"base64": "QQ==", "x": 1}]}', '{"frames": ["\\ud800"]}', '{"a": truth}', '{"a": "' + "x" * (MAX_CONTROL + 1) + '"}',
        '{"frames": [' + ",".join(['""'] * (MAX_BODY_FRAMES + 1)) + "]}",
    ],
)  # fmt: skip
def test_other_messages_are_rejected(text: str) -> None:
    assert isinstance(read(text.encode()), str)


def test_a_large_frame_is_read_in_steps_and_counted() -> None:
    frame = b"x" * (8 * STEP_BYTES)
    found: list[dict[str, object]] = []
    reader = JsonFrames(json.dumps({"frames": [frame.decode()]}).encode(), found.append, lambda why: None)
    steps = 1
    largest = 0
    while not reader.step():
        steps += 1
        largest = max(largest, reader.held())
    assert steps >= 8 and largest > 1.5 * len(frame)
    assert found == [{"frames": [frame]}]
