"""ZMTP, the wire protocol of ZeroMQ: 3.1 and 3.0 (RFC 37 and 23) and 2.0 (RFC 15), both sides.

``ZmtpLink`` is one connection. ``handshake`` opens it; the traffic is here. The traffic loop is the hottest code of the project: it
finds the end of each message, enforces the limits, and passes positions; it creates no object per frame.
"""

from io import BytesIO

from polydomo import limits
from polydomo.errors import ProtocolViolation
from polydomo.limits import HELD_INPUT, SMALL_READ, WORK_BYTES, WORK_FRAMES, WORK_MESSAGE, WORK_SEALED
from polydomo.wire.frames import Body
from polydomo.wire.link import DEFAULT_BOUNDS, Bounds, Hub, Link, LinkHandler
from polydomo.wire.security.mechanism import Mechanism, Null, command, parse_command
from polydomo.wire.zmtp import extensions
from polydomo.wire.zmtp.handshake import Handshake, Select

FAST_PATH_ENVELOPE = 2048  # more than the frames in front of the body of any message on a fast path
GATHER = 4096  # an unfinished message longer than this is gathered, not concatenated


class ZmtpLink(Link):
    """One ZMTP connection. The listening side adapts its socket type to the peer's; the connecting side has its own."""

    wire = "zmtp"
    version = (3, 1)
    peer_type = b""
    _plain = 0  # pieces of ``out`` that belong to the handshake, and are not sealed
    mechanism: Mechanism | None = None  # after the handshake: seals the traffic

    def __init__(
        self,
        hub: Hub,
        handler: LinkHandler,
        peer: str,
        socket_type: bytes = b"",
        bounds: Bounds = DEFAULT_BOUNDS,
        mechanism: Mechanism | None = None,
        select: Select | None = None,
    ) -> None:
        """``socket_type`` is that of the connecting side; it is empty at the listening side, which begins as a ROUTER."""
        super().__init__(hub, handler, peer)
        self._rest = b""  # an incomplete message, or input that arrived while paused
        self._gather: BytesIO | None = None  # the same, for a long one
        self.bounds = bounds
        self.fast_path_size = max(0, min(limits.BIG_BODY, bounds.max_frame, bounds.max_message) - FAST_PATH_ENVELOPE)
        listener = not socket_type
        self.our_type = socket_type or b"ROUTER"
        self._scan = 0  # position up to which the incomplete message was parsed
        self._count = 0  # frames of it seen
        self._need = 0  # it need not be parsed again before it has this many bytes
        if mechanism is None:
            mechanism = Null(listener, self.our_type)
        self._handshake: Handshake | None = Handshake(self, listener, self.our_type, bounds, mechanism, select)

    @property
    def open(self) -> bool:
        return self._handshake is None and not self.closed

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
            elif hub.work_left < 0 and self._handshake is None:
                self.use_up()
            if self.seals:
                assert self.mechanism is not None
                data = self.mechanism.decode(data)
                self.work_left -= WORK_MESSAGE + (len(data) >> WORK_SEALED)
            if self._handshake is None:
                self._traffic(data, start)
            elif not self.state:
                self._shake(self._rest + data)
        except ProtocolViolation as error:
            self.violation(error)
        hub.work_left -= before - self.work_left
        self._fast = (
            self._handshake is None
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

    def _shake(self, data: bytes) -> None:
        """Everything before traffic. ``data`` is what is left of the peer's bytes."""
        handshake = self._handshake
        if handshake is None or self.state or self.pauses:
            self._rest = data
            return
        data = handshake.receive(data)
        if not handshake.done:
            self._rest = data
            return
        self._rest = b""
        self._open(handshake)
        if self.mechanism is not None:
            self._plain = len(self.out)
            data = self.mechanism.decode(data)
        self.handler.on_open()
        if data:
            if self.hub.work_left < 0:
                self.use_up()
            self._traffic(data, 0)

    def _open(self, handshake: Handshake) -> None:
        """The handshake is done; it is dropped, which saves memory for idle connections."""
        self._handshake = None
        self.version = handshake.version
        self.our_type = handshake.our_type
        self.peer_type = handshake.peer_type
        if handshake.identity:
            self.identity = handshake.identity
        mechanism = handshake.mechanism
        self.peer_is_broker = mechanism.peer_is_broker
        if mechanism.peer_extensions:
            self.extensions = extensions.parse(mechanism.peer_extensions)
        if mechanism.principal:
            self.principal = mechanism.principal
        if mechanism.transforms:
            self.mechanism = mechanism
            self.seals = True
            self.needs_full_flush = True

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
            # A short frame with MORE, by far the most common; the next step checks whether it is complete.
            if flags == 1:
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
                    # ``_traffic`` decides whether it is invalid or only incomplete.
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
