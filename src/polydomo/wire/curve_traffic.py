"""CURVE's MESSAGE commands: ZMTP frames, each sealed in its own box (RFC 26).

``seal`` and ``open`` translate between plain ZMTP frames and sealed ones, so the rest of the wire sees the same bytes with CURVE as
without. Both work on whole batches and let libsodium write into the output buffer; no object is made per frame beside its nonce.
"""

from struct import Struct

from polydomo.errors import ProtocolViolation
from polydomo.wire.sodium import from_buffer, open_into, seal_into

MESSAGE = b"\x07MESSAGE"
SMALL = 2048  # size of frames for which space for the worst case is allocated at once
OVERHEAD = 33  # "\x07MESSAGE", 8 octets of nonce, 16 of authentication, 1 of flags
BROKEN = "CURVE MESSAGE cannot be decrypted: it was modified, or encrypted with another key"
SHORT = 256 - OVERHEAD  # a longer body makes a frame with a long head
pack_head = Struct(">BB8sQ").pack_into  # flags, size, "\x07MESSAGE" and the counter of a short frame
pack_long_head = Struct(">BQ8sQ").pack_into
unpack_head = Struct(">xB8sQ").unpack_from  # the same without the flags
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
        self._number = bytearray((SERVER_PREFIX if server else CLIENT_PREFIX) + bytes(8))  # the nonce of what is sent
        self._their_number = bytearray((CLIENT_PREFIX if server else SERVER_PREFIX) + bytes(8))
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
        nonce = from_buffer(number)
        count = self._sent
        out = position = 0
        while position < size:
            flags = plain[position]
            length = plain[position + 1]
            count += 1
            pack_count(number, 16, count)
            if flags < 2 and length < SHORT and position + length + 2 <= size:  # nearly all frames
                # The payload is one octet of flags and the body: the flags take the place of the length.
                plain[position + 1] = flags
                if out + length + 35 > room:
                    full.append(bytes(memoryview(sealed)[:out]))
                    out = 0
                pack_head(sealed, out, 0, length + OVERHEAD, MESSAGE, count)
                seal_into(target + (out + 18), source + (position + 1), length + 1, nonce, key)
                out += length + 35
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
                pack_head(sealed, out, 0, length + OVERHEAD, MESSAGE, count)
                out += 18
            else:
                pack_long_head(sealed, out, 2, length + OVERHEAD, MESSAGE, count)
                out += 25
            seal_into(target + out, source + (position - 1), length + 1, nonce, key)
            out += length + 17
            position += length
        self._sent = count
        last = bytes(memoryview(sealed)[:out])
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
        nonce = from_buffer(number)
        seen = self._seen
        out = position = need = 0
        while position + 2 <= size:
            if not data[position] and position + 18 <= size:  # nearly all frames
                total: int
                command: bytes
                count: int
                total, command, count = unpack_head(data, position)
                end = position + 2 + total
                if end > size:
                    need = end - position
                    break
                if total < OVERHEAD or command != MESSAGE:
                    raise ProtocolViolation("a frame that is not a CURVE MESSAGE")
                if count <= seen:
                    raise ProtocolViolation("CURVE MESSAGE with a nonce that was used before")
                seen = count
                pack_count(number, 16, count)
                if open_into(target + (out + 1), source + (position + 18), total - 16, nonce, key):
                    raise ProtocolViolation(BROKEN)
                inner = plain[out + 1]
                if inner > 3:
                    raise ProtocolViolation(f"reserved flags {inner:#04x} in a CURVE MESSAGE")
                plain[out] = inner if inner < 2 else inner + 2
                plain[out + 1] = total - OVERHEAD
                out += total - 31
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
                raise ProtocolViolation(f"frame of {length} bytes; the limit is {self._max_frame} (limits.max_frame)")
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
        if position < size:
            self._rest += memoryview(data)[position:]
            self._need = need
        return bytes(memoryview(plain)[:out])
