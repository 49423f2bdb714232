"""What every wire shares: one peer's connection, seen from inside.

A ``Link`` takes the bytes of one connection with ``receive`` and hands whole messages to its ``handler``; what is to be
sent is gathered in ``out``. It does no I/O: whoever owns the socket (the server, a library, the simulator) drains
``hub.dirty`` once per turn of its loop, writes out what each link gathered, and obeys its ``closing`` and ``paused`` flags.
"""

from collections.abc import Sized
from typing import Any

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import BIG_BODY
from polydomo.wire.frames import Body

PAUSE_AT_LIMIT = 1  # the broker will not take more from this peer now
PAUSE_NOT_READING = 2  # the peer does not read what it is sent
PAUSE_SHARE_USED = 4  # the peer has had its share of this turn of the loop


class Handler:
    """Takes the messages of one link. A protocol's session is one."""

    requests: Sized = ()  # what the peer asked for and was not answered yet

    def on_open(self) -> None:
        """The wire's handshake is done: messages may be sent."""

    has_fast_path = False  # it has ``ordinary``

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """Takes messages at ``data[start:size]`` for as long as they are all there, of the one shape that makes up the traffic, with a last
        frame of at most ``link.ordinary_size`` bytes, and the link is not halted; returns where it stopped: the wire then takes apart what
        stands there. The way for those in a hurry."""
        return start

    def on_message(self, data: bytes, start: int, end: int) -> None:
        """A whole message stands at ``data[start:end]``, as it was on the wire."""

    def on_command(self, name: bytes, data: bytes) -> None:
        """A ZMTP command in traffic that the wire does not handle itself (SUBSCRIBE, CANCEL)."""

    def has_queued_requests(self) -> bool:
        """Something that the peer asked for waits for its turn: the peer is in no hurry to ask for more."""
        return False

    def on_writable(self) -> None:
        """The peer, which had left too much unread, reads again."""

    def on_close(self, reason: str) -> None:
        """The connection is gone, from either side. Called once; nothing may be sent any more."""


class Pacer:
    """Bounds the CPU that handshakes take. The owner of the loop provides one."""

    def start(self, link: "Link") -> bool:
        """A key agreement is to be made. False if the link must wait: it has been paused, and is resumed when its turn comes."""
        return True


class Hub:
    """Shared by all links of one loop: which of them need their owner's attention, and what time it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dirty: list[Link] = []  # links with bytes to write or a changed flag
        self.resumed: list[Link] = []  # links to be asked for what they had put aside, with ``receive(b"")``
        self.received = 0  # bytes, ever
        self.pacer = Pacer()


class Link:
    """One connection. Subclasses: ``zmtp.ZmtpLink`` and ``sp.SpLink``."""

    wire = ""  # "zmtp" or "sp", for people
    seals = False  # ``out`` must not be written as it is: it goes through ``take``

    def __init__(self, hub: Hub, handler: Handler, peer: str) -> None:
        self.hub = hub
        self.handler = handler
        self.peer = peer  # the peer's address, for people
        self.principal = ""  # who the peer proved to be; empty without access control
        self.out: list[Body] = []  # while there is anything, the link stands in ``hub.dirty``, or its owner keeps it
        self.needs_full_flush = (
            False  # there is more to do than to write ``out``: a changed flag, or a piece too large to join
        )
        self.mute = False  # closed or closing: nothing more is sent
        self.halted = False  # mute or paused: nothing more is taken in
        self.fault: ProtocolViolation | None = None  # with ``closing``: what the peer did wrong
        self.closing: str | None = None  # why the owner must close the connection, once ``out`` is written
        self.orderly = False  # with ``closing``: nothing is wrong, and nothing is logged
        self.abort = False  # with ``closing``: close at once, do not wait until ``out`` is written
        self.closed = False  # the connection is gone
        self.pauses = (
            0  # not 0: the owner must not read from the socket, and ``receive`` puts aside what it already has
        )
        self.fast_path_size = 0  # see ``Handler.ordinary``
        self.identity = b""  # that the peer gave itself (ZMTP); b"" is none
        self.owner: Any = None  # whatever the owner of the socket wants to find again

    @property
    def open(self) -> bool:
        """The handshake is done and the connection is there: messages may flow."""
        return False

    def receive(self, data: bytes) -> None:
        """Takes bytes in any split; raises nothing: a peer's mistakes end in ``violation``."""
        raise NotImplementedError

    def send(self, envelope: bytes, body: Body = b"") -> None:
        """Sends a message that is already framed for this wire."""
        self.send_pieces((envelope, body) if body else (envelope,), len(body))

    def send_pieces(self, pieces: tuple[Body, ...], largest: int) -> None:
        """The same in pieces, which need not be joined before all that is sent is; ``largest`` is the size of the largest. The way for
        those in a hurry."""
        if self.mute:
            return
        out = self.out
        if not out:
            self.hub.dirty.append(self)
        out += pieces
        if largest >= BIG_BODY:
            self.needs_full_flush = True

    def take(self) -> "list[Body]":
        """What is to be written now, as it goes over the connection. Where ``seals`` is False, the owner may take ``out`` itself."""
        out = self.out
        self.out = []
        return out

    def notify_owner(self) -> None:
        """Puts the link in front of its owner, who looks at its flags."""
        self.needs_full_flush = True
        if not self.out:
            self.hub.dirty.append(self)

    def close(self, reason: str, abort: bool = False, orderly: bool = False) -> None:
        """Asks the owner to close the connection after what was sent has been written."""
        if not self.mute:
            self.closing = reason
            self.orderly = orderly
            self.mute = self.halted = True
        if abort:
            self.abort = True
        self.notify_owner()

    def violation(self, error: ProtocolViolation) -> None:
        """Bad bytes end at the connection that sent them."""
        if self.fault is None:
            self.fault = error
        self.close(f"access denied: {error}" if isinstance(error, AccessDenied) else f"protocol violation: {error}")

    def pause(self, cause: int) -> None:
        """``cause`` is PAUSE_AT_LIMIT, PAUSE_NOT_READING or PAUSE_SHARE_USED: each is lifted by itself."""
        if not self.pauses & cause:
            self.pauses |= cause
            self.halted = True
            self.notify_owner()

    def resume(self, cause: int) -> None:
        if self.pauses & cause:
            self.pauses &= ~cause
            if cause == PAUSE_NOT_READING:
                self.handler.on_writable()
            if not self.pauses:
                self.halted = self.mute
                self.hub.resumed.append(self)
                self.notify_owner()

    def lost(self, reason: str) -> None:
        """The owner says that the connection is gone. Safe to call twice."""
        if not self.closed:
            self.closed = self.mute = self.halted = self.needs_full_flush = True
            self.out.clear()
            self.handler.on_close(self.closing or reason)
