"""One connection: passes bytes between an asyncio transport and a ``Link``."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from time import perf_counter
from typing import cast

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import BIG_BODY, MEASURED_ZMTP, SLOW_CALLBACK, SMALL_READ, STEP_BYTES, UNSENT_NOTICE
from polydomo.model.listener_roles import SHARED, SIBLING, Role
from polydomo.protocols.detect import Detector, belongs_to_first
from polydomo.protocols.registry import Protocol
from polydomo.server import logs
from polydomo.server.access.access import Identity, peer_uid
from polydomo.server.access.file import ANONYMOUS
from polydomo.server.connections.base import BaseConnection
from polydomo.server.host import Host
from polydomo.server.logs import say, trouble
from polydomo.tls import TlsBytes
from polydomo.transports import writer_of
from polydomo.web.session import HttpSession
from polydomo.wire.address import Address, is_loopback, parse_url
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.http.head import BEGINNINGS
from polydomo.wire.http.link import HttpLink
from polydomo.wire.link import ABORTING, PAUSE_NOT_READING, PAUSE_SHARE_USED, Link
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink

LOG = logs.get("server")

NOT_HANDED_OVER = ProtocolViolation(
    "with several processes, DBP and eMQP's schedules are served by process 0, and this connection was authenticated by another; "
    "use dbp.listen, or run one process"
)

NO_TLS = b"\x15\x03\x03\x00\x02\x02\x46"  # a fatal alert: protocol_version


class Connection(BaseConnection):
    """Detects the wire protocol from the first bytes, then passes all bytes to its link."""

    tls: TlsBytes | None = None
    _first = b""
    _early: bytearray | None = None  # what came before the protocol was known, while that may mean another process

    def __init__(
        self,
        server: Host,
        ipc: bool,
        role: Role = SHARED,
        local: bool = True,
        listener: Address | None = None,
    ) -> None:
        self.server = server
        self.listener = listener  # its address in the settings
        self.ipc = ipc
        self.local = local  # its listener cannot be reached from other machines
        self.role = role  # role of the listener
        self._take: Callable[[bytes], int] = self._shake  # receives the incoming bytes; returns the link's pauses
        self._measured_from = SMALL_READ  # the time that a read of more bytes takes is charged
        self._take_inside: Callable[[bytes], int] = self._shake  # receives the bytes decrypted from TLS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._write_pieces = writer_of(self.transport)
        self.peer = _name(transport, self.server, self.ipc)
        self.source = self.peer.rpartition(":")[0]  # the peer's host; all peers of local sockets count as one source
        if not self.server.admit(self):
            self.transport.abort()
            return
        # From here on the transport reports its buffer, so that unsent bytes are counted.
        self.transport.set_write_buffer_limits(high=UNSENT_NOTICE, low=UNSENT_NOTICE // 4)
        access = self.server.access
        if self.role is SIBLING:
            self._check_sibling()
        elif access is not None and not self.outgoing:
            private = self.ipc or is_private(self.peer)
            self.identity = Identity(access, private, self.server.bounds.max_frame, self.listener)
            if self.ipc:
                self.identity.by_socket(transport.get_extra_info("socket"))
        if self._can_be_handed_over():
            self._early = bytearray()

    def _check_sibling(self) -> None:
        """Only a process of the same user may be another process of this broker."""
        if peer_uid(self.transport.get_extra_info("socket")) not in (None, os.getuid()):
            self._turn_away("another user cannot join the processes of this broker", b"")

    def data_received(self, data: bytes) -> None:
        server = self.server
        if not server.awake:
            server.wake()
        if len(data) > self._measured_from:
            hub = server.hub
            left = hub.work_left
            since = perf_counter()
            self._receive(data)
            spent = perf_counter() - since
            if spent > SLOW_CALLBACK:
                self._charge(spent, left - hub.work_left)
            return
        # Not measured: it has a few messages, and what the broker answers itself is measured there.
        take = self._take
        try:
            if take(data) and self.reading:
                self._set_reading(False)
        except Exception:
            self.fail()

    def _receive(self, data: bytes) -> None:  # ``data_received`` does the same inline with small input
        take = self._take
        try:
            if take(data) and self.reading:
                self._set_reading(False)  # immediately, or the loop would keep reading from it in this turn
        except Exception:
            self.fail()

    def _charge(self, spent: float, charged: int) -> None:
        """A callback took longer than most. As far as the price of its work was too low, the time is charged, to the connection and to
        the turn."""
        more = int(spent * 1_000_000) - charged
        if more > 0:
            self.server.hub.work_left -= more
            if self.link is not None:
                self.link.charge(more)

    def _shake(self, data: bytes) -> int:
        """Receives bytes until the handshake is complete."""
        if self._early is not None:
            self._early += data
        if self.link is None:
            self._sniff(self._first + data)
        else:
            self.link.receive(data)
        if self.link is not None and self.link.open:
            if self._early is not None and isinstance(self.link.handler, Detector):
                return self.link.pauses  # its first message may show that it belongs to another process
            self._early = None
            if self.tls is None:
                self._take = self.link.receive
                if self.link.wire == "zmtp":
                    self._measured_from = MEASURED_ZMTP
            else:
                self._take_inside = self.link.receive
            self.server.overdue.completed_handshake(self)
            if self.link.principal:
                self.known_as(self.link.principal)
        return self.link.pauses if self.link is not None else 0

    def known_as(self, principal: str) -> None:
        """The peer authenticated as this principal: the connection counts against the principal's quota, and the principal replaces its
        address as the source by which turns, memory and connections are shared."""
        if self.identity is not None and not self.principal:
            self.principal = principal
            self.identity.access.connections[principal] += 1
            if principal != ANONYMOUS:
                self.source = f"principal {principal}"
                if self.link is not None:
                    self.link.set_source(self.source)

    def _decrypt(self, data: bytes) -> int:
        """Receives bytes from the socket and decrypts TLS."""
        tls = self.tls
        assert tls is not None
        shaken = tls.shaken
        try:
            inside = tls.receive(data)
        except ProtocolViolation as error:
            self._write_tls(tls)  # the alert
            self._turn_away(str(error), b"")
            return 0
        if tls.shaken and not shaken and self.identity is not None:
            self.identity.by_tls(tls)
        self._write_tls(tls)
        if inside:
            self._take_inside(inside)
        if tls.ended:
            self.eof_received()
        return self.link.pauses if self.link is not None else 0

    def _write_tls(self, tls: TlsBytes) -> None:
        data = tls.take()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def write(self, pieces: "list[Body]") -> None:
        """Writes the output of the wire protocol."""
        if self.tls is None:
            self._write_pieces(pieces)
            return
        if all(len(piece) <= BIG_BODY for piece in pieces):
            self.tls.send(pieces)
            self._write_tls(self.tls)
            return
        pieces.reverse()
        while pieces:  # of a large message, one copy is enough: what was encrypted is dropped
            piece = pieces.pop()
            for at in range(0, len(piece), STEP_BYTES):
                self.tls.send([piece[at : at + STEP_BYTES]])
                self._write_tls(self.tls)

    def close_transport(self) -> None:
        """Closes the connection after all written bytes have been sent."""
        if self.tls is not None and not self.transport.is_closing():
            self.tls.close()
            self._write_tls(self.tls)
        self.transport.close()

    def go_on(self, link: Link) -> None:
        """Resumes reading from the peer, starting with bytes that were already received."""
        left = link.hub.work_left
        since = perf_counter()
        try:
            link.receive(b"")
        except Exception:
            self.fail()
        spent = perf_counter() - since
        if spent > SLOW_CALLBACK:
            self._charge(spent, left - link.hub.work_left)

    def fail(self) -> None:
        """An internal error while serving this peer closes this connection only."""
        session = self.link.handler if self.link is not None else None
        trouble(LOG, "internal error", peer=self.peer, protocol=getattr(session, "protocol", "unknown"))
        self.transport.abort()

    def _sniff(self, data: bytes) -> None:
        """Detects the wire protocol from the first bytes."""
        server = self.server
        if server.health.leaving and data[0] in (0xFF, 0x00):
            self._turn_away("the broker is shutting down", b"", logging.DEBUG)
        elif data[0] == 0xFF:
            detector = Detector(server.broker, self.role, self._divert if self._can_be_handed_over() else None)
            select = self.identity.select if self.identity is not None else None
            self._speak(ZmtpLink(server.hub, detector, self.peer, bounds=server.bounds, select=select), detector, data)
        elif data[:4] == b"\x00SP\x00":
            principal = self._identify()  # before the link is made, because a new link sends its header at once
            if principal is not None:
                detector = Detector(server.broker, self.role)
                link = SpLink(server.hub, detector, self.peer, ipc=self.ipc, max_message=server.bounds.max_message)
                link.principal = principal
                self._speak(link, detector, data)
        elif len(data) < 4 and (data == b"\x00SP\x00"[: len(data)] or data[0] == 0x16 or data[:1].isalpha()):
            self._first = data
        elif self.role is SHARED and self._can_be_handed_over() and (data[:4] in BEGINNINGS or data[:2] == b"\x16\x03"):
            self._hand_over(data)
        elif data[:4] in BEGINNINGS and self.role is SHARED:
            self._speak_http(HttpLink(server.hub, self.peer, max_message=server.bounds.max_message), data)
        elif data[:2] == b"\x16\x03" and self.tls is None:
            context = server.access.tls_context if server.access is not None else None
            if context is None:
                self._turn_away("TLS is not enabled; set server.tls in the access file", NO_TLS)
                return
            self._first = b""
            self.tls = TlsBytes(context, True)
            self._take = self._decrypt
            self._decrypt(data)
        else:
            self._turn_away(f"unknown protocol (expected ZMTP, SP or HTTP): first bytes {data[:8].hex(' ')}", b"")

    # --- to process 0 of a broker with several processes (``server/processes/handover.py``)

    def _can_be_handed_over(self) -> bool:
        return self.server.hand_over is not None and self.role is not SIBLING

    def _divert(self, protocol: Protocol, message: bytes) -> bool:
        """The protocol is known: whether the connection belongs to process 0."""
        link = self.link
        if self._early is None:
            return True  # it has been handed over, with this message
        if link is None or not belongs_to_first(protocol, message):
            return False
        if self.identity is not None or self.tls is not None:
            link.violation(NOT_HANDED_OVER)
        else:
            self._hand_over(bytes(self._early), sum(map(len, link.out)))
        return True

    def _hand_over(self, data: bytes, unsent: int = -1) -> None:
        hand_over = self.server.hand_over
        assert hand_over is not None
        self._early = None
        if self.link is not None:
            self.link.out.clear()
        hand_over(self, data, unsent)

    def _identify(self) -> str | None:
        """Authenticates a peer whose protocol has no handshake, by TLS or by its socket. Returns its principal, empty without access
        control; None if the peer is rejected."""
        if self.identity is None:
            return ""
        try:
            return self.identity.principal()
        except AccessDenied as error:
            self.server.denied("handshake")
            self._turn_away(str(error), b"")
            return None

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
        link.source = self.source
        link.owner = self
        self._first = b""
        link.receive(data)

    def _turn_away(self, why: str, answer: bytes, level: int = logging.WARNING) -> None:
        self.server.broker.counters.connections_refused += 1
        say(LOG, level, "connection refused", peer=self.peer, why=why)
        if answer:
            self.transport.write(answer)
        self.close_transport()

    def flush(self, link: Link) -> None:
        """At the end of a turn, for a link with ``needs_full_flush``: writes its output and applies its flags."""
        if link.closed:
            return
        # While it is choked, check the unsent bytes each time.
        link.needs_full_flush = self.choked or self.tls is not None
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
            self._watch()

    def _close(self, link: Link, reason: CloseReason) -> None:
        if self.server.overdue.is_closing(self):
            return
        self.server.overdue.began_closing(self, time.monotonic())
        if reason.cause is CloseCause.DENIED and link.fault is not None:
            self.server.denied("handshake")
        elif reason.cause is CloseCause.VIOLATION:
            self.server.broker.counters.violations += 1
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
            if self.watched >= 0 and self.server.disconnects is not None:
                self.server.disconnects.unwatch(self)
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
            if self.link is not None and self.link.pauses & ~PAUSE_SHARE_USED:
                self._watch()  # one that only waits for its turn is read again soon, so do not watch it

    def _watch(self) -> None:
        if self.server.disconnects is not None:
            self.server.disconnects.watch(self)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write. From now on its unsent bytes are counted."""
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
        """Applies backpressure: stops reading from a peer with many unsent bytes, unless it is a worker, which must not be stopped. Closes
        the connection if there are too many."""
        link = self.link
        if link is None or link.state:
            return
        size = self.transport.get_write_buffer_size()
        link.book_unsent(size)
        if size > self.server.max_unsent:
            unsent = f"the peer does not read: {size} bytes are unsent, the limit is {self.server.max_unsent} (limits.max_unsent)"
            link.close(CloseCause.NOT_READING, unsent, abort=True)
        elif size > self.server.choke:
            if not link.handler.worker_count:
                link.pause(PAUSE_NOT_READING)
        elif size < self.server.choke // 4:
            link.resume(PAUSE_NOT_READING)

    def eof_received(self) -> bool:
        """The peer has closed its end and will not read what is unsent. Only an HTTP client may close its sending side and still read the
        response."""
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
                trouble(LOG, "internal error", peer=self.peer, during="closing a connection")


def is_private(peer: str) -> bool:
    """Whether traffic to the peer stays on this machine."""
    return is_loopback(parse_url(peer)) if peer != "tcp://unknown" else False


def _name(transport: asyncio.BaseTransport, server: Host, ipc: bool) -> str:
    if ipc:
        server.ipc_peers += 1
        return f"ipc://peer-{server.ipc_peers}"
    name = transport.get_extra_info("peername")
    if not name:
        return "tcp://unknown"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp://{host}:{name[1]}"
