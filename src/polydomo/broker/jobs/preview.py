"""The beginning of a stored body or result, for people."""

import json

from polydomo.limits import JOB_PREVIEW, JOB_PREVIEW_JSON
from polydomo.wire.frames import Body, split

Row = dict[str, object]

JSON = "application/json"
TEXT = "text/plain"
OCTETS = "application/octet-stream"


def preview(body: Body) -> Row | None:
    """Its type, size and beginning: as text, or in hexadecimal if it is not UTF-8. None if it is not stored any more.

    >>> preview(b"") is None
    True
    """
    if not body:
        return None
    frames = split(body)
    size = sum(map(len, frames))
    content = b"\n".join(frames)
    kind, text = _read(content) if size <= JOB_PREVIEW_JSON else _begin(content[: 4 * JOB_PREVIEW])
    return {
        "type": kind,
        "frames": len(frames),
        "size_bytes": size,
        "preview": text[:JOB_PREVIEW],
        "cut": len(text) > JOB_PREVIEW or size > JOB_PREVIEW_JSON,
    }


def _read(content: bytes) -> "tuple[str, str]":
    """Type and text of all of it."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return OCTETS, content.hex()
    if text[:1] in ("{", "[", '"'):
        try:
            json.loads(text)
            return JSON, text
        except (ValueError, RecursionError):
            pass
    return (OCTETS, content.hex()) if "\0" in text else (TEXT, text)


def _begin(content: bytes) -> "tuple[str, str]":
    """The same of its beginning, which may end within a character."""
    text = content.decode(errors="replace")
    return (OCTETS, content.hex()) if "\ufffd" in text[:-1] or "\0" in text else (TEXT, text)
