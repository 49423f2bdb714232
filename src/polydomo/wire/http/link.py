"""One HTTP/1.1 connection, the server's side: reads requests, one at a time, and writes responses.

The handler gets the head of each request first and may reject it by raising ``HttpError``. Then it gets the body, and answers with
``respond``, or with ``start``, ``write`` and ``finish`` for a body of unknown size. The next request is read after the response; until
then, the broker does not read from a client that pipelines requests.
"""

from typing import Final, Protocol

from polydomo.limits import (
    CHUNKS_AT_ONCE,
    MAX_MESSAGE,
    SLOW_CALLBACK,
    TUNNEL_PIECE,
    WORK_BYTES,
    WORK_HTTP,
    WORK_MESSAGE,
    WORK_STEP,
    WORK_TEXT,
)
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body
from polydomo.wire.http.head import REASONS, HttpError, RequestHead
from polydomo.wire.http.reader import AGAIN, HEAD, NEED_DATA, RequestReader
from polydomo.wire.link import Hub, Link, LinkHandler
from polydomo.wire.steps import Steps

PAUSE_PIPELINED: Final = 1024  # a bit of ``Link.pauses``: input beyond the request that is being answered has arrived

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LINES: Final = {status: f"HTTP/1.1 {status} {reason}\r\n".encode() for status, reason in REASONS.items()}
NO_BODY: Final = (204, 304)  # statuses whose responses have neither a body nor a Content-Length


class HttpHandler(Protocol):
    """Answers the requests of one connection; also a handler of the link."""

    def on_head(self, head: RequestHead) -> None:
        """The head of a request. Raising HttpError rejects the request before its body is read."""

    def on_request(self, head: RequestHead, body: bytes) -> None:
        """A whole request: answer it, now or later. Raising HttpError rejects it."""

    def on_bad_request(self, head: RequestHead | None, error: HttpError) -> None:
        """Answer a request that was rejected; ``head`` is None if it could not be read."""

    def on_linger(self) -> None:
        """The response has been sent, and the rest of the request is not read: close the link soon."""


class TunnelHandler(Protocol):
    """Receives the input of an upgraded connection."""

    def on_tunnel_data(self, data: bytes) -> None:
        """Bytes, as they arrive."""

    def unfinished(self) -> int:
        """Bytes of input that are kept until their message is complete."""

    def drop_unfinished(self) -> None:
        """Frees them: the connection is gone."""


class HttpLink(Link):
    """One HTTP connection."""

    wire = "http"

    http: HttpHandler  # set with ``attach`` before the first byte

    def __init__(self, hub: Hub, peer: str, *, max_message: int = MAX_MESSAGE) -> None:
        super().__init__(hub, LinkHandler(), peer)
        self.reader = RequestReader(max_message)
        self.busy = False  # a request is being answered
        self.tunnel: TunnelHandler | None = None  # upgraded: input goes to this tunnel
        self.steps: Steps | None = (
            None  # work for the current request, or message of the tunnel, that goes on in the next turn
        )
        self.common = b""  # header lines of every response
        self.since = hub.now  # when the current state began: waiting for a request, or receiving one
        self._open = False
        self._discard = False  # an error was answered: further input is not read
        self._chunked = False  # the current response
        self._kept = 0  # bytes that its handler keeps until it is complete
        self._rest = b""  # of an upgraded connection: input that waits for the next turn
        self._keep_alive = False  # after the current request

    @property
    def open(self) -> bool:
        return self._open and not self.closed

    def attach(self, handler: LinkHandler, http: HttpHandler) -> None:
        """Sets the handler, which is one object with two types."""
        self.handler = handler
        self.http = http

    def drop_input(self) -> None:
        self._rest = b""
        self.steps = None
        self.reader.clear()
        if self.tunnel is not None:
            self.tunnel.drop_unfinished()

    def run(self, steps: Steps) -> None:
        """Does this work in steps, as the peer's share allows, before any further input of the peer is handled."""
        self.steps = steps
        self.resume(PAUSE_PIPELINED)
        self.hub.resumed.append(self)  # in case it is not reading now

    # --- from the peer

    def receive(self, data: bytes) -> int:
        hub = self.hub
        hub.received += len(data)
        if hub.work_left < 0:
            self.use_up()
        before = self.work_left
        if self.tunnel is not None:
            if not self.closed:
                self._pass_on(self.tunnel, data)
        elif not self._discard and not self.state:
            if data:
                if not self.busy and not self.reader.partway:
                    self.since = hub.now
                self.work_left -= WORK_MESSAGE + (len(data) >> WORK_BYTES)
                self.reader.feed(data)
            self._read()
            self.book_input(self._held())
            if self.work_left < 0:
                self.use_up()
        hub.work_left -= before - self.work_left
        return self.pauses

    def _held(self) -> int:
        """Bytes of input that is incomplete, or whose handling is."""
        size = self._kept + len(self._rest) + (self.reader.held if self.tunnel is None else self.tunnel.unfinished())
        return size if self.steps is None else size + self.steps.held()

    def _pass_on(self, tunnel: TunnelHandler, data: bytes) -> None:
        """Passes on the input of an upgraded connection; what exceeds the connection's share of the turn waits."""
        if self._rest:
            data = self._rest + data
        at = 0
        clock = self.hub.clock
        since = clock() if clock is not None else 0.0
        while not self.state and not self.pauses and (at < len(data) or self.steps is not None):
            left = self.work_left
            if self.steps is not None:
                self._step(self.steps)
            else:
                piece = data[at : at + TUNNEL_PIECE]
                at += len(piece)
                self.charge(WORK_MESSAGE + (len(piece) >> WORK_TEXT))
                tunnel.on_tunnel_data(piece)
            if clock is not None:
                now = clock()
                self.charge_time(now - since, left - self.work_left)
                since = now
        self._rest = b"" if self.state else data[at:]
        self.book_input(self._held())

    def _read(self) -> None:
        reader = self.reader
        clock = self.hub.clock
        since = clock() if clock is not None else 0.0
        left = self.work_left
        events = 0
        while not self.state and not self.pauses and self.tunnel is None:
            try:
                if self.steps is not None:
                    self._step(self.steps)
                elif self.busy or self._discard:
                    break
                else:
                    event = reader.next()
                    if event == NEED_DATA:
                        break
                    if event != AGAIN:
                        self._take(event)
                    else:
                        self.charge(CHUNKS_AT_ONCE)
            except HttpError as error:
                self._reject(error)
            events += 1
            if events > 1 and clock is not None:  # not after the first head, whose price is enough
                now = clock()
                if now - since > SLOW_CALLBACK:
                    self.charge_time(now - since, left - self.work_left)
                    since = now
                    left = self.work_left
        if self.tunnel is not None:
            rest = reader.rest()
            if rest:
                self._pass_on(self.tunnel, rest)
        elif self.busy and reader.buffered and self.steps is None:
            self.pause(PAUSE_PIPELINED)

    def _step(self, steps: Steps) -> None:
        self.charge(WORK_STEP)
        try:
            if steps.step() and self.steps is steps:
                self.steps = None
        except HttpError:
            self.steps = None
            raise

    def _take(self, event: int) -> None:
        """Handles the head or the body of a request. Raises HttpError."""
        reader = self.reader
        head = reader.head
        assert head is not None
        if event == HEAD:
            self.charge(WORK_HTTP)
            self._open = True
            self._keep_alive = head.keep_alive
            self.http.on_head(head)
            if head.expects_continue and reader.unread() and not reader.buffered:
                self.send(CONTINUE)
        else:
            self.busy = True
            self.http.on_request(head, reader.body)
            reader.body = b""

    def _reject(self, error: HttpError) -> None:
        """Stops reading after a request whose end is unknown or was not reached."""
        head = self.reader.head
        unread = self.reader.unread()
        self._open = True
        if error.close or unread:
            self._discard = True
            self._keep_alive = False
        else:
            self.reader.drop()
        self.busy = True
        self.http.on_bad_request(head, error)
        if self._discard:
            self.http.on_linger()

    # --- to the peer

    def respond(self, status: int, headers: bytes, body: Body = b"") -> None:
        """Sends a whole response. ``headers`` are lines that end with CRLF, without those that frame the message."""
        size = len(body)
        if status in NO_BODY:
            head = b"".join((LINES[status], self.common, headers, self._connection(), b"\r\n"))
            body = b""
        else:
            head = b"".join(
                (LINES[status], self.common, headers, b"Content-Length: %d\r\n" % size, self._connection(), b"\r\n")
            )
            request = self.reader.head
            if request is not None and request.method == "HEAD":
                body = b""
        self.send(head, body)
        self._answered()

    def start(self, status: int, headers: bytes) -> None:
        """Begins a response of unknown size: chunked, or for HTTP/1.0 ended by closing the connection."""
        request = self.reader.head
        self._chunked = request is not None and request.minor == 1
        if not self._chunked:
            self._keep_alive = False
        framing = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        self.send(b"".join((LINES[status], self.common, headers, framing, self._connection(), b"\r\n")))

    def write(self, data: Body) -> None:
        """Sends a piece of the response that ``start`` began."""
        size = len(data)
        if size and self._chunked:
            self.send_pieces((b"%x\r\n" % size, data, b"\r\n"), size)
        elif size:
            self.send(b"", data)

    def keep(self, size: int) -> None:
        """Books bytes that the handler keeps until the response is complete."""
        self._kept += size
        self.book_input(self._held())

    def finish(self) -> None:
        if self._chunked:
            self.send(b"0\r\n\r\n")
        self._answered()

    def upgrade(self, headers: bytes, tunnel: TunnelHandler) -> None:
        """Switches to another protocol: from now on, input goes to ``tunnel``, and output is sent with ``send``."""
        self.send(b"".join((LINES[101], headers, b"Connection: Upgrade\r\n\r\n")))
        self.tunnel = tunnel
        self.busy = False

    def _connection(self) -> bytes:
        head = self.reader.head
        if head is None or not self._keep_alive:
            return b"Connection: close\r\n"
        return b"" if head.minor else b"Connection: keep-alive\r\n"

    def _answered(self) -> None:
        self.busy = False
        if self._kept:
            self._kept = 0
            self.book_input(self._held())
        self.since = self.hub.now
        head = self.reader.head
        if self._discard:
            return  # the handler closes it after the client has had time to read the response
        if head is None or not self._keep_alive:
            self.close(CloseCause.COMPLETE, "answered")
        elif self.pauses & PAUSE_PIPELINED:
            self.resume(PAUSE_PIPELINED)
