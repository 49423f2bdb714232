"""Message bodies as ZMTP-framed bytes, as they are on the wire.

Inside polydomo, a *body* is zero or more frames in ZMTP encoding, the last one without MORE. Between two ZMTP peers, a body is forwarded
unchanged; only protocols that need single frames split it with these functions.
A small body is ``bytes``; a large one may be a ``memoryview`` over the bytes it arrived in, so that it is never copied.
"""

from struct import Struct

from polydomo.errors import ProtocolViolation
from polydomo.limits import BIG_BODY, CUT_AT_ONCE, MOST_AT_ONCE

Body = bytes | memoryview

MORE = 1
LONG = 2
COMMAND = 4

EMPTY_FRAME = b"\x00\x00"  # a body of one empty frame
LONG_FRAME = b"\x02"  # flags of the last frame of a message, if it is longer than 255 bytes
DELIMITER = b"\x01\x00"  # an empty frame with more to follow
LENGTH = Struct(">Q")  # the length of a long frame, after its flags


def frame(content: bytes | memoryview, more: bool) -> bytes:
    """One frame, in its canonical (shortest) form."""
    return head(len(content), more) + content


def head(size: int, more: bool) -> bytes:
    """The flags and length of a frame of ``size`` bytes."""
    if size < 256:
        return bytes((1 if more else 0, size))
    return (b"\x03" if more else b"\x02") + size.to_bytes(8, "big")


def join(frames: "list[bytes]") -> bytes:
    """Encodes frames as a body."""
    out: list[bytes] = []
    last = len(frames) - 1
    for i, content in enumerate(frames):
        out.append(head(len(content), i < last))
        out.append(content)
    return b"".join(out)


def more(frames: "list[bytes]") -> bytes:
    """Encodes frames as an envelope: every frame has MORE, because a body follows."""
    out: list[bytes] = []
    for content in frames:
        out.append(head(len(content), True))
        out.append(content)
    return b"".join(out)


def split(body: Body) -> "list[bytes]":
    """Splits a body into its frames. Raises ProtocolViolation if it is not a complete body."""
    frames: list[bytes] = []
    position = 0
    size = len(body)
    while position < size:
        if position + 2 > size:
            raise ProtocolViolation("body ends inside a frame")
        start, end, flags = bounds(body, position)
        if end > size:
            raise ProtocolViolation("body ends inside a frame")
        frames.append(bytes(body[start:end]))
        position = end
        if not flags & MORE and position != size:
            raise ProtocolViolation("bytes after the last frame of a body")
        if flags & MORE and position == size:
            raise ProtocolViolation("body ends after a frame that says MORE")
    return frames


def bounds(data: Body, position: int) -> "tuple[int, int, int]":
    """(start, end, flags) of the frame whose flags byte is at ``position``; the frame must be there."""
    flags = data[position]
    if flags & LONG:
        start = position + 9
        return start, start + int.from_bytes(data[position + 1 : start], "big"), flags
    start = position + 2
    return start, start + data[position + 1], flags


def end_of_last(data: bytes, at: int, size: int, most: int) -> int:
    """The end of a message's last frame, at ``at``; beyond ``size`` if it is not the last frame, incomplete or larger than ``most``."""
    if at + 2 <= size:
        flags = data[at]
        if flags == 0:
            return at + 2 + data[at + 1]
        if flags == 2 and at + 9 <= size:
            length: int = LENGTH.unpack_from(data, at + 1)[0]
            if length <= most:
                return at + 9 + length
    return size + 1


def whole_bodies(data: bytes, start: int, size: int, envelope: bytes, most: int) -> list[bytes]:
    """The bodies of the complete messages at ``data[start:size]`` that begin with this envelope and have a body of one frame of at most
    ``most`` bytes. Stops at the first message that does not fit; the rest takes the slow path.

    Short frames: the data is split at each envelope. A piece with the length that its frame declares is a body; a body that contains the
    envelope would be shorter. Long frames are cut at their declared lengths instead, because a split has to search their content.
    """
    body = start + len(envelope)
    if data[start:body] != envelope:
        return []
    if data[body : body + 1] == LONG_FRAME:
        return _long_bodies(data, body, size, envelope, most)
    if start or size > CUT_AT_ONCE:
        data = data[start : start + CUT_AT_ONCE]
    pieces = data.split(envelope, MOST_AT_ONCE)
    del pieces[0]
    for piece in pieces:
        size = len(piece)
        if (size < 2 or size != 2 + piece[1] or piece[0]) and size != end_of_last(piece, 0, size, most):
            del pieces[pieces.index(piece) :]  # the first of its like
            break
    return pieces


def _long_bodies(data: bytes, body: int, size: int, envelope: bytes, most: int) -> list[bytes]:
    found: list[bytes] = []
    skip = len(envelope)
    limit = min(size, body - skip + CUT_AT_ONCE)
    while True:
        end = end_of_last(data, body, size, most)
        if end > limit:
            return found
        found.append(data[body:end])
        # Requests of one client often have the same length. Then the next ones begin with the same envelope, flags and length.
        alike = envelope + data[body : body + 9]
        step = end + skip - body
        while end + step <= limit and len(found) < MOST_AT_ONCE and data.startswith(alike, end):
            found.append(data[end + skip : end + step])
            end += step
        body = end + skip
        if len(found) >= MOST_AT_ONCE or data[end:body] != envelope:
            return found


def cut(data: bytes, start: int, end: int) -> Body:
    """``data[start:end]``, without copying if it is large."""
    if end - start < BIG_BODY:
        return data[start:end]
    return memoryview(data)[start:end]


def flat(body: Body) -> bytes:
    """The joined contents of all frames, for protocols with single-frame bodies."""
    if not body:
        return b""
    if not body[0] & MORE:  # one frame, by far the most common
        start, end, _ = bounds(body, 0)
        return bytes(body[start:end])
    return b"".join(split(body))


def one_frame(body: Body) -> Body:
    """The body as one frame: several are joined, and a body without frames becomes an empty frame."""
    if not body:
        return EMPTY_FRAME
    if body[0] & MORE:
        return frame(flat(body), False)
    return body


def chain(parts: "list[Body]") -> Body:
    """Joins several bodies into one."""
    parts = [part for part in parts if part]
    if len(parts) < 2:
        return parts[0] if parts else b""
    out: list[bytes] = []
    for part in parts[:-1]:
        mark = _last_frame(part)
        out.append(bytes(part[:mark]))
        out.append(bytes((part[mark] | MORE,)))
        out.append(bytes(part[mark + 1 :]))
    out.append(bytes(parts[-1]))
    return b"".join(out)


def _last_frame(body: Body) -> int:
    position = 0
    while body[position] & MORE:
        position = bounds(body, position)[1]
    return position


def count(body: Body) -> int:
    """The number of frames of a body."""
    total = 0
    position = 0
    size = len(body)
    while position < size:
        position = bounds(body, position)[1]
        total += 1
    return total
