"""One socket: asyncio on one side, a pure ``Link`` on the other."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from polydomo.limits import CLOSE_TIME
from polydomo.protocols.detect import Detector
from polydomo.protocols.http_session import HttpSession
from polydomo.protocols.roles import SHARED, Role
from polydomo.server import logs
from polydomo.server.logs import say, trouble
from polydomo.wire.http import BEGINNINGS
from polydomo.wire.http_link import HttpLink
from polydomo.wire.link import PAUSE_NOT_READING, Link
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
    reading = True
    choked = False
    outgoing = False  # we made it
    watched = -1  # its file descriptor, while the server watches it for closing
    _first = b""

    def __init__(self, server: "BrokerServer", ipc: bool, role: Role = SHARED) -> None:
        self.server = server
        self.ipc = ipc
        self.role = role  # of the listener
        self._take: Callable[[bytes], None] = self._shake  # who takes what comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = _name(transport, self.server, self.ipc)
        if not self.server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=self.server.choke, low=self.server.choke // 4)

    def data_received(self, data: bytes) -> None:
        server = self.server
        if not server.awake:
            server.wake()
        take = self._take
        try:
            take(data)
        except Exception:
            self.fail()

    def _shake(self, data: bytes) -> None:
        """What comes until the handshake is done."""
        if self.link is None:
            self._sniff(self._first + data)
        else:
            self.link.receive(data)
        if self.link is not None and self.link.open:
            self._take = self.link.receive
            self.server.shaking.pop(self, None)

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
            self._speak(ZmtpLink(server.hub, detector, self.peer, bounds=server.bounds), detector, data)
        elif data[:4] == b"\x00SP\x00":
            detector = Detector(server.broker, self.role)
            link = SpLink(server.hub, detector, self.peer, ipc=self.ipc, max_message=server.bounds.max_message)
            self._speak(link, detector, data)
        elif len(data) < 4 and (data == b"\x00SP\x00"[: len(data)] or data[0] == 0x16 or data[:1].isalpha()):
            self._first = data
        elif data[:4] in BEGINNINGS and self.role is SHARED:
            self._speak_http(HttpLink(server.hub, self.peer, max_message=server.bounds.max_message), data)
        elif data[:2] == b"\x16\x03":
            self._turn_away("TLS is not served here", NO_TLS)
        else:
            self._turn_away(f"not ZMTP, not SP: first bytes {data[:8].hex(' ')}", b"")

    def _speak(self, link: Link, detector: Detector, data: bytes) -> None:
        self.link = link
        link.owner = self
        self._first = b""
        detector.attach(link)
        link.receive(data)

    def _speak_http(self, link: HttpLink, data: bytes) -> None:
        HttpSession(self.server.broker, link, self.server.site)
        self.link = link
        link.owner = self
        self._first = b""
        link.receive(data)

    def _turn_away(self, why: str, answer: bytes, level: int = logging.WARNING) -> None:
        self.server.broker.monitor.connections_refused += 1
        say(LOG, level, "connection refused", peer=self.peer, why=why)
        if answer:
            self.transport.write(answer)
        self.transport.close()

    def flush(self, link: Link) -> None:
        """At the end of a turn, for a link that is ``special``: writes what it gathered and obeys its flags."""
        if link.closed:
            return
        link.needs_full_flush = self.choked  # as long as it is, how much is unsent is looked at each time
        transport = self.transport
        out = link.out
        if out:
            link.out = []
            self.server.bytes_sent += sum(map(len, out))
            transport.writelines(out)
            if self.choked and transport.get_write_buffer_size() > self.server.max_unsent:
                link.close(f"left over {self.server.max_unsent} bytes unread", abort=True)
        if link.closing is not None:
            self._close(link)
        elif bool(link.pauses) == self.reading:
            self._set_reading(not link.pauses)

    def _close(self, link: Link) -> None:
        if self in self.server.closing:
            return
        self.server.closing[self] = time.monotonic() + CLOSE_TIME
        if link.closing is not None and link.closing.startswith("protocol violation"):
            self.server.broker.monitor.violations += 1
        level = logging.DEBUG if link.orderly else logging.WARNING
        session = link.handler
        say(
            LOG,
            level,
            "connection closed",
            peer=self.peer,
            protocol=getattr(session, "protocol", link.wire),
            why=link.closing,
        )
        if link.abort:
            self.transport.abort()
        else:
            self.transport.close()

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
            self.server.watch(self)  # "a paused connection is still watched for closing"

    def pause_writing(self) -> None:
        """The peer does not read: it is not read from either, unless it carries a worker, which must not be stopped."""
        self.choked = True
        if self.link is not None:
            self.link.needs_full_flush = True
        if self.link is not None and not getattr(self.link.handler, "worker_count", 0):
            self.link.pause(PAUSE_NOT_READING)
            self.server.wake()

    def resume_writing(self) -> None:
        self.choked = False
        if self.link is not None:
            self.link.resume(PAUSE_NOT_READING)
            self.server.wake()

    def eof_received(self) -> bool:
        """The peer has gone, and what it has not read yet it will not read. Only an HTTP client may say that it has no more requests and
        still read the response that is on its way."""
        link = self.link
        if link is not None and link.wire == "http" and link.out and not link.closed:
            link.close("the client closed its side", orderly=True)
            return True
        self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        server.wake()
        server.forget(self)
        if self.link is not None:
            try:
                self.link.lost("connection closed" if exc is None else f"connection lost: {exc}")
            except Exception:
                trouble(LOG, "internal error", peer=self.peer, during="the end of a connection")


def _name(transport: asyncio.BaseTransport, server: "BrokerServer", ipc: bool) -> str:
    if ipc:
        server.ipc_peers += 1
        return f"ipc://peer-{server.ipc_peers}"
    name = transport.get_extra_info("peername")
    if not name:
        return "tcp://unknown"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp://{host}:{name[1]}"
