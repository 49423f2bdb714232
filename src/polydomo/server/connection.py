"""One socket: asyncio on one side, a pure ``Link`` on the other."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import CLOSE_TIME, UNSENT_NOTICE
from polydomo.protocols.detect import Detector
from polydomo.protocols.http_session import HttpSession
from polydomo.protocols.roles import SHARED, Role
from polydomo.server import logs
from polydomo.server.access import Identity
from polydomo.server.logs import say, trouble
from polydomo.tls import TlsBytes
from polydomo.wire.address import is_loopback, parse_url
from polydomo.wire.closing import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.http import BEGINNINGS
from polydomo.wire.http_link import HttpLink
from polydomo.wire.link import ABORTING, PAUSE_NOT_READING, PAUSE_SHARE_USED, Link
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp import ZmtpLink

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

LOG = logs.get("server")

NO_TLS = b"\x15\x03\x03\x00\x02\x02\x46"  # a fatal alert: protocol_version


class Connection(asyncio.Protocol):
    """Looks at the first bytes, then hands everything to the link they call for."""

    transport: asyncio.Transport
    link: Link | None = None
    peer = ""
    source = ""
    reading = True
    choked = False
    outgoing = False  # we made it
    identity: Identity | None = None  # with access control: who the peer is
    tls: TlsBytes | None = None
    principal = ""  # who it was counted as
    watched = -1  # its file descriptor, while the server watches it for closing
    _first = b""

    def __init__(self, server: "BrokerServer", ipc: bool, role: Role = SHARED, local: bool = True) -> None:
        self.server = server
        self.ipc = ipc
        self.local = local  # no other machine reaches its listener
        self.since = 0.0  # when it was accepted
        self.role = role  # of the listener
        self._take: Callable[[bytes], None] = self._shake  # what takes the bytes that come
        self._take_inside: Callable[[bytes], None] = self._shake  # ... and those that come inside TLS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = _name(transport, self.server, self.ipc)
        self.source = self.peer.rpartition(":")[0]  # its host; all peers of local sockets are one source
        if not self.server.admit(self):
            self.transport.abort()
            return
        # From here on the transport tells us, so that what the peer has not read is known and counted.
        self.transport.set_write_buffer_limits(high=UNSENT_NOTICE, low=UNSENT_NOTICE // 4)
        access = self.server.access
        if access is not None and not self.outgoing:
            private = self.ipc or is_private(self.peer)
            self.identity = Identity(access, private, self.server.bounds.max_frame)
            if self.ipc:
                self.identity.by_socket(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        server = self.server
        if not server.awake:
            server.wake()
        take = self._take
        try:
            take(data)
        except Exception:
            self.fail()
        link = self.link
        if link is not None and link.pauses and self.reading:  # now: the loop would go on reading from it in this turn
            self._set_reading(False)

    def _shake(self, data: bytes) -> None:
        """What comes until the handshake is done."""
        if self.link is None:
            self._sniff(self._first + data)
        else:
            self.link.receive(data)
        if self.link is not None and self.link.open:
            if self.tls is None:
                self._take = self.link.receive
            else:
                self._take_inside = self.link.receive
            self.server.shaking.pop(self, None)
            if self.link.principal:
                self.known_as(self.link.principal)

    def known_as(self, principal: str) -> None:
        """The peer proved to be this principal, whose connections are counted."""
        if self.identity is not None and not self.principal:
            self.principal = principal
            self.identity.access.connections[principal] += 1

    def _decrypt(self, data: bytes) -> None:
        """TLS: what comes from the socket goes through here."""
        tls = self.tls
        assert tls is not None
        shaken = tls.shaken
        try:
            inside = tls.receive(data)
        except ProtocolViolation as error:
            self._write_tls(tls)  # the alert
            self._turn_away(str(error), b"")
            return
        if tls.shaken and not shaken and self.identity is not None:
            self.identity.by_tls(tls)
        self._write_tls(tls)
        if inside:
            self._take_inside(inside)
        if tls.ended:
            self.eof_received()

    def _write_tls(self, tls: TlsBytes) -> None:
        data = tls.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def write(self, pieces: "list[Body]") -> None:
        """Writes what a wire has to say."""
        if self.tls is None:
            self.transport.writelines(pieces)
        else:
            self.tls.send(pieces)
            self._write_tls(self.tls)

    def close_transport(self) -> None:
        """Closes the connection after what was written has been sent."""
        if self.tls is not None and not self.transport.is_closing():
            self.tls.close()
            self._write_tls(self.tls)
        self.transport.close()

    def go_on(self, link: Link) -> None:
        """The peer may be heard again: first what it had said already."""
        try:
            link.receive(b"")
        except Exception:
            self.fail()

    def fail(self) -> None:
        """A fault of ours, met while serving this peer, ends this connection and nothing else."""
        session = self.link.handler if self.link is not None else None
        trouble(LOG, "internal error", peer=self.peer, protocol=getattr(session, "protocol", "unknown"))
        self.transport.abort()

    def _sniff(self, data: bytes) -> None:
        """The first bytes tell the wire."""
        server = self.server
        if server.health.leaving and data[0] in (0xFF, 0x00):
            self._turn_away("the broker is shutting down", b"", logging.DEBUG)
        elif data[0] == 0xFF:
            detector = Detector(server.broker, self.role)
            select = self.identity.select if self.identity is not None else None
            self._speak(ZmtpLink(server.hub, detector, self.peer, bounds=server.bounds, select=select), detector, data)
        elif data[:4] == b"\x00SP\x00":
            detector = Detector(server.broker, self.role)
            link = SpLink(server.hub, detector, self.peer, ipc=self.ipc, max_message=server.bounds.max_message)
            if self._identified(link):
                self._speak(link, detector, data)
        elif len(data) < 4 and (data == b"\x00SP\x00"[: len(data)] or data[0] == 0x16 or data[:1].isalpha()):
            self._first = data
        elif data[:4] in BEGINNINGS and self.role is SHARED:
            self._speak_http(HttpLink(server.hub, self.peer, max_message=server.bounds.max_message), data)
        elif data[:2] == b"\x16\x03" and self.tls is None:
            context = server.access.tls_context if server.access is not None else None
            if context is None:
                self._turn_away("TLS is not served here; the access file needs server.tls", NO_TLS)
                return
            self._first = b""
            self.tls = TlsBytes(context, True)
            self._take = self._decrypt
            self._decrypt(data)
        else:
            self._turn_away(f"not ZMTP, not SP: first bytes {data[:8].hex(' ')}", b"")

    def _identified(self, link: Link) -> bool:
        """For a wire without a handshake of its own: the peer is known by TLS or by its socket, or is turned away."""
        if self.identity is not None:
            try:
                link.principal = self.identity.principal()
            except AccessDenied as error:
                self.server.denied("handshake")
                self._turn_away(str(error), b"")
                return False
        return True

    def _speak(self, link: Link, detector: Detector, data: bytes) -> None:
        if self.tls is not None:
            link.needs_full_flush = True
        self.link = link
        link.source = self.source
        if not self.local:
            link.local = False
        link.owner = self
        self._first = b""
        detector.attach(link)
        link.receive(data)

    def _speak_http(self, link: HttpLink, data: bytes) -> None:
        HttpSession(self.server.broker, link, self.server.site)
        if self.tls is not None:
            link.needs_full_flush = True
        self.link = link
        link.owner = self
        self._first = b""
        link.receive(data)

    def _turn_away(self, why: str, answer: bytes, level: int = logging.WARNING) -> None:
        self.server.broker.monitor.connections_refused += 1
        say(LOG, level, "connection refused", peer=self.peer, why=why)
        if answer:
            self.transport.write(answer)
        self.close_transport()

    def flush(self, link: Link) -> None:
        """At the end of a turn, for a link that is ``needs_full_flush``: writes what it gathered and obeys its flags."""
        if link.closed:
            return
        link.needs_full_flush = (
            self.choked or self.tls is not None
        )  # while it is choked, how much is unsent is looked at each time
        transport = self.transport
        if link.out:
            out = link.take()
            self.server.bytes_sent += sum(map(len, out))
            self.write(out)
            if self.choked:
                self.look_at_unsent()
        if link.close_reason is not None:
            self._close(link, link.close_reason)
        elif bool(link.pauses) == self.reading:
            self._set_reading(not link.pauses)
        elif link.pauses & ~PAUSE_SHARE_USED and self.watched < 0 and not transport.is_closing():
            self.server.watch(self)

    def _close(self, link: Link, reason: CloseReason) -> None:
        if self in self.server.closing:
            return
        self.server.closing[self] = time.monotonic() + CLOSE_TIME
        if reason.cause is CloseCause.DENIED and link.fault is not None:
            self.server.denied("handshake")
        elif reason.cause is CloseCause.VIOLATION:
            self.server.broker.monitor.violations += 1
        level = logging.DEBUG if reason.orderly else logging.WARNING
        session = link.handler
        say(
            LOG,
            level,
            "connection closed",
            peer=self.peer,
            protocol=getattr(session, "protocol", link.wire),
            why=str(reason),
        )
        if link.state == ABORTING:
            self.transport.abort()
        else:
            self.close_transport()

    def _set_reading(self, reading: bool) -> None:
        self.reading = reading
        if self.transport.is_closing():
            return
        if reading:
            if self.watched >= 0:
                self.server.unwatch(self)
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
            if self.link is not None and self.link.pauses & ~PAUSE_SHARE_USED:
                self.server.watch(self)  # one that only waits for its turn is read again soon

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is written to: from now on what it leaves unread is counted."""
        self.choked = True
        self.server.backed_up[self] = None
        if self.link is not None:
            self.link.needs_full_flush = True
            self.look_at_unsent()
            self.server.wake()

    def resume_writing(self) -> None:
        self.choked = False
        self.server.backed_up.pop(self, None)
        if self.link is not None:
            self.link.book_unsent(0)
            self.link.resume(PAUSE_NOT_READING)
            self.server.wake()

    def look_at_unsent(self) -> None:
        """A peer that leaves much unread is not read from either, unless it carries a worker, which must not be stopped; one that leaves
        too much unread is cut off."""
        link = self.link
        if link is None or link.state:
            return
        size = self.transport.get_write_buffer_size()
        link.book_unsent(size)
        if size > self.server.max_unsent:
            unsent = f"{size} bytes are unsent; the limit is {self.server.max_unsent} (limits.max_unsent)"
            link.close(CloseCause.NOT_READING, unsent, abort=True)
        elif size > self.server.choke:
            if not link.handler.worker_count:
                link.pause(PAUSE_NOT_READING)
        elif size < self.server.choke // 4:
            link.resume(PAUSE_NOT_READING)

    def eof_received(self) -> bool:
        """The peer has gone, and what it has not read yet it will not read. Only an HTTP client may say that it has no more requests and
        still read the response that is on its way."""
        link = self.link
        if link is not None and link.wire == "http" and link.out and not link.closed:
            link.close(CloseCause.PEER_CLOSED)
            return True
        self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        server.wake()
        server.forget(self)
        if self.principal and self.identity is not None:
            self.identity.access.connections[self.principal] -= 1
        if self.link is not None:
            try:
                self.link.lost(*(() if exc is None else (CloseCause.CONNECTION_LOST, str(exc))))
            except Exception:
                trouble(LOG, "internal error", peer=self.peer, during="the end of a connection")


def is_private(peer: str) -> bool:
    """Whether nobody but this machine sees what goes to a peer."""
    return is_loopback(parse_url(peer)) if peer != "tcp://unknown" else False


def _name(transport: asyncio.BaseTransport, server: "BrokerServer", ipc: bool) -> str:
    if ipc:
        server.ipc_peers += 1
        return f"ipc://peer-{server.ipc_peers}"
    name = transport.get_extra_info("peername")
    if not name:
        return "tcp://unknown"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp://{host}:{name[1]}"
