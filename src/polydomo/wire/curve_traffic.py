"""CURVE's MESSAGE commands: ZMTP frames, each sealed in a box of its own (RFC 26).

``seal`` and ``open`` translate between plain ZMTP frames and sealed ones, so the rest of the wire sees the same bytes with CURVE as
without. Both work on whole batches and let libsodium write into the output buffer; no object is made per frame beside its nonce.
"""

from polydomo.errors import ProtocolViolation
from polydomo.wire.sodium import from_buffer, open_into, seal_into

MESSAGE = b"\x07MESSAGE"
OVERHEAD = 33  # "\x07MESSAGE", 8 octets of nonce, 16 of authentication, 1 of flags
SERVER_PREFIX = b"CurveZMQMESSAGES"
CLIENT_PREFIX = b"CurveZMQMESSAGEC"


class CurveTraffic:
    """Seals what one side of a connection sends, and opens what it receives.

    ``sent`` and ``seen`` are the last short nonces used by either side in the handshake. "This nonce SHALL be an incrementing integer,
    and unique to each command within a connection."
    """

    def __init__(self, key: bytes, server: bool, sent: int, seen: int, max_frame: int) -> None:
        self._key = key
        self._ours = SERVER_PREFIX if server else CLIENT_PREFIX
        self._theirs = CLIENT_PREFIX if server else SERVER_PREFIX
        self._sent = sent
        self._seen = seen
        self._max_frame = max_frame
        self._rest = bytearray()  # the beginning of a sealed frame
        self._need = 0  # no whole frame is there before this many bytes

    def seal(self, data: bytes) -> bytes:
        """``data`` is whole ZMTP frames: messages and commands. Returns the frames that carry them."""
        plain = bytearray(data)
        size = len(plain)
        total = 0
        position = 0
        while position < size:
            if plain[position] & 2:
                length = int.from_bytes(plain[position + 1 : position + 9], "big")
                position += 9 + length
            else:
                length = plain[position + 1]
                position += 2 + length
            total += length + (OVERHEAD + 2 if length + OVERHEAD < 256 else OVERHEAD + 9)
        if position != size:
            raise ValueError("only whole frames can be sealed")
        sealed = bytearray(total)
        source = from_buffer(plain)
        target = from_buffer(sealed)
        key = self._key
        prefix = self._ours
        nonce = self._sent
        out = position = 0
        while position < size:
            flags = plain[position]
            if flags & 2:
                length = int.from_bytes(plain[position + 1 : position + 9], "big")
                position += 9
            else:
                length = plain[position + 1]
                position += 2
            # The payload is one octet of flags and the body. The octet before the body, the end of its length, makes room for the flags.
            plain[position - 1] = flags & 1 | (flags & 4) >> 1
            total = length + OVERHEAD
            if total < 256:
                sealed[out + 1] = total
                out += 2
            else:
                sealed[out] = 2
                sealed[out + 1 : out + 9] = total.to_bytes(8, "big")
                out += 9
            nonce += 1
            short = nonce.to_bytes(8, "big")
            sealed[out : out + 16] = MESSAGE + short
            seal_into(target + (out + 16), source + (position - 1), length + 1, prefix + short, key)
            out += total
            position += length
        self._sent = nonce
        return bytes(sealed)

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
        prefix = self._theirs
        seen = self._seen
        out = position = need = 0
        while position + 2 <= size:
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
            if length < 0 or data[body : body + 8] != MESSAGE:
                raise ProtocolViolation("a frame that is not a CURVE MESSAGE")
            short = data[body + 8 : body + 16]
            number = int.from_bytes(short, "big")
            if number <= seen:
                raise ProtocolViolation("CURVE MESSAGE with a nonce that was used before")
            seen = number
            start = out + 1 if length < 256 else out + 8  # its octet of flags is where the end of the length will be
            if open_into(target + start, source + (body + 16), total - 16, prefix + short, key) != 0:
                raise ProtocolViolation(
                    "CURVE MESSAGE cannot be opened: it was changed on the way, or made with another key"
                )
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
