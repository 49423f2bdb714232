"""What crosses the wire at the broker, read by a decoder that shares no code with the broker's.

A ``Tap`` reports every message that a connection received and sent to its ``Dialog``, in the order in which the broker handled and sent
them. It sees received messages through ``TappedSession``, the link's handler, which passes them on to the session.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Session
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.protocols.detect import Detector
from polydomo.protocols.pubsub.session import PublisherSession, SubscriberSession
from polydomo.protocols.registry import Protocol
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.link import Link, LinkHandler
from sim import dialogs
from sim.dialog import Dialog

if TYPE_CHECKING:
    from sim.watch import Watcher

Message = list[bytes]


class Stream:
    """Splits the bytes of one direction into messages. Stops at the first invalid byte, which the broker must handle."""

    def __init__(self, wire: str) -> None:
        self.sp = wire == "sp"
        self.greeting = 8 if self.sp else 64
        self.rest = bytearray()
        self.frames: Message = []
        self.lost = False

    def feed(self, data: bytes) -> "list[tuple[int, Message]]":
        """The messages that are complete now, each with the position in ``data`` where it ends."""
        found: list[tuple[int, Message]] = []
        if self.lost:
            return found
        self.rest += data
        before = len(self.rest) - len(data)
        position = 0
        if self.greeting:
            if len(self.rest) < self.greeting:
                return found
            position = self.greeting
            self.greeting = 0
        while not self.lost:
            taken = self._sp(position) if self.sp else self._zmtp(position)
            if not taken:
                break
            position += taken
            if self.frames and self.whole:
                found.append((position - before, self.frames))
                self.frames = []
        del self.rest[:position]
        return found

    whole = False

    def _sp(self, position: int) -> int:
        if len(self.rest) < position + 8:
            return 0
        size = int.from_bytes(self.rest[position : position + 8], "big")
        if size < 4 or size > 1 << 21:
            self.lost = True
            return 0
        if len(self.rest) < position + 8 + size:
            return 0
        body = bytes(self.rest[position + 8 : position + 8 + size])
        self.frames = [body[:4], body[4:]]
        self.whole = True
        return 8 + size

    def _zmtp(self, position: int) -> int:
        rest = self.rest
        if len(rest) < position + 2:
            return 0
        flags = rest[position]
        if flags > 6:
            self.lost = True
            return 0
        if flags & 2:
            if len(rest) < position + 9:
                return 0
            head = 9
            size = int.from_bytes(rest[position + 1 : position + 9], "big")
        else:
            head = 2
            size = rest[position + 1]
        if len(rest) < position + head + size:
            return 0
        self.whole = False
        if not flags & 4:
            self.frames.append(bytes(rest[position + head : position + head + size]))
            self.whole = not flags & 1
        return head + size


def take_apart(data: bytes, start: int, end: int, wire: str) -> "tuple[Message, int]":
    """The frames of the message that begins at ``start``, and where it ends; no frames if it is not complete at ``end``."""
    if wire == "sp":
        return [data[start : start + 4], data[start + 4 : end]], end
    frames: Message = []
    while start + 2 <= end:
        flags = data[start]
        head = 9 if flags & 2 else 2
        size = int.from_bytes(data[start + 1 : start + head], "big")
        if flags > 3 or start + head + size > end:
            break
        frames.append(data[start + head : start + head + size])
        start += head + size
        if not flags & 1:
            return frames, start
    return [], end


class Tap:
    """Reports to the connection's ``Dialog`` each message when the broker handles it, after what the broker sent before that."""

    def __init__(self, watcher: "Watcher", link: Link, name: str, drain: Callable[[], None]) -> None:
        self.watcher = watcher
        self.link = link
        self.name = name
        self.drain = drain  # passes on what the link has collected so far
        self.outgoing = Stream(link.wire)
        self.dialog: Dialog | None = None
        self.session: Session | None = None  # None until the protocol is known

    def in_front_of(self, session: Session) -> "TappedSession":
        """The handler to give to the link instead of the session."""
        self.session = session
        return TappedSession(self, session)

    def message(self, data: bytes, start: int, end: int) -> None:
        """The session is about to handle this message."""
        self.drain()
        self._came(take_apart(data, start, end, self.link.wire)[0])

    def messages(self, data: bytes, start: int, end: int) -> None:
        """The session has handled these messages; its answers are still in the link."""
        while start < end:
            frames, start = take_apart(data, start, end, self.link.wire)
            self._came(frames)

    def _came(self, frames: Message) -> None:
        if self.dialog is None:
            self.dialog = dialogs.recognise(frames, self.watcher, self.link, self.name)
            self.watcher.dialogs[self.name] = self.dialog
        self.dialog.last_heard = self.watcher.node.clock
        if not self.dialog.garbled:
            self.dialog.heard(frames)

    def went(self, data: bytes) -> None:
        for _, frames in self.outgoing.feed(data):
            if self.dialog is None and isinstance(self.session, PublisherSession | SubscriberSession):
                return  # the peers that get it check it
            if self.dialog is None and frames[0] == b"PDBR01":  # the side that dialed sends HELLO first
                self.dialog = self.watcher.dialogs[self.name] = dialogs.BridgeDialog(self.watcher, self.name)
            if self.dialog is None:
                self.watcher.breach("unasked", f"{self.name} was told {frames!r} before it said anything")
                return
            self.dialog.last_said = self.watcher.node.clock
            if not self.dialog.garbled:
                self.dialog.said(frames)


class TappedSession(LinkHandler):
    """The handler of a link: passes everything to the session, and messages to the tap too."""

    def __init__(self, tap: Tap, session: Session) -> None:
        self.tap = tap
        self.session = session
        self.has_fast_path = session.has_fast_path

    def on_open(self) -> None:
        self.session.on_open()

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        self.tap.drain()
        end = self.session.fast_path(data, start, size)
        self.tap.messages(data, start, end)
        return end

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.tap.message(data, start, end)
        self.session.on_message(data, start, end)

    def on_command(self, name: bytes, data: bytes) -> None:
        self.session.on_command(name, data)

    def has_queued_requests(self) -> bool:
        return self.session.has_queued_requests()

    def on_writable(self) -> None:
        self.session.on_writable()

    def held(self) -> int:
        return self.session.held()

    def on_close(self, reason: CloseReason) -> None:
        self.session.on_close(reason)


class TappedDetector(Detector):
    """Puts the tap in front of each session."""

    tap: Tap

    def __init__(self, broker: BrokerApi, siblings: bool = False) -> None:
        super().__init__(broker)
        self.siblings = siblings  # other brokers are processes of this one

    def make_session(self, protocol: Protocol, link: Link) -> Session:
        session = super().make_session(protocol, link)
        if self.siblings and isinstance(session, BridgeSession):
            session.become_sibling()
        return session

    def handler_of(self, session: Session) -> LinkHandler:
        return self.tap.in_front_of(session)
