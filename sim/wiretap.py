"""What crosses the wire at the broker, read by a decoder of its own: it shares no code with the one it watches.

``Tap`` sits between a connection and its link. It tells the connection's ``Dialog`` every message that came and went, in the order in which the
broker took and gave them.
"""

from typing import TYPE_CHECKING

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


class Tap:
    def __init__(self, watcher: "Watcher", link: Link, name: str) -> None:
        self.watcher = watcher
        self.link = link
        self.name = name
        self.incoming = Stream(link.wire)
        self.outgoing = Stream(link.wire)
        self.dialog: dialogs.Dialog | None = None

    def pieces(self, data: bytes) -> "list[tuple[bytes, list[Message]]]":
        """``data`` cut around every goodbye in it, each piece with the messages that end in it."""
        messages = self.incoming.feed(data)
        cuts: list[int] = []
        start = 0
        for end, frames in messages:
            if dialogs.is_goodbye(frames):
                cuts += [start, end]
            start = end
        if not cuts:
            return [(data, [frames for _, frames in messages])]
        found: list[tuple[bytes, list[Message]]] = []
        last = 0
        for cut in [*cuts, len(data)]:
            if cut > last:
                found.append((data[last:cut], [frames for end, frames in messages if last < end <= cut]))
                last = cut
        return found

    def came(self, messages: "list[Message]") -> None:
        for frames in messages:
            if self.dialog is None:
                self.dialog = dialogs.recognise(frames, self.watcher, self.link, self.name)
                self.watcher.dialogs[self.name] = self.dialog
            self.dialog.last_heard = self.watcher.node.clock
            if not self.dialog.garbled:
                self.dialog.heard(frames)

    def taken(self) -> None:
        """The link has taken what came, or has put it aside."""
        if self.link.paused and self.dialog is not None:
            self.dialog.paused = True

    def went(self, data: bytes) -> None:
        for _, frames in self.outgoing.feed(data):
            if self.dialog is None:
                if frames[0][:1] in (b"\x00", b"\x01") and self.link.wire == "zmtp":
                    return  # a subscription of the broker's own, to a publisher
                self.watcher.breach("unasked", f"{self.name} was told {frames!r} before it said anything")
                return
            self.dialog.last_said = self.watcher.node.clock
            if not self.dialog.garbled:
                self.dialog.said(frames)
