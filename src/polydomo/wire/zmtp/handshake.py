"""The beginning of a ZMTP connection: greeting and handshake, both sides, of ZMTP 3.1, 3.0 and 2.0.

A link has a ``Handshake`` until its traffic begins. The handshake takes the peer's bytes in any split, sends through the link, and keeps
what it learns about the peer, which the link then copies.
"""

from collections.abc import Callable
from typing import Final

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.wire.link import Bounds, Link
from polydomo.wire.security.mechanism import Mechanism, command, fitting, parse_command

# "greeting = signature version mechanism as-server filler"; libzmq's padding ends in 1, which ZMTP 1.0 peers read as a length.
SIGNATURE = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
PARTIAL_GREETING = SIGNATURE + b"\x03"  # "the first 11 octets of the greeting (signature and major version number)"
MINOR = b"\x01"
GREETING_SIZE = 64

Select = Callable[[bytes], Mechanism]  # raises ProtocolViolation if there is no such mechanism

SIGNING: Final = 0
GREETING: Final = 1
SECURING: Final = 2
GREETING_2: Final = 3
DONE: Final = 4

# ZMTP 2.0: "socket-type = OCTET"
TYPES_2 = {1: b"PUB", 2: b"SUB", 3: b"REQ", 4: b"REP", 5: b"DEALER", 6: b"ROUTER", 9: b"XPUB", 10: b"XSUB"}
NUMBERS_2 = {name: number for number, name in TYPES_2.items()}


class Handshake:
    """Greeting and handshake of one connection."""

    def __init__(
        self, link: Link, listener: bool, our_type: bytes, bounds: Bounds, mechanism: Mechanism, select: Select | None
    ) -> None:
        self._link = link
        self._listener = listener
        self._bounds = bounds
        self._select = select  # returns the server side of the mechanism in the peer's greeting
        self._state = SIGNING
        self._greeted = False
        self.mechanism = mechanism
        self.version = (3, 1)
        self.our_type = our_type
        self.peer_type = b""
        self.identity = b""
        if not listener:
            self._greet()

    @property
    def done(self) -> bool:
        return self._state == DONE

    def receive(self, data: bytes) -> bytes:
        """Processes the peer's bytes. Returns the rest: the beginning of the next step, or of the traffic if the handshake is done."""
        if data and data[0] != 0xFF and self._state == SIGNING:
            raise ProtocolViolation("not a ZMTP greeting")
        if data:
            self._greet()
        while self._state != DONE:
            before = self._state, len(data)
            if self._state == SIGNING:
                data = self._on_signature(data)
            elif self._state == GREETING:
                data = self._on_greeting(data)
            elif self._state == GREETING_2:
                data = self._on_greeting_2(data)
            else:
                data = self._on_command(data)
            if (self._state, len(data)) == before:
                if len(data) > self._bounds.max_handshake:
                    raise ProtocolViolation(f"handshake longer than {self._bounds.max_handshake} bytes")
                break
        return data

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self._link.send(PARTIAL_GREETING)

    def _on_signature(self, data: bytes) -> bytes:
        if len(data) < 11:
            if len(data) >= 10 and not data[9] & 1:
                raise ProtocolViolation("ZMTP 1.0 is not supported: the peer needs ZeroMQ 3.2 or newer")
            return data
        if not data[9] & 1 or data[10] == 0:
            raise ProtocolViolation("ZMTP 1.0 is not supported: the peer needs ZeroMQ 3.2 or newer")
        if data[10] < 3:
            self.version = (2, 0)
            self._state = GREETING_2
            if not self._listener:
                self._send_type_2()
            return data[11:]
        if self._select is None:
            self._send_mechanism()
        self._state = GREETING
        return data[11:]

    def _send_mechanism(self) -> None:
        mechanism = self.mechanism
        mechanism.extensions = self._bounds.extensions
        as_server = b"\x01" if mechanism.as_server else b"\x00"
        self._link.send(MINOR + mechanism.name.ljust(20, b"\x00") + as_server + bytes(31))

    def _on_greeting(self, data: bytes) -> bytes:
        if len(data) < GREETING_SIZE - 11:
            return data
        if data[0] < 1:  # else 3.1: "A peer MUST accept higher protocol versions as valid."
            self.version = (3, 0)
        theirs = data[1:21].rstrip(b"\x00")
        if self._select is not None:
            self.mechanism = self._select(theirs)
            self._send_mechanism()
        if theirs != self.mechanism.name:
            # "If the mechanism that the peer received does not exactly match the mechanism it sent, it MUST close the connection."
            raise ProtocolViolation(
                f"the peer uses mechanism {theirs.decode(errors='replace')!r}, this side {self.mechanism.name.decode()}"
            )
        self._state = SECURING
        opening = self.mechanism.begin()
        if opening:
            self._link.send(opening)
        return data[GREETING_SIZE - 11 :]

    def _on_command(self, data: bytes) -> bytes:
        size = len(data)
        if size < 2:
            return data
        if data[0] == 4:
            start = 2
            end = 2 + data[1]
        elif data[0] == 6:
            start = 9
            end = 9 + int.from_bytes(data[1:9], "big")
            if size < 9:
                return data
        else:
            raise ProtocolViolation("message before the handshake was done")
        if end > self._bounds.max_handshake:
            raise ProtocolViolation(f"handshake command longer than {self._bounds.max_handshake} bytes")
        if size < end:
            return data
        mechanism = self.mechanism
        link = self._link
        if mechanism.agrees and not link.hub.pacer.start(link):
            return data
        name, content = parse_command(data[start:end])
        try:
            answer = mechanism.command(name, content)
        except ProtocolViolation as error:
            if name != b"ERROR":  # "ZMTP allows an explicit fatal error response during the mechanism handshake"
                reason = (error.status if isinstance(error, AccessDenied) else str(error)).encode()[:255]
                link.send(command(b"ERROR", bytes((len(reason),)) + reason))
            raise
        if answer:
            link.send(answer)
        if mechanism.done:
            self.our_type = mechanism.our_type
            self.peer_type = mechanism.peer_type
            self.identity = mechanism.identity
            self._state = DONE
        return data[end:]

    def _on_greeting_2(self, data: bytes) -> bytes:
        """ZMTP 2.0: their socket type, ours and our empty identity, their identity; then frames."""
        if not data:
            return data
        if not self.peer_type:
            self.peer_type = TYPES_2.get(data[0], b"")
            if not self.peer_type:
                raise ProtocolViolation(f"unknown ZMTP 2.0 socket type {data[0]}")
            self.our_type = fitting(self._listener, self.our_type, self.peer_type)
            if self._listener:
                self._send_type_2()
        if len(data) < 3:
            return data
        if data[1] != 0:
            raise ProtocolViolation("ZMTP 2.0 identity is not a short final frame")
        end = 3 + data[2]
        if len(data) < end:
            return data
        if self._select is not None:  # ZMTP 2.0 has no mechanisms; it counts as NULL, without an ERROR command
            self.mechanism = self._select(b"NULL")
            self.mechanism.admit()
        self.identity = data[3:end]
        self._state = DONE
        return data[end:]

    def _send_type_2(self) -> None:
        self._link.send(bytes((NUMBERS_2[self.our_type],)) + b"\x00\x00")
