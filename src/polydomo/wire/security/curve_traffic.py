"""CURVE's MESSAGE commands: ZMTP frames, each sealed in its own box (RFC 26).

``seal`` and ``open`` translate between plain ZMTP frames and sealed ones, so the rest of the wire sees the same bytes with CURVE as
without. Both work on whole batches and let libsodium write into the output buffer. No object is kept per frame: the nonce and the head
of the next frame are prepared, and as long as numbers count up by one, only their last octet changes.
"""

from struct import Struct
from typing import Any

from polydomo.errors import ProtocolViolation
from polydomo.wire.security.sodium import from_buffer, open_into, seal_into

MESSAGE = b"\x07MESSAGE"
SMALL = 2048  # size of frames for which space for the worst case is allocated at once
OVERHEAD = 33  # "\x07MESSAGE", 8 octets of nonce, 16 of authentication, 1 of flags
BROKEN = "CURVE MESSAGE cannot be decrypted: it was modified, or encrypted with another key"
SHORT = 256 - OVERHEAD  # a longer body makes a frame with a long head
HEAD = 18  # flags, size, "\x07MESSAGE" and the number of a short frame
pack_long_head = Struct(">BQ8sQ").pack_into
pack_count = Struct(">Q").pack_into
SERVER_PREFIX = b"CurveZMQMESSAGES"
CLIENT_PREFIX = b"CurveZMQMESSAGEC"


class CurveTraffic:
    """Seals what one side of a connection sends, and opens what it receives.

    ``sent`` and ``seen`` are the last short nonces used by either side in the handshake. "This nonce SHALL be an incrementing integer,
    and unique to each command within a connection."
    """

    def __init__(self, key: bytes, server: bool, sent: int, seen: int, max_frame: int) -> None:
        self._key = key
        ours, theirs = (SERVER_PREFIX, CLIENT_PREFIX) if server else (CLIENT_PREFIX, SERVER_PREFIX)
        self._number = bytearray(ours + sent.to_bytes(8, "big"))  # the nonce of the last frame that was sent ...
        self._nonce: Any = from_buffer(self._number)
        self._head = bytearray(b"\x00\x00" + MESSAGE + sent.to_bytes(8, "big"))  # ... and its head
        # The nonce of the last frame that was received ...
        self._their_number = bytearray(theirs + seen.to_bytes(8, "big"))
        self._their_nonce: Any = from_buffer(self._their_number)
        # ... and its head, without flags, size and the last octet.
        self._their_head = MESSAGE + seen.to_bytes(8, "big")[:7]
        self._sent = sent
        self._seen = seen
        self._max_frame = max_frame
        self._rest = bytearray()  # the beginning of a sealed frame
        self._need = 0  # no whole frame is there before this many bytes

    def seal(self, data: bytes) -> bytes:
        """``data`` is whole ZMTP frames: messages and commands. Returns the frames that carry them."""
        plain = bytearray(data)
        size = len(plain)
        # An empty frame of 2 bytes becomes one of 35. A large batch seldom has short frames only: it gets more room when it needs it.
        room = 18 * size if size < SMALL else size + (size >> 2) + SMALL
        sealed = bytearray(room)
        full: list[bytes] = []
        source = from_buffer(plain)
        target = from_buffer(sealed)
        key = self._key
        number = self._number
        nonce = self._nonce
        head = self._head
        count = self._sent
        out = position = 0
        while position < size:
            flags = data[position]
            length = data[position + 1]
            count += 1
            if count & 255:
                number[23] = head[17] = count & 255
            else:
                pack_count(number, 16, count)
                pack_count(head, 10, count)
            if flags < 2 and length < SHORT and position + length + 2 <= size:  # nearly all frames
                # The payload is one octet of flags and the body: the flags take the place of the length.
                plain[position + 1] = flags
                if out + length + 35 > room:
                    full.append(bytes(memoryview(sealed)[:out]))
                    out = 0
                head[1] = length + OVERHEAD
                box = out + HEAD
                sealed[out:box] = head
                seal_into(target + box, source + (position + 1), length + 1, nonce, key)
                out = box + length + 17
                position += length + 2
                continue
            if flags & 2:
                length = int.from_bytes(plain[position + 1 : position + 9], "big")
                position += 9
            else:
                position += 2
            if position + length > size:
                raise ValueError("only whole frames can be sealed")
            plain[position - 1] = flags & 1 | (flags & 4) >> 1
            if out + length + 42 > room:
                full.append(bytes(memoryview(sealed)[:out]))
                out = 0
            if length < SHORT:
                head[1] = length + OVERHEAD
                sealed[out : out + HEAD] = head
                out += HEAD
            else:
                pack_long_head(sealed, out, 2, length + OVERHEAD, MESSAGE, count)
                out += 25
            seal_into(target + out, source + (position - 1), length + 1, nonce, key)
            out += length + 17
            position += length
        self._sent = count
        last = memoryview(sealed)[:out].tobytes()
        return b"".join((*full, last)) if full else last

    def open(self, data: bytes) -> bytes:
        """Takes sealed bytes in any split. Returns the plain ZMTP frames that are complete; raises ProtocolViolation."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return b""
            data = bytes(self._rest)
            self._rest = bytearray()
        size = len(data)
        plain = bytearray(size)  # a plain frame is always shorter than its sealed one
        source = from_buffer(data)
        target = from_buffer(plain)
        key = self._key
        number = self._their_number
        nonce = self._their_nonce
        head = self._their_head
        seen = self._seen
        out = position = need = 0
        while position + 2 <= size:
            low = seen + 1 & 255
            if low and not data[position]:
                box = position + HEAD
                if data[position + 2 : box - 1] == head and box <= size and data[box - 1] == low:
                    # Nearly all frames: short, and with the next number.
                    number[23] = low
                    total = data[position + 1]
                    end = position + 2 + total
                    if end > size:
                        need = end - position
                        break
                    if total < OVERHEAD:
                        raise ProtocolViolation("a frame that is not a CURVE MESSAGE")
                    seen += 1
                    out += 1
                    if open_into(target + out, source + box, total - 16, nonce, key):
                        raise ProtocolViolation(BROKEN)
                    inner = plain[out]
                    if inner > 3:
                        raise ProtocolViolation(f"reserved flags {inner:#04x} in a CURVE MESSAGE")
                    plain[out - 1] = inner if inner < 2 else inner + 2
                    plain[out] = total - OVERHEAD
                    out += total - 32
                    position = end
                    continue
            flags = data[position]
            if flags & 2:
                if position + 9 > size:
                    break
                total = int.from_bytes(data[position + 1 : position + 9], "big")
                body = position + 9
            else:
                total = data[position + 1]
                body = position + 2
            if flags & 0xF9:  # libzmq sends MESSAGE as a plain last frame; as a command it is taken, too
                raise ProtocolViolation(f"frame flags {flags:#04x} outside a CURVE box")
            length = total - OVERHEAD
            if length > self._max_frame:
                raise ProtocolViolation(f"frame of {length} bytes; the limit is {self._max_frame} (limits.max_message)")
            end = body + total
            if end > size:
                need = end - position
                break
            if length < 0 or not data.startswith(MESSAGE, body):
                raise ProtocolViolation("a frame that is not a CURVE MESSAGE")
            count = int.from_bytes(data[body + 8 : body + 16], "big")
            if count <= seen:
                raise ProtocolViolation("CURVE MESSAGE with a nonce that was used before")
            seen = count
            pack_count(number, 16, count)
            head = data[body : body + 15]
            start = out + 1 if length < 256 else out + 8  # its octet of flags is where the end of the length will be
            if open_into(target + start, source + (body + 16), total - 16, nonce, key):
                raise ProtocolViolation(BROKEN)
            inner = plain[start]
            if inner > 3:
                raise ProtocolViolation(f"reserved flags {inner:#04x} in a CURVE MESSAGE")
            if length < 256:
                plain[out] = inner & 1 | (inner & 2) << 1
                plain[out + 1] = length
                out += 2 + length
            else:
                plain[out] = inner & 1 | (inner & 2) << 1 | 2
                plain[out + 1 : out + 9] = length.to_bytes(8, "big")
                out += 9 + length
            position = end
        self._seen = seen
        self._their_head = head
        if position < size:
            self._rest += memoryview(data)[position:]
            self._need = need
        return memoryview(plain)[:out].tobytes()
