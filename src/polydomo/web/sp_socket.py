"""SP over WebSocket: NNG's transports ``ws://`` and ``wss://``, on the port of HTTP.

A REQ socket that dials asks for the subprotocol of its peer, ``rep.sp.nanomsg.org``, at any path. Each binary message is one SP message,
without the length that precedes it on TCP. What it carries is memo01, as on every SP connection.
"""

from collections import deque

from polydomo.errors import ProtocolViolation
from polydomo.limits import SP_FRAME
from polydomo.protocols.memo.session import MemoSession
from polydomo.web.session import Endpoint, HttpSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.http.link import HttpLink
from polydomo.wire.http.websocket import BAD_DATA, WebSocket, accept_key
from polydomo.wire.sp import SpSender, body_at
from polydomo.wire.steps import Steps

SUFFIX = ".sp.nanomsg.org"
# NNG and nanomsg name the listener's side; a client that names its own means the same.
SPOKEN = ("rep" + SUFFIX, "req" + SUFFIX)


def offered(head: RequestHead) -> "list[str]":
    """The subprotocols of SP that an upgrade request offers."""
    names = head.headers.get("sec-websocket-protocol", "").split(",")
    return [name.strip() for name in names if name.strip().endswith(SUFFIX)]


class SpSocketEndpoint(Endpoint):
    """Serves upgrades to SP, at any path."""

    methods: "tuple[str, ...]" = ("GET",)

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        accept_key(head)
        _chosen(head)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        key, name = accept_key(head), _chosen(head)
        link = session.http
        session.hand_over("upgraded to SP over WebSocket")
        tunnel = SpTunnel(link)
        memo = MemoSession(session.broker, link, tunnel)
        memo.dialect = "websocket"
        memo.role = session.role
        tunnel.session = link.handler = memo
        lines = f"Upgrade: websocket\r\nSec-WebSocket-Accept: {key}\r\nSec-WebSocket-Protocol: {name}\r\n"
        link.upgrade(lines.encode(), tunnel)
        session.broker.session_opened(memo)


def _chosen(head: RequestHead) -> str:
    """Raises HttpError if none of the offered subprotocols is served."""
    names = offered(head)
    for name in names:
        if name in SPOKEN:
            return name
    raise HttpError(400, f"the SP protocol {names[0][:100]} is not served here: REP talks to REQ only", close=False)


class SpTunnel(Steps, SpSender):
    """The messages of one upgraded connection. Those that have arrived are handled one by one, as the peer's share allows."""

    session: MemoSession

    def __init__(self, link: HttpLink) -> None:
        self.http = link
        self.socket = WebSocket(link.reader.max_body)
        self._messages: deque[bytes] = deque()
        self._size = 0  # bytes of these

    # --- from the peer

    def on_tunnel_data(self, data: bytes) -> None:
        for message in self.socket.receive(data):
            if isinstance(message, bytes):
                self._messages.append(message)
                self._size += len(message)
            else:
                self.socket.fail(BAD_DATA, "messages of SP are binary")
        if self._messages and self.http.steps is None:
            self.http.steps = self
        self._write()

    def step(self) -> bool:
        message = self._messages.popleft()
        self._size -= len(message)
        try:
            # One with more words in front than any network of devices has is dropped.
            if body_at(message, 0, len(message)):
                self.session.on_message(message, 0, len(message))
        except ProtocolViolation as error:
            self.http.violation(error)
        return not self._messages

    def held(self) -> int:
        return self._size

    def unfinished(self) -> int:
        return self.socket.unfinished()

    def drop_unfinished(self) -> None:
        self.socket.drop_unfinished()
        self._messages.clear()
        self._size = 0

    # --- to the peer

    def send_message(self, rid: bytes, header: bytes, payload: Body = b"") -> None:
        self.socket.send_in_frames(b"".join((rid, header, payload)), SP_FRAME)
        self._write()

    def _write(self) -> None:
        data = self.socket.out()
        if data:
            self.http.send_pieces((data,), len(data))
        if self.socket.finished:
            reason = self.socket.close_reason
            self.http.close(CloseCause.OTHER if reason else CloseCause.PEER_CLOSED, reason)
