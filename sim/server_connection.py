"""One connection of a simulated broker, with the real link and session. It does what ``server/connections`` does with a socket."""

from typing import TYPE_CHECKING

from polydomo.model.records import Session
from polydomo.server.access.file import ANONYMOUS
from polydomo.web.session import HttpSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.http.link import HttpLink
from polydomo.wire.link import ABORTING, PAUSE_NOT_READING, Link
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from sim.network import Endpoint, Owner
from sim.wiretap import Tap, TappedDetector

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

MAX_MESSAGE = 1 << 20  # limit of one message in bytes


class ServerConnection(Owner):
    """One accepted connection."""

    reads_in_turns = True

    def __init__(self, node: "BrokerNode", endpoint: Endpoint) -> None:
        self.node = node
        self.endpoint = endpoint
        self.link: Link | None = None
        self.tap: Tap | None = None
        self.first = b""
        self.choked = False

    @property
    def session(self) -> Session | None:
        """The session of the connection; None until the protocol is known."""
        if self.tap is not None:
            return self.tap.session
        return self.link.handler if self.link is not None and isinstance(self.link.handler, Session) else None

    # --- from the network

    def on_data(self, data: bytes) -> None:
        self.node.inbox.append((self, data))
        self.node.wake()

    def on_lost(self, reason: str) -> None:
        self.node.inbox.append((self, None))
        self.node.wake()

    def on_pressure(self, choked: bool) -> None:
        self.choked = choked
        link = self.link
        if link is None:
            return
        if not choked:
            link.resume(PAUSE_NOT_READING)
        elif self.session is None or not self.session.worker_count:
            link.pause(PAUSE_NOT_READING)
        self.node.wake()

    # --- in a turn of the loop

    def take(self, data: bytes | None) -> None:
        if data is None:
            self.node.forget(self)
            if self.link is not None:
                self.link.lost()
        elif self.link is None:
            self._sniff(self.first + data)
        else:
            self._receive(data)
        self.endpoint.read_more()

    def _sniff(self, data: bytes) -> None:
        node = self.node
        detector = TappedDetector(node.broker, siblings=node.options.siblings)
        link: Link
        if data[0] == 0xFF:
            select = node.guard.select if node.guard is not None else None
            link = ZmtpLink(node.hub, detector, self.endpoint.name, bounds=node.bounds, select=select)
        elif data[:4] == b"\x00SP\x00":
            link = SpLink(node.hub, detector, self.endpoint.name, max_message=MAX_MESSAGE)
            if node.guard is not None:
                link.principal = ANONYMOUS  # SP has no handshake with credentials
        elif len(data) < 4 and data == b"\x00SP\x00"[: len(data)]:
            self.first = data
            return
        elif data[:1].isalpha():
            self._speak_http(data)
            return
        else:
            self.endpoint.close()
            node.forget(self)
            return
        self.link = link
        link.owner = self
        link.source = self.endpoint.name.partition(":")[0]
        detector.attach(link)
        self.tap = detector.tap = Tap(node.watcher, link, self.endpoint.name, self._drain)
        self._receive(data)

    def _speak_http(self, data: bytes) -> None:
        node = self.node
        link = HttpLink(node.hub, self.endpoint.name, max_message=MAX_MESSAGE)
        if node.guard is not None:
            link.principal = ANONYMOUS
        HttpSession(node.broker, link, node.site)
        self.link = link
        link.owner = self
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        assert self.link is not None
        self.link.receive(data)
        self._drain()

    def _drain(self) -> None:
        """Takes the output that the link has collected. The tap sees messages in the order in which they were sent."""
        link = self.link
        assert link is not None
        if link.out:
            if self.tap is not None:  # HTTP peers check what they receive
                self.tap.went(b"".join(link.out))
            data = b"".join(link.take())
            link.needs_full_flush = False
            self.node.outbox.setdefault(self, bytearray()).extend(data)

    def flush(self) -> None:
        link = self.link
        assert link is not None
        self._drain()
        data = self.node.outbox.pop(self, None)
        if data:
            self.endpoint.write(bytes(data))
            if self.choked and self.endpoint.open and self.endpoint.out.size > self.node.options.max_unsent:
                link.close(CloseCause.NOT_READING, abort=True)
        reason = link.close_reason
        if reason is not None:
            if reason.cause is CloseCause.VIOLATION and not self.endpoint.name.startswith("g"):
                self.node.watcher.breach("accused", f"{self.endpoint.name}, which is honest: {reason}")
            if self.endpoint.open:
                if link.state == ABORTING:
                    self.endpoint.abort()
                else:
                    self.endpoint.close()
                self.node.inbox.append((self, None))
                self.node.wake()
        else:
            self.endpoint.read(not link.pauses)
