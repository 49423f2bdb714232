"""SP, the wire protocol of nanomsg and NNG: REQ/REP over TCP and IPC, both sides. ``web/sp_socket.py`` has it over WebSocket.

``SpLink`` is one connection: an 8-byte hello each way, then messages with a length prefix. A REQ/REP message begins with a request id of
one 4-byte word whose top bit is set. A message that passed devices has further words before it, which the devices need for routing the
reply. The whole *stack* is the id of the request, and the reply carries it unchanged.
"""

from io import BytesIO
from struct import Struct

from polydomo.errors import ProtocolViolation
from polydomo.limits import HELD_INPUT, MAX_MESSAGE, SP_MAX_STACK, WORK_BYTES, WORK_MESSAGE
from polydomo.native import trait
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, Link, LinkHandler

MAGIC = b"\x00SP\x00"
REQ = 0x0030
REP = 0x0031
NAMES = {
    0x0010: "PAIR", 0x0011: "PAIR1", 0x0020: "PUB", 0x0021: "SUB", REQ: "REQ", REP: "REP",
    0x0050: "PUSH", 0x0051: "PULL", 0x0062: "SURVEYOR", 0x0063: "RESPONDENT", 0x0070: "BUS",
}  # fmt: skip
HELLO_SIZE = 8
LENGTH = Struct(">Q")  # of a message
WORD = 4
ID_BIT = 0x80  # in the first byte of the word that ends the stack


def hello(protocol: int) -> bytes:
    """The first bytes of each side: magic, protocol number, two reserved bytes."""
    return MAGIC + protocol.to_bytes(2, "big") + b"\x00\x00"


def body_at(data: bytes, start: int, end: int) -> int:
    """The position of the body of the message at ``data[start:end]``, after the word with the top bit. 0: too many words."""
    position = start
    for _ in range(SP_MAX_STACK):
        if end - position < WORD:
            raise ProtocolViolation("SP message without a request id")
        position += WORD
        if data[position - WORD] & ID_BIT:
            return position
    return 0


def split(data: bytes, start: int, end: int) -> "list[bytes]":
    """A message that a link handed over as [request id, body]."""
    body = body_at(data, start, end)
    return [data[start:body], data[body:end]]


def message(rid: bytes, body: bytes, ipc: bool = False) -> bytes:
    """Encodes a complete message."""
    size = (len(rid) + len(body)).to_bytes(8, "big")
    return b"".join((b"\x01" if ipc else b"", size, rid, body))


@trait
class SpSender:
    """Sends SP messages over some transport."""

    def send_message(self, rid: bytes, header: bytes, payload: Body = b"") -> None:
        """Sends a message whose body is ``header`` and ``payload``."""
        raise NotImplementedError


class SpLink(Link, SpSender):
    """One SP connection over TCP or IPC: the listening end is REP, the dialing end is REQ."""

    wire = "sp"
    dropped = 0  # messages with more words in their stack than any network of devices has use for
    _at = 0  # where in ``_rest`` to continue
    _missing = 0  # bytes it still needs

    def __init__(
        self,
        hub: Hub,
        handler: LinkHandler,
        peer: str,
        *,
        listener: bool = True,
        ipc: bool = False,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        super().__init__(hub, handler, peer)
        self._open = False
        self._rest = b""  # an unfinished hello or length, or what came while paused
        self._gather: BytesIO | None = None  # an unfinished message
        self.listener = listener
        self.ipc = ipc
        self.max_message = max_message
        self.peer_protocol = REQ if listener else REP
        self._lead = b"\x01" if ipc else b""  # on IPC each message begins with its type, of which there is one
        self._head = len(self._lead) + 8
        self.send(hello(REP if listener else REQ))

    @property
    def open(self) -> bool:
        return self._open and not self.closed

    def send_message(self, rid: bytes, header: bytes, payload: Body = b"") -> None:
        """Sends a message whose body is ``header`` and ``payload``; a large payload is not copied."""
        size = len(payload)
        self.send_pieces((self._lead, LENGTH.pack(len(rid) + len(header) + size), rid, header, payload), size)

    def drop_input(self) -> None:
        self._rest = b""
        self._gather = None

    def receive(self, data: bytes) -> int:
        hub = self.hub
        hub.received += len(data)
        if hub.work_left < 0:
            self.use_up()
        before = self.work_left
        position = 0
        if self._rest:
            if self.input_bytes:
                self.book_input(0)
            if data:
                data = self._rest[self._at :] + data
            else:
                data = self._rest
                position = self._at
            self._rest = b""
        if self.state:
            return self.pauses
        try:
            if not self._open:
                if not self._hello(data):
                    return self.pauses
                position = HELLO_SIZE
            self._traffic(data, position)
        except ProtocolViolation as error:
            self._gather = None
            self.violation(error)
        hub.work_left -= before - self.work_left
        return self.pauses

    def _hello(self, data: bytes) -> bool:
        if data[:4] != MAGIC[: len(data)] or data[6:8] != b"\x00\x00"[: max(0, len(data) - 6)]:
            raise ProtocolViolation("not an SP hello")
        if len(data) < HELLO_SIZE:
            self._rest = data
            self._at = 0
            return False
        protocol = int.from_bytes(data[4:6], "big")
        if protocol != self.peer_protocol:
            ours, wanted = NAMES[REP if self.listener else REQ], NAMES[self.peer_protocol]
            theirs = NAMES.get(protocol, "unknown")
            raise ProtocolViolation(f"SP protocol 0x{protocol:04x} ({theirs}): {ours} talks to {wanted} only")
        self._open = True
        self.handler.on_open()
        return True

    def _traffic(self, data: bytes, position: int) -> None:
        """The hot loop: each whole message at its position, the unfinished last one gathered without copying it again and again."""
        size = len(data)
        head = self._head
        most = self.max_message
        if self._gather is not None and not self.state and not self.pauses:
            position = self._continue(self._gather, data, position)
            if self._gather is not None:
                return
        while True:
            if self.state or self.pauses:
                if position < size and not self.state:
                    self._rest = data
                    self._at = position
                    self.book_input(size)
                return
            start = position + head
            if start > size:
                break
            if head == 9 and data[position] != 1:
                raise ProtocolViolation(f"SP message of type 0x{data[position]:02x} on IPC")
            (length,) = LENGTH.unpack_from(data, start - 8)
            if length > most:
                raise ProtocolViolation(f"message of {length} bytes; the limit is {most}")
            if length < WORD:
                raise ProtocolViolation("SP message without a request id")
            position = start + length
            if position > size:
                self._gather = BytesIO()
                self._gather.write(memoryview(data)[start:])
                self._missing = position - size
                self.book_input(size - start)
                return
            if data[start] & ID_BIT:  # no devices in between, by far the most common
                self.handler.on_message(data, start, position)
            else:
                self._deliver_stacked(data, start, position)
            self.work_left -= WORK_MESSAGE
            if length >= HELD_INPUT:
                self.work_left -= length >> WORK_BYTES
            if self.work_left < 0:
                self.use_up()
        if position < size:
            self._rest = data[position:]
            self._at = 0

    def _continue(self, gather: BytesIO, data: bytes, position: int) -> int:
        """More of the unfinished message; returns the position after what was taken."""
        end = min(position + self._missing, len(data))
        gather.write(memoryview(data)[position:end])
        self._missing -= end - position
        self.book_input(gather.tell())
        self.charge((end - position) >> WORK_BYTES)
        if self._missing == 0:
            self._gather = None
            self.book_input(0)
            whole = gather.getvalue()  # does not copy
            if whole[0] & ID_BIT:
                self.handler.on_message(whole, 0, len(whole))
            else:
                self._deliver_stacked(whole, 0, len(whole))
        return end

    def _deliver_stacked(self, data: bytes, start: int, end: int) -> None:
        if not self.listener:
            raise ProtocolViolation("SP reply whose request id lacks its top bit")
        elif body_at(data, start, end):
            self.handler.on_message(data, start, end)
        else:
            self.dropped += 1  # dropped, as in NNG, because other peers may share the device
