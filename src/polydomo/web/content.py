"""Formats of HTTP bodies: joined frames, frames as JSON, frames as multipart/mixed, server-sent events, and problems (RFC 9457).

A body inside polydomo is a list of frames. As JSON, a frame that is UTF-8 is a string and any other frame is ``{"base64": "..."}``,
and so is a large one with control characters:

    {"frames": ["text", {"base64": "/w=="}]}
"""

import json
import re
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from polydomo.limits import JSON_PIECE, MAX_BODY_FRAMES, MAX_CONTROL, MAX_MULTIPART_HEAD
from polydomo.wire.frames import Body, flat, join, split
from polydomo.wire.http.head import REASONS, HttpError

OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
FRAMES_JSON: Final = "application/vnd.polydomo.frames+json"
MULTIPART: Final = "multipart/mixed"
FORM: Final = "multipart/form-data"  # HTML forms and `curl -F`
EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
PROBLEM: Final = "application/problem+json"

BOUNDARY: Final = b"polydomo-"  # followed by random digits: no worker can know a boundary and write it into a frame
BOUNDARY_RANDOM: Final = 16  # bytes

Random = Callable[[int], bytes]

# Control characters other than those of text files: as JSON, each takes six characters.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")

Row = dict[str, object]


# --- content negotiation (RFC 9110, 12.5.1) ---------------------------------------------------------------------------


def weights(accept: str) -> "list[tuple[str, float]]":
    """The media ranges of an Accept header with their weights; parameters other than q are ignored."""
    found: list[tuple[str, float]] = []
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = min(1.0, max(0.0, float(parameter[2:])))
                except ValueError:
                    weight = 0.0
        if name:
            found.append((name, weight))
    return found


def weight_of(ranges: "list[tuple[str, float]]", media: str) -> float:
    """The weight that the most specific matching range gives to a media type; 0 where none matches."""
    kind = media.split(";")[0]
    best = -1
    weight = 0.0
    for name, value in ranges:
        if name == kind:
            rank = 2
        elif name == kind.split("/")[0] + "/*":
            rank = 1
        elif name == "*/*":
            rank = 0
        else:
            continue
        if rank > best:
            best = rank
            weight = value
    return weight


@lru_cache(maxsize=512)
def choose(accept: str, offered: "tuple[str, ...]") -> str:
    """The offered media type that the client prefers; among equals the first offered. "" if it accepts none."""
    if not accept:
        return offered[0]
    ranges = weights(accept)
    best = ""
    most = 0.0
    for media in offered:
        weight = weight_of(ranges, media)
        if weight > most:
            best = media
            most = weight
    return best


# --- frames as JSON -----------------------------------------------------------------------------------------------------


def frame_to_json(frame: bytes) -> object:
    if len(frame) <= MAX_CONTROL or _CONTROL.search(frame) is None:
        try:
            return frame.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": b64encode(frame).decode()}


def frames_json(body: Body, before: bytes, after: bytes) -> "list[bytes]":
    """The list of the frames of a body as JSON, between two texts, in pieces. A large body is converted piece by piece, so that the broker
    does not hold several copies of it. The last piece is the first of the list: they are popped as they are sent."""
    if len(body) <= JSON_PIECE:
        return [before + dump(frames_to_json(body)) + after]
    out: list[bytes] = []
    some: list[bytes] = [before, b"["]  # they become one piece
    size = 0
    for number, frame in enumerate(split(body)):
        for piece in _json_pieces(frame, b"," if number else b""):
            some.append(piece)
            size += len(piece)
            if size >= JSON_PIECE // 2:
                out.append(b"".join(some))
                some = []
                size = 0
    out.append(b"".join([*some, b"]", after]))
    out.reverse()
    return out


def _json_pieces(frame: bytes, before: bytes) -> "list[bytes]":
    size = len(frame)
    if size <= MAX_CONTROL:
        return [before, dump(frame_to_json(frame))]
    steps = range(0, size, JSON_PIECE)
    if _CONTROL.search(frame) is None:
        try:
            decoder = getincrementaldecoder("utf-8")()
            text = [dump(decoder.decode(frame[at : at + JSON_PIECE], at + JSON_PIECE >= size))[1:-1] for at in steps]
            return [before, b'"', *text, b'"']
        except UnicodeDecodeError:
            pass
    return [before, b'{"base64":"', *[b64encode(frame[at : at + JSON_PIECE]) for at in steps], b'"}']


def frame_from_json(value: object) -> bytes:
    """Raises ValueError with a reason. ``JsonFrames`` has frames as bytes already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError("a frame has a lone surrogate") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except ValueError:
            raise ValueError("a frame is not valid base64") from None
    raise ValueError('a frame must be a string or {"base64": "..."}')


def frames_to_json(body: Body) -> "list[object]":
    return [frame_to_json(frame) for frame in split(body)]


def body_from_json(value: object) -> bytes:
    """A body from a list of frames. Raises ValueError with a reason."""
    if not isinstance(value, list):
        raise ValueError("frames must be a list")
    if len(value) > MAX_BODY_FRAMES:
        raise ValueError(f"{len(value)} frames; the limit is {MAX_BODY_FRAMES}")
    return join([frame_from_json(frame) for frame in value])


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# --- multipart ------------------------------------------------------------------------------------------------------------


def parameter_of(content_type: str, name: str) -> str:
    for parameter in content_type.split(";")[1:]:
        key, _, value = parameter.strip().partition("=")
        if key.lower() == name:
            return value.strip().strip('"')
    return ""


def to_multipart(body: Body, random: Random) -> "tuple[str, bytes]":
    """The content type and the bytes of a body with one part per frame."""
    frames = split(body)
    boundary = BOUNDARY + random(BOUNDARY_RANDOM).hex().encode()
    out: list[bytes] = []
    for frame in frames:
        out += (b"--", boundary, b"\r\nContent-Type: application/octet-stream\r\n\r\n", frame, b"\r\n")
    out += (b"--", boundary, b"--\r\n")
    return f"{MULTIPART}; boundary={boundary.decode()}", b"".join(out)


def from_multipart(content_type: str, data: bytes) -> bytes:
    """Raises HttpError."""
    boundary = parameter_of(content_type, "boundary")
    if not 1 <= len(boundary) <= 70 or not boundary.isascii():
        raise HttpError(400, "a multipart body needs a boundary of 1 to 70 characters", close=False)
    mark = b"\r\n--" + boundary.encode()
    frames: list[bytes] = []
    pieces = (b"\r\n" + data).split(mark, MAX_BODY_FRAMES + 2)
    if len(pieces) > MAX_BODY_FRAMES + 2:
        raise HttpError(413, f"the multipart body has more than {MAX_BODY_FRAMES} parts", close=False)
    for piece in pieces[1:]:
        if piece.startswith(b"--"):
            return join(frames)
        line = piece.find(b"\r\n")
        if line < 0 or piece[:line].strip(b" \t"):
            break
        if piece.startswith(b"\r\n", line + 2):
            content = line + 4
        else:
            end = piece.find(b"\r\n\r\n", line)
            if not 0 <= end <= MAX_MULTIPART_HEAD:
                break
            content = end + 4
        frames.append(piece[content:])
    raise HttpError(400, "the multipart body does not match its boundary", close=False)


def media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.split(";")[0].strip().lower()


def request_body(content_type: str, data: bytes) -> bytes:
    """The body of a call: one frame, unless the content type says that it has several. Raises HttpError."""
    media = media_type(content_type)
    if media in (MULTIPART, FORM):
        return from_multipart(content_type, data)
    if media == FRAMES_JSON:
        try:
            value = json.loads(data)
            if not isinstance(value, dict):
                raise ValueError('the body must be {"frames": [...]}')
            return body_from_json(value.get("frames"))
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body is not {FRAMES_JSON}: {error}", close=False) from None
    return join([data])


def response_body(media: str, body: Body, random: Random) -> "tuple[str, bytes]":
    """The content type and the bytes of a final reply in the chosen media type."""
    if media == MULTIPART:
        return to_multipart(body, random)
    if media in (JSON, FRAMES_JSON):
        return media, b"".join(reversed(frames_json(body, b'{"frames":', b"}")))
    return media, flat(body)


# --- events -----------------------------------------------------------------------------------------------------------------


def event_of_frames(media: str, name: bytes, body: Body) -> "list[bytes]":
    """A partial or final reply as an event, or as a line of JSON, in the pieces of ``frames_json``."""
    if media == EVENTS:
        return frames_json(body, b'event: %b\ndata: {"frames":' % name, b"}\n\n")
    return frames_json(body, b'{"event":"%b","frames":' % name, b"}\n")


def event(name: str, value: object) -> bytes:
    """One server-sent event; JSON has no line breaks, so its data is one line."""
    return b"event: " + name.encode() + b"\ndata: " + dump(value) + b"\n\n"


def line(name: str, value: Row) -> bytes:
    """One line of newline-delimited JSON."""
    return dump({"event": name, **value}) + b"\n"


# --- problems (RFC 9457) --------------------------------------------------------------------------------------------------------


def problem(status: int, type_: str, detail: str, **more: object) -> Row:
    """``type_`` is an outcome, or the short name of another problem."""
    return {
        "type": type_ if type_.startswith("/") else f"urn:polydomo:{type_}",
        "title": REASONS.get(status, "Error"),
        "status": status,
        "detail": detail,
        **{name: value for name, value in more.items() if value},
    }
