"""WebSocket (RFC 6455): the server's handshake, and encoding and decoding of messages.

The sans-I/O core of ``websockets`` reads and writes frames; this module joins fragments, checks UTF-8 and enforces the limits. No
extension is offered: compression would cost CPU on the loop, and a small frame could expand to a large message.
"""

from base64 import b64decode, b64encode
from hashlib import sha1
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, CLOSING, OPEN, SERVER, Protocol

from polydomo.limits import MAX_CONTROL, MAX_FRAMES, MAX_MESSAGE
from polydomo.wire.http.head import HttpError, RequestHead

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
VERSION: Final = "13"

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
BAD_DATA: Final = 1003
BAD_TEXT: Final = 1007
POLICY: Final = 1008
TOO_BIG: Final = 1009


class LargeText:
    """A text message of more than MAX_CONTROL bytes. It is not decoded, and not checked for UTF-8 yet."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


Message = str | bytes | LargeText


def accept_key(head: RequestHead) -> str:
    """The Sec-WebSocket-Accept for an upgrade request. Raises HttpError if the request is not a WebSocket handshake."""
    headers = head.headers
    protocols = [name.strip().lower() for name in headers.get("upgrade", "").split(",")]
    if not head.upgrade or "websocket" not in protocols or head.method != "GET":
        raise HttpError(
            426, "this path requires WebSocket: send GET with Connection: Upgrade and Upgrade: websocket", close=False
        )
    if headers.get("sec-websocket-version") != VERSION:
        raise HttpError(426, "only version 13 of WebSocket is supported", close=False)
    key = headers.get("sec-websocket-key", "")
    try:
        if len(b64decode(key, validate=True)) != 16:
            raise ValueError
    except ValueError:
        raise HttpError(400, "Sec-WebSocket-Key is not 16 bytes in base64", close=False) from None
    return b64encode(sha1(key.encode() + GUID).digest()).decode()


class WebSocket:
    """The server's side of one open WebSocket: bytes in, messages out, and back."""

    def __init__(self, max_message: int = MAX_MESSAGE) -> None:
        self._protocol = Protocol(SERVER, state=OPEN, max_size=max_message)
        self._pieces: list[bytes] = []  # of a fragmented message
        self._text = False
        self._held = 0  # bytes of the pieces

    @property
    def open(self) -> bool:
        return self._protocol.state is OPEN

    @property
    def finished(self) -> bool:
        """Whether both sides have finished, so that the connection can be closed."""
        return self._protocol.state in (CLOSING, CLOSED)

    @property
    def close_reason(self) -> str:
        """Why it ended, for the log; "" for a normal close."""
        protocol = self._protocol
        error = protocol.parser_exc
        if error is not None and not isinstance(error, EOFError):
            return f"protocol violation: {error}"
        return ""

    def unfinished(self) -> int:
        """Bytes of an unfinished frame, and of the fragments before it."""
        return len(self._protocol.reader.buffer) + self._held

    def drop_unfinished(self) -> None:
        self._protocol.reader.buffer.clear()
        self._pieces = []
        self._held = 0

    def receive(self, data: bytes) -> "list[Message]":
        """The messages that ``data`` completes. Pings and a close are answered automatically; see ``out``."""
        if not self.open:
            return []
        self._protocol.receive_data(data)
        found: list[Message] = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._take(event, found)
        return found

    def _take(self, frame: Frame, found: "list[Message]") -> None:
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._pieces.append(bytes(frame.data))
        self._held += len(frame.data)
        if not frame.fin:
            if len(self._pieces) > MAX_FRAMES:
                self.fail(CloseCode.POLICY_VIOLATION, f"more than {MAX_FRAMES} fragments")
            return
        message = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._held = 0
        if not self._text:
            found.append(message)
            return
        if len(message) > MAX_CONTROL:
            found.append(LargeText(message))
            return
        try:
            found.append(message.decode())
        except UnicodeDecodeError:
            self.fail(CloseCode.INVALID_DATA, "a text message is not UTF-8")

    def send(self, message: str | bytes) -> None:
        if not self.open:
            return
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)

    def send_in_frames(self, message: bytes, size: int) -> None:
        """A binary message in frames of at most ``size`` bytes."""
        if not self.open:
            return
        self._protocol.send_binary(message[:size], fin=len(message) <= size)
        for start in range(size, len(message), size):
            self._protocol.send_continuation(message[start : start + size], fin=start + size >= len(message))

    def send_encoded(self, text: bytes, first: bool = True, last: bool = True) -> None:
        """A text message that is UTF-8 already, or a fragment of one: the first, the last, or one between them."""
        if self.open and first:
            self._protocol.send_text(text, fin=last)
        elif self.open:
            self._protocol.send_continuation(text, fin=last)

    def ping(self) -> None:
        if self.open:
            self._protocol.send_ping(b"")

    def fail(self, code: int, reason: str) -> None:
        """Closes the connection with a status."""
        if self.open:
            self._protocol.fail(code, reason[:120])

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        if self.open:
            self._protocol.send_close(code, reason[:120])

    def out(self) -> bytes:
        """The bytes to write."""
        return b"".join(self._protocol.data_to_send())
