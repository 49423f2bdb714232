"""What the detail of a job shows of its body and result."""

import json

import pytest

from polydomo.broker.jobs.preview import preview
from polydomo.limits import JOB_PREVIEW, JOB_PREVIEW_JSON
from polydomo.wire.frames import join


@pytest.mark.parametrize(
    ("frames", "kind", "text"),
    [
        ([b'{"a": 1}'], "application/json", '{"a": 1}'),
        ([b'{"a": 1'], "text/plain", '{"a": 1'),
        (["café".encode()], "text/plain", "café"),
        ([b"one", b"two"], "text/plain", "one\ntwo"),
        ([b""], "text/plain", ""),
        ([b"\x89PNG\r\n"], "application/octet-stream", "89504e470d0a"),
        ([b"a\0b"], "application/octet-stream", "610062"),
        ([b"[" * 50_000], "text/plain", "[" * JOB_PREVIEW),
    ],
)
def test_the_type_follows_from_the_content(frames: list[bytes], kind: str, text: str) -> None:
    found = preview(join(frames))
    assert found is not None
    assert (found["type"], found["preview"], found["frames"]) == (kind, text, len(frames))
    assert found["size_bytes"] == sum(map(len, frames))


def test_a_long_body_is_cut_within_a_character_and_not_parsed() -> None:
    found = preview(join([json.dumps(["é" * JOB_PREVIEW_JSON], ensure_ascii=False).encode()]))
    assert found is not None and found["cut"] is True and found["type"] == "text/plain"
    assert str(found["preview"]).startswith('["éé') and len(str(found["preview"])) == JOB_PREVIEW
    octets = preview(join([b"\xff" * JOB_PREVIEW_JSON * 2]))
    assert octets is not None and octets["type"] == "application/octet-stream"


def test_what_is_not_stored_has_no_preview() -> None:
    assert preview(b"") is None
