"""What crosses the wire at the broker, read by a decoder of its own: it shares no code with the one it watches.

``Tap`` sits between a connection and its link. It tells the connection's ``Dialog`` every message that came and went,
in the order in which the broker took and gave them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.protocols.bridge import BridgeSession
from polydomo.protocols.broker_api import BrokerApi
from polydomo.protocols.detect import Detector
from polydomo.protocols.registry import Protocol
from polydomo.protocols.session import Session
from polydomo.wire.link import Link
from sim import dialogs

if TYPE_CHECKING:
    from sim.watch import Watcher

Message = list[bytes]


class Stream:
    """Bytes of one direction to messages. Stops at the first byte that makes no sense: the broker has to deal with that."""

    def __init__(self, wire: str) -> None:
        self.sp = wire == "sp"
        self.greeting = 8 if self.sp else 64
        self.rest = bytearray()
        self.frames: Message = []
        self.lost = False

    def feed(self, data: bytes) -> "list[tuple[int, Message]]":
        """The messages that are whole now, each with the place in ``data`` where it ends."""
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
    """The frames of the message that begins at ``start``, and where it ends; none if it is not all there by ``end``."""
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
    """Hears each message at the moment at which the broker takes it, and what the broker said before that."""

    def __init__(self, watcher: "Watcher", link: Link, name: str, drain: Callable[[], None]) -> None:
        self.watcher = watcher
        self.link = link
        self.name = name
        self.drain = drain  # hands over what the link has gathered so far
        self.outgoing = Stream(link.wire)
        self.dialog: dialogs.Dialog | None = None
        self._within = False

    def listen(self, session: Session) -> None:
        """Puts itself in front of the session."""
        take = session.on_message
        ordinary = session.fast_path

        def on_message(data: bytes, start: int, end: int) -> None:
            if self._within:
                take(data, start, end)  # the session takes the same message again, in a shorter form
                return
            self._within = True
            try:
                self.drain()
                self._came(take_apart(data, start, end, self.link.wire)[0])
                take(data, start, end)
            finally:
                self._within = False

        def on_ordinary(data: bytes, start: int, size: int) -> int:
            self.drain()
            end = ordinary(data, start, size)
            while start < end:  # as many as it took; what it said to them is still in the link
                frames, start = take_apart(data, start, end, self.link.wire)
                self._came(frames)
            return end

        session.on_message = on_message  # type: ignore[method-assign]
        session.fast_path = on_ordinary  # type: ignore[method-assign]

    def _came(self, frames: Message) -> None:
        if self.dialog is None:
            self.dialog = dialogs.recognise(frames, self.watcher, self.link, self.name)
            self.watcher.dialogs[self.name] = self.dialog
        self.dialog.last_heard = self.watcher.node.clock
        if not self.dialog.garbled:
            self.dialog.heard(frames)

    def went(self, data: bytes) -> None:
        for _, frames in self.outgoing.feed(data):
            if self.dialog is None and self.link.handler.__class__.__name__ in (
                "PublisherSession",
                "SubscriberSession",
            ):
                return  # what goes to them is judged by those who get it
            if self.dialog is None and frames[0] == b"PDBR01":  # whoever dialed says HELLO first
                self.dialog = self.watcher.dialogs[self.name] = dialogs.BridgeDialog(self.watcher, self.name)
            if self.dialog is None:
                self.watcher.breach("unasked", f"{self.name} was told {frames!r} before it said anything")
                return
            self.dialog.last_said = self.watcher.node.clock
            if not self.dialog.garbled:
                self.dialog.said(frames)


class TappedDetector(Detector):
    """Tells the tap which session it found."""

    tap: Tap

    def __init__(self, broker: BrokerApi, siblings: bool = False) -> None:
        super().__init__(broker)
        self.siblings = siblings  # other brokers are processes of this one

    def make_session(self, protocol: Protocol, link: Link) -> Session:
        session = super().make_session(protocol, link)
        if self.siblings and isinstance(session, BridgeSession):
            session.is_sibling = True
        self.tap.listen(session)
        return session
