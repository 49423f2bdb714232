"""ZMTP, the wire protocol of ZeroMQ: 3.1 and 3.0 (RFC 37 and 23) and 2.0 (RFC 15), both sides.

``ZmtpLink`` is one connection: greeting, handshake, traffic. The traffic loop is the hottest code of the project: it finds the end of each
message, enforces the limits, and passes positions; it creates no object per frame.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Final

from polydomo import limits
from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import HELD_INPUT, SMALL_READ, WORK_BYTES, WORK_FRAMES, WORK_MESSAGE, WORK_SEALED
from polydomo.wire import extensions
from polydomo.wire.frames import Body
from polydomo.wire.link import Handler, Hub, Link
from polydomo.wire.mechanism import Mechanism, Null, command, fitting, parse_command

# "greeting = signature version mechanism as-server filler"; libzmq's padding ends in 1, which ZMTP 1.0 peers read as a length.
SIGNATURE = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
PARTIAL_GREETING = SIGNATURE + b"\x03"  # "the first 11 octets of the greeting (signature and major version number)"
MINOR = b"\x01"
GREETING_SIZE = 64
FAST_PATH_ENVELOPE = 2048  # more than the frames in front of the body of any message on a fast path
GATHER = 4096  # an unfinished message longer than this is gathered, not concatenated

Select = Callable[[bytes], Mechanism]  # raises ProtocolViolation if there is no such mechanism

SIGNING: Final = 0
GREETING: Final = 1
SECURING: Final = 2
GREETING_2: Final = 3
TRAFFIC: Final = 4

# ZMTP 2.0: "socket-type = OCTET"
TYPES_2 = {1: b"PUB", 2: b"SUB", 3: b"REQ", 4: b"REP", 5: b"DEALER", 6: b"ROUTER", 9: b"XPUB", 10: b"XSUB"}
NUMBERS_2 = {name: number for number, name in TYPES_2.items()}


class Bounds:
    """Size limits for the messages of one peer. One object for all links of a server."""

    def __init__(
        self,
        max_frame: int = limits.MAX_FRAME,
        max_frames: int = limits.MAX_FRAMES,
        max_message: int = limits.MAX_MESSAGE,
        max_handshake: int = limits.MAX_HANDSHAKE,
        extensions: bytes = b"",
    ) -> None:
        self.max_frame = max_frame
        self.max_frames = max_frames
        self.max_message = max_message
        self.max_handshake = max_handshake
        self.extensions = extensions  # the list that this side announces


DEFAULT_BOUNDS = Bounds()


class ZmtpLink(Link):
    """One ZMTP connection. The listening side adapts its socket type to the peer's; the connecting side has its own."""

    wire = "zmtp"
    version = (3, 1)
    listener = True
    peer_type = b""
    _plain = 0  # pieces of ``out`` that belong to the handshake, and are not sealed
    _greeted = False
    _select: Select | None = None  # returns the server side of the mechanism in the peer's greeting

    def __init__(
        self,
        hub: Hub,
        handler: Handler,
        peer: str,
        listener: bool = True,
        socket_type: bytes = b"ROUTER",
        bounds: Bounds = DEFAULT_BOUNDS,
        mechanism: Mechanism | None = None,
        select: Select | None = None,
        our_identity: bytes = b"",
    ) -> None:
        super().__init__(hub, handler, peer)
        self._state = SIGNING
        self._rest = b""  # an incomplete message, or input that arrived while paused
        self._gather: BytesIO | None = None  # the same, for a long one
        if not listener:
            self.listener = False
        self.bounds = bounds
        self.fast_path_size = max(0, min(limits.BIG_BODY, bounds.max_frame, bounds.max_message) - FAST_PATH_ENVELOPE)
        if select is not None:
            self._select = select
        self.mechanism: Mechanism | None = (
            mechanism if mechanism is not None else (Null(listener, socket_type, our_identity))
        )
        self.our_type = socket_type
        self._scan = 0  # position up to which the incomplete message was parsed
        self._count = 0  # frames of it seen
        self._need = 0  # it need not be parsed again before it has this many bytes
        if not listener:
            self._greet()

    @property
    def open(self) -> bool:
        return self._state == TRAFFIC and not self.closed

    def receive(self, data: bytes) -> int:
        size = len(data)
        hub = self.hub
        hub.received += size
        before = self.work_left
        start = 0
        try:
            if self._fast and (size < SMALL_READ or hub.work_left >= 0):
                start = self.handler.fast_path(data, 0, size)
                if start == size:
                    if size >= SMALL_READ:
                        hub.work_left -= before - self.work_left
                    return self.pauses
            elif hub.work_left < 0 and self._state == TRAFFIC:
                self.use_up()
            if self.seals:
                assert self.mechanism is not None
                data = self.mechanism.decode(data)
                self.work_left -= WORK_MESSAGE + (len(data) >> WORK_SEALED)
            if self._state == TRAFFIC:
                self._traffic(data, start)
            elif not self.state:
                self._shake(self._rest + data)
        except ProtocolViolation as error:
            self.violation(error)
        hub.work_left -= before - self.work_left
        self._fast = (
            self._state == TRAFFIC
            and self.handler.has_fast_path
            and not self._rest  # no incomplete message is kept
            and self._gather is None
            and not self.seals
            and not self.pauses
            and not self.state
        )
        return self.pauses

    def drop_input(self) -> None:
        self._rest = b""
        self._gather = None

    def take(self) -> "list[Body]":
        out = self.out
        self.out = []
        if not self.seals:
            return out
        assert self.mechanism is not None
        plain = self._plain
        self._plain = 0
        if plain >= len(out):
            return out
        return out[:plain] + self.mechanism.encode(out[plain:])

    # --- greeting and handshake -----------------------------------------------------------------------------------------

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self.send(PARTIAL_GREETING)

    def _shake(self, data: bytes) -> None:
        """Everything before traffic. ``data`` is what is left of the peer's bytes; each step takes its part or waits for more."""
        if self.state or self.pauses:
            self._rest = data
            return
        if data and data[0] != 0xFF and self._state == SIGNING:
            raise ProtocolViolation("not a ZMTP greeting")
        if data:
            self._greet()
        while self._state != TRAFFIC:
            before = self._state, len(data)
            if self._state == SIGNING:
                data = self._shake_signature(data)
            elif self._state == GREETING:
                data = self._shake_greeting(data)
            elif self._state == GREETING_2:
                data = self._shake_2(data)
            else:
                data = self._shake_command(data)
            if (self._state, len(data)) == before:
                if len(data) > self.bounds.max_handshake:
                    raise ProtocolViolation(f"handshake longer than {self.bounds.max_handshake} bytes")
                self._rest = data
                return
        self._rest = b""
        if self.seals:
            assert self.mechanism is not None
            self._plain = len(self.out)
            data = self.mechanism.decode(data)
        self.handler.on_open()
        if data:
            if self.hub.work_left < 0:
                self.use_up()
            self._traffic(data, 0)

    def _shake_signature(self, data: bytes) -> bytes:
        if len(data) < 11:
            if len(data) >= 10 and not data[9] & 1:
                raise ProtocolViolation("ZMTP 1.0 is not supported: the peer needs ZeroMQ 3.2 or newer")
            return data
        if not data[9] & 1 or data[10] == 0:
            raise ProtocolViolation("ZMTP 1.0 is not supported: the peer needs ZeroMQ 3.2 or newer")
        if data[10] < 3:
            self.version = (2, 0)
            self._state = GREETING_2
            if not self.listener:
                self.send(bytes((NUMBERS_2[self.our_type],)) + b"\x00\x00")
            return data[11:]
        if self._select is None:
            self._name_mechanism()
        self._state = GREETING
        return data[11:]

    def _name_mechanism(self) -> None:
        assert self.mechanism is not None
        self.mechanism.extensions = self.bounds.extensions
        as_server = b"\x01" if self.mechanism.as_server else b"\x00"
        self.send(MINOR + self.mechanism.name.ljust(20, b"\x00") + as_server + bytes(31))

    def _shake_greeting(self, data: bytes) -> bytes:
        if len(data) < GREETING_SIZE - 11:
            return data
        if data[0] < 1:  # else 3.1: "A peer MUST accept higher protocol versions as valid."
            self.version = (3, 0)
        theirs = data[1:21].rstrip(b"\x00")
        if self._select is not None:
            self.mechanism = self._select(theirs)
            self._name_mechanism()
        assert self.mechanism is not None
        if theirs != self.mechanism.name:
            # "If the mechanism that the peer received does not exactly match the mechanism it sent, it MUST close the connection."
            raise ProtocolViolation(
                f"the peer uses mechanism {theirs.decode(errors='replace')!r}, this side {self.mechanism.name.decode()}"
            )
        self._state = SECURING
        opening = self.mechanism.begin()
        if opening:
            self.send(opening)
        return data[GREETING_SIZE - 11 :]

    def _shake_command(self, data: bytes) -> bytes:
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
        if end > self.bounds.max_handshake:
            raise ProtocolViolation(f"handshake command longer than {self.bounds.max_handshake} bytes")
        if size < end:
            return data
        mechanism = self.mechanism
        assert mechanism is not None
        if mechanism.agrees and not self.hub.pacer.start(self):
            return data
        name, content = parse_command(data[start:end])
        try:
            answer = mechanism.command(name, content)
        except ProtocolViolation as error:
            if name != b"ERROR":  # "ZMTP allows an explicit fatal error response during the mechanism handshake"
                reason = (error.status if isinstance(error, AccessDenied) else str(error)).encode()[:255]
                self.send(command(b"ERROR", bytes((len(reason),)) + reason))
            raise
        if answer:
            self.send(answer)
        if mechanism.done:
            self.peer_is_broker = mechanism.peer_is_broker
            if mechanism.peer_extensions:
                self.extensions = extensions.parse(mechanism.peer_extensions)
            self._opened(mechanism.our_type, mechanism.peer_type, mechanism.identity)
        return data[end:]

    def _shake_2(self, data: bytes) -> bytes:
        """ZMTP 2.0: their socket type, ours and our empty identity, their identity; then frames."""
        if not data:
            return data
        peer_type = TYPES_2.get(data[0], b"")
        if not self.peer_type:
            self.peer_type = peer_type
            if not peer_type:
                raise ProtocolViolation(f"unknown ZMTP 2.0 socket type {data[0]}")
            self.our_type = fitting(self.listener, self.our_type, peer_type)
            if self.listener:
                self.send(bytes((NUMBERS_2[self.our_type],)) + b"\x00\x00")
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
        self._opened(self.our_type, peer_type, data[3:end])
        return data[end:]

    def _opened(self, our_type: bytes, peer_type: bytes, identity: bytes) -> None:
        self.our_type = our_type
        self.peer_type = peer_type
        if identity:
            self.identity = identity
        assert self.mechanism is not None
        if self.mechanism.principal:
            self.principal = self.mechanism.principal
        if self.mechanism.transforms:
            self.seals = True
            self.needs_full_flush = True
        else:
            self.mechanism = None  # no longer needed; saves memory for idle connections
        self._state = TRAFFIC

    # --- traffic --------------------------------------------------------------------------------------------------------

    def _traffic(self, data: bytes, start: int) -> None:
        """Processes ``data`` from ``start`` on, after stored input, which exists only if ``start`` is 0."""
        position = start
        count = 0
        if self._gather is not None:
            if self.state:  # input of a closing connection is dropped
                return
            gathered = self._gathered(data)
            if gathered is None:
                return
            data = gathered
        elif self._rest:
            data = self._rest + data
            self._rest = b""
            if self.input_bytes:
                self.book_input(0)
            position = self._scan
            count = self._count
        if self.state or self.pauses:
            self._put_aside(data, start, 0, 0, 0)
            return
        size = len(data)
        last = size - 1
        handler = self.handler
        bounds = self.bounds
        fast = handler.has_fast_path
        while position < last:
            if fast and position == start:
                start = handler.fast_path(data, position, size)
                if start != position:
                    position = start
                    if self.state or self.pauses:
                        self._put_aside(data, start, 0, 0, 0)
                        return
                    continue
            flags = data[position]
            if (
                flags == 1
            ):  # a short frame with MORE, by far the most common; the next step checks whether it is complete
                position += 2 + data[position + 1]
                count += 1
                continue
            if flags == 0:
                end = position + 2 + data[position + 1]
            elif flags < 4:
                if position + 9 > size:
                    break
                length = int.from_bytes(data[position + 1 : position + 9], "big")
                if length > bounds.max_frame:
                    raise ProtocolViolation(f"frame of {length} bytes, the limit is {bounds.max_frame}")
                end = position + 9 + length
                if flags == 3:
                    position = end
                    count += 1
                    continue
            else:
                end = self._command(data, position, start, size)
                if end <= 0:
                    position = -end if -end > size else position
                    break
                start = position = end
                self.charge(WORK_MESSAGE)
                if self.state or self.pauses:
                    self._put_aside(data, start, 0, 0, 0)
                    return
                continue
            if end > size:
                position = end
                break
            if count >= bounds.max_frames:
                raise ProtocolViolation(f"message of more than {bounds.max_frames} frames")
            if end - start > bounds.max_message:
                raise ProtocolViolation(f"message of {end - start} bytes, the limit is {bounds.max_message}")
            handler.on_message(data, start, end)
            self.work_left -= WORK_MESSAGE if count < 16 else WORK_MESSAGE + (count >> WORK_FRAMES)
            if end - start >= HELD_INPUT:
                self.work_left -= (end - start) >> WORK_BYTES
            if self.work_left < 0:
                self.use_up()
            start = position = end
            count = 0
            if self.state or self.pauses:
                self._put_aside(data, start, 0, 0, 0)
                return
            handler = self.handler  # the first message may have chosen another
            fast = handler.has_fast_path
        if start < size:
            if count >= bounds.max_frames:
                raise ProtocolViolation(f"message of more than {bounds.max_frames} frames")
            if max(position, size) - start > bounds.max_message:
                raise ProtocolViolation(
                    f"message of {max(position, size) - start} bytes or more, the limit is {bounds.max_message}"
                )
            if position > size:  # the current frame is incomplete: this many bytes are needed before parsing again
                self._put_aside(data, start, 0, 0, position - start)
            else:
                self._put_aside(data, start, position - start, count, 0)

    def _put_aside(self, data: bytes, start: int, scan: int, count: int, need: int) -> None:
        """Stores an incomplete message, or input that may not be processed yet."""
        left = len(data) - start
        if not left or self.state:  # input of a closing connection is dropped
            return
        self._scan = scan
        self._count = count
        self._need = need
        if need > GATHER or (left > GATHER and scan):
            self._gather = BytesIO()
            self._gather.write(memoryview(data)[start:])
        else:
            self._rest = data[start:]
        if left >= HELD_INPUT:
            self.book_input(left)

    def _gathered(self, data: bytes) -> bytes | None:
        """Adds to a long incomplete message without copying it. Returns all bytes once the message is complete."""
        gather = self._gather
        assert gather is not None
        gather.write(data)
        size = gather.tell()
        self.book_input(size)
        self.work_left -= len(data) >> WORK_BYTES
        if size < self._need:
            if self.work_left < 0:
                self.use_up()
            return None
        whole = False
        bounds = self.bounds
        view = gather.getbuffer()
        try:
            position = self._scan
            while position + 2 <= size and not whole:
                flags = view[position]
                if flags & 2:
                    if position + 9 > size:
                        break
                    end = position + 9 + int.from_bytes(view[position + 1 : position + 9], "big")
                else:
                    end = position + 2 + view[position + 1]
                if flags > 3 or end > size or end > bounds.max_message:
                    self._need = end
                    # What is wrong with it, and whether it is just unfinished, is said in one place.
                    whole = flags > 3 or end > bounds.max_message or end - position - 9 > bounds.max_frame
                    break
                position = end
                self._count += 1
                whole = not flags & 1 or self._count >= bounds.max_frames
            self._scan = position
        finally:
            view.release()
        if not whole:
            return None
        self._gather = None
        self.book_input(0)
        return gather.getvalue()

    def _command(self, data: bytes, position: int, start: int, size: int) -> int:
        """Handles a command between messages. Returns its end, negative if it is incomplete."""
        flags = data[position]
        if flags not in (4, 6) or self.version[0] < 3:
            raise ProtocolViolation(f"frame flags {flags:#04x}")
        if position != start:
            raise ProtocolViolation("command inside a message")
        if flags == 4:
            body = position + 2
            end = body + data[position + 1]
        else:
            if position + 9 > size:
                return -position
            body = position + 9
            end = body + int.from_bytes(data[position + 1 : body], "big")
        if end - position > self.bounds.max_handshake:
            raise ProtocolViolation(f"command of {end - position} bytes, the limit is {self.bounds.max_handshake}")
        if end > size:
            return -end
        name, content = parse_command(data[body:end])
        if name == b"PING":
            # "ping = command-size %d4 "PING" ping-ttl ping-context"; the answer carries the context.
            if not 2 <= len(content) <= 18:
                raise ProtocolViolation("PING with a context over 16 bytes")
            self.send(command(b"PONG", content[2:]))
        elif name == b"ERROR":
            raise ProtocolViolation(f"peer reports an error: {content[1:].decode(errors='replace')!r}")
        elif name == b"SUBSCRIBE" or name == b"CANCEL":
            self.handler.on_command(name, content)
        elif name == b"READY":
            raise ProtocolViolation("READY twice")
        return end

    def ping(self, ttl: float = 0.0, context: bytes = b"") -> None:
        """Asks the peer for a PONG (3.1 only): shows that its process reads."""
        if self.version >= (3, 1) and self.open:
            self.send(command(b"PING", int(ttl * 10).to_bytes(2, "big") + context))
