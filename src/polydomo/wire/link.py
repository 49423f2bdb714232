"""The base of all wire protocols: one connection, without I/O.

A ``Link`` takes the bytes of one connection with ``receive`` and passes complete messages to its ``handler``; output is collected in
``out``. It does no I/O: the owner of the socket (the server, a library, the simulator) drains ``hub.dirty`` once per turn of its loop,
writes each link's output, and applies its ``state`` and ``pauses``.
"""

from collections.abc import Callable
from typing import Any, Final

from polydomo import limits
from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import BIG_BODY, HELD_INPUT, LEAST_SHARE, TURN_SHARE, TURN_WORK
from polydomo.native import mypyc_attr
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.zmtp.extensions import NO_EXTENSIONS, Extensions


class Bounds:
    """Size limits for the messages of one peer. One object serves all links of a server."""

    def __init__(
        self,
        max_frame: int = limits.MAX_FRAME,
        max_frames: int = limits.MAX_FRAMES,
        max_message: int = limits.MAX_MESSAGE,
        max_handshake: int = limits.MAX_HANDSHAKE,
        extensions: bytes = b"",
    ) -> None:
        self.max_frame = max_frame
        self.max_frames = max_frames
        self.max_message = max_message
        self.max_handshake = max_handshake
        self.extensions = extensions  # the list that this side announces


DEFAULT_BOUNDS = Bounds()


# ``Link.state``: a link that is not OPEN sends nothing and ignores input.
OPEN: Final = 0
CLOSING: Final = 1  # the owner must close the connection once ``out`` is written
ABORTING: Final = 2  # the owner must close the connection at once
CLOSED: Final = 3  # the connection is gone

# ``Link.pauses``, a set of bits: while any is set, input is not processed.
PAUSE_AT_LIMIT: Final = 1  # the broker currently accepts no more from this peer
PAUSE_NOT_READING: Final = 2  # the peer does not read its messages
PAUSE_SHARE_USED: Final = 4  # the peer has used its share of this turn of the loop
PAUSE_MEMORY: Final = 8  # the broker is short of memory, and this peer holds much of it
PAUSE_LISTING: Final = 16  # a long answer is being built for the peer
PAUSE_HANDSHAKE: Final = 32  # key agreements of other peers come first

NO_LIMIT: Final = 1 << 62  # units of work if there is no limit


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkHandler:
    """Receives the messages of one link. Protocol sessions implement it."""

    worker_count = 0  # workers that the connection carries

    def on_open(self) -> None:
        """Called when the handshake is complete: messages may be sent."""

    has_fast_path = False  # ``fast_path`` is implemented

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """Handles the messages at ``data[start:size]`` that are complete and of the most common form, with a last frame of at most
        ``link.fast_path_size`` bytes, while the link is neither paused nor closing. Returns the position where it stopped; the wire
        continues there with ``on_message``."""
        return start

    def on_message(self, data: bytes, start: int, end: int) -> None:
        """A complete message, as on the wire, is at ``data[start:end]``."""

    def on_command(self, name: bytes, data: bytes) -> None:
        """A ZMTP command in traffic that the wire does not handle itself (SUBSCRIBE, CANCEL)."""

    def has_queued_requests(self) -> bool:
        """Whether a request of the peer is queued. Then replies to earlier ones may be delayed for batching."""
        return False

    def on_writable(self) -> None:
        """Called when a peer that did not read reads again."""

    def held(self) -> int:
        """Bytes held for the peer, besides those of its link."""
        return 0

    def on_close(self, reason: CloseReason) -> None:
        """The connection is gone, closed by either side. Called once; nothing can be sent any more."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HandshakeBudget:
    """Limits the CPU time of handshakes. The owner of the loop provides one."""

    def start(self, link: "Link") -> bool:
        """Called before a key agreement. Returns False if the link must wait; then it is paused, and resumed when its turn comes."""
        return True


class Turns:
    """Distributes the work of one turn of the event loop among connections.

    Work is counted in units of about a microsecond. Each connection has a share, and each operation for it is charged to the share
    (``Link.charge``). A connection that uses up its share in one turn is not read and waits here until the next turn; if it took
    several turns and no connection waits, half of the share is renewed at once (``Link.use_up``), so it gets at most one and a half
    shares in a turn. The whole turn also has a limit; input that arrives after it is reached waits for the next turn, except for small
    reads (``SMALL_READ``).

    Scheduling is round robin over sources (the peer's address or principal), and over the connections of each source. If many wait,
    each gets a smaller share, so that one round stays short.
    """

    def __init__(self, work: int = TURN_WORK, share: int = TURN_SHARE, least: int = LEAST_SHARE) -> None:
        self.work = work  # of one turn, for all connections together
        self.share = share  # of it, for one connection ...
        self.least = least  # ... and where many wait
        self.waiting = 0  # connections
        self.number = 0  # of the turn
        self.chosen: list[Link] = []  # those that continued in this turn
        self._by_source: dict[str, dict[Link, None]] = {}  # the source and the connection that waited longest are first

    def wait(self, link: "Link") -> None:
        """Queues a connection for a later turn."""
        links = self._by_source.get(link.source)
        if links is None:
            links = self._by_source[link.source] = {}
        if link not in links:
            links[link] = None
            self.waiting += 1

    def forget(self, link: "Link") -> None:
        links = self._by_source.get(link.source)
        if links is not None and link in links:
            del links[link]
            self.waiting -= 1
            if not links:
                del self._by_source[link.source]

    def next_turn(self) -> "list[Link]":
        """Begins a turn. Returns the connections that continue, each with a new share."""
        self.chosen = []
        if not self.waiting:
            return []
        work = self.work // 2  # the other half is for what arrives meanwhile
        share = max(self.least, min(self.share, work // self.waiting))
        chosen: list[Link] = []
        by_source = self._by_source
        for _ in range(min(self.waiting, max(1, work // share))):
            source = next(iter(by_source))
            links = by_source.pop(source)
            link = next(iter(links))
            del links[link]
            if links:
                by_source[source] = links  # its next connection comes after those of all other sources
            link.work_left = share
            link.renewed = self.number
            chosen.append(link)
        self.waiting -= len(chosen)
        self.chosen = chosen
        return chosen

    def __contains__(self, link: object) -> bool:
        return any(link in links for links in self._by_source.values())

    def check_invariants(self) -> None:
        """For tests: checks that redundant counters are consistent."""
        assert self.waiting == sum(len(links) for links in self._by_source.values())
        assert all(links for links in self._by_source.values())
        for source, links in self._by_source.items():
            assert all(link.source == source and not link.closed for link in links)


class Hub:
    """Shared by all links of one loop: which links need their owner's attention, and counters."""

    def __init__(self, turns: Turns | None = None) -> None:
        self.now = 0.0
        self.dirty: list[Link] = []  # links with bytes to write or a changed flag
        self.resumed: list[Link] = []  # links with stored input to process, with ``receive(b"")``
        self.received = 0  # bytes, ever
        self.pacer = HandshakeBudget()
        self.turns = turns  # None: work is not limited, as in a client
        self.work_left = NO_LIMIT if turns is None else turns.work  # in this turn, for all links together
        self.clock: Callable[[], float] | None = None  # seconds; None: work is charged by its price alone
        self.work_done = 0  # in all turns before this one
        self.work_alarm = NO_LIMIT  # from this much ``work_done`` on, ``on_work_alarm`` is called when a turn begins
        self.on_work_alarm: Callable[[], None] | None = None
        self.input_bytes = 0  # unfinished input of all links
        self.unsent_bytes = 0  # unsent bytes of all links
        self.holding: dict[Link, None] = {}  # links with many of either
        self.input_alarm = NO_LIMIT  # above this many ``input_bytes``, ``on_input_alarm`` is called within the turn
        self.on_input_alarm: Callable[[Link], None] | None = None  # is given the link whose input has grown

    def turns_waiting(self) -> bool:
        """Whether links wait for the next turn, which should then start soon."""
        return self.turns is not None and self.turns.waiting > 0

    def begin_turn(self) -> None:
        """Resumes links that waited for their turn, as far as the turn's work limit allows."""
        turns = self.turns
        if turns is not None:
            work = turns.work
            self.work_done = done = self.work_done + work - self.work_left
            self.work_left = work
            if done >= self.work_alarm and self.on_work_alarm is not None:
                self.on_work_alarm()
            turns.number += 1
            if turns.waiting:
                for link in turns.next_turn():
                    link.resume(PAUSE_SHARE_USED)


@mypyc_attr(allow_interpreted_subclasses=True)
class Link:
    """One connection. Subclasses: ``zmtp.ZmtpLink``, ``sp.SpLink`` and ``http_link.HttpLink``."""

    wire = ""  # "zmtp", "sp" or "http", for display
    seals = False  # ``out`` must not be written directly: the owner gets the bytes from ``take``

    # Set on the instance only where they differ: an instance with over 30 attributes is slower to read, and links are hot.
    principal = ""  # the peer's principal; empty without access control
    close_reason: CloseReason | None = None  # set unless OPEN
    fault: ProtocolViolation | None = None  # the peer's violation, if that is why it is closed
    identity = b""  # the peer's identity (ZMTP); b"" if none
    owner: Any = None  # for the owner of the socket
    local = True  # no other machine could have made the connection
    peer_is_broker = False  # the peer said so
    extensions: Extensions = NO_EXTENSIONS  # that the peer understands
    source = ""  # the source for fairness: the peer's address, or its principal
    renewed = 0  # the turn in which its share was renewed

    def __init__(self, hub: Hub, handler: LinkHandler, peer: str) -> None:
        self.hub = hub
        self.handler = handler
        self.peer = peer  # the peer's address, for people
        self.state: int = OPEN
        self.pauses = 0
        self.out: list[Body] = []  # while not empty, the link is in ``hub.dirty``, or its owner keeps it
        self.needs_full_flush = False  # the owner must look at ``state`` and ``pauses``, or must not join ``out``
        self._fast = False  # the next input may take the handler's fast path; never set while paused or closing
        self.fast_path_size = 0  # see ``LinkHandler.fast_path``
        self.work_left = NO_LIMIT if hub.turns is None else hub.turns.share  # until it must wait for the next turn
        self.input_bytes = 0  # unfinished input, and what came while paused
        self.unsent_bytes = 0  # unsent bytes, as far as the owner knows

    @property
    def open(self) -> bool:
        """Whether the handshake is complete and the connection is open."""
        return False

    @property
    def closed(self) -> bool:
        """The connection is gone."""
        return self.state == CLOSED

    @property
    def closing(self) -> str | None:
        """Why the connection is being closed or was closed by this side, for people; None if it is not."""
        return str(self.close_reason) if self.close_reason is not None else None

    def receive(self, data: bytes) -> int:
        """Takes bytes in any split. Raises nothing: invalid input ends in ``violation``. Returns ``pauses``: while it is not 0, the owner
        must not read from the connection."""
        raise NotImplementedError

    def send(self, envelope: bytes, body: Body = b"") -> None:
        """Sends a message that is already framed for this wire."""
        self.send_pieces((envelope, body) if body else (envelope,), len(body))

    def send_pieces(self, pieces: tuple[Body, ...], largest: int) -> None:
        """The same in pieces, which saves a copy, because all pieces of a turn are joined once. ``largest`` is the size of the largest
        piece."""
        if self.state:
            return
        out = self.out
        if not out:
            self.hub.dirty.append(self)
        out += pieces
        if largest >= BIG_BODY:
            self.needs_full_flush = True

    def take(self) -> "list[Body]":
        """The bytes to write to the connection now. If ``seals`` is False, the owner may use ``out`` directly."""
        out = self.out
        self.out = []
        return out

    def notify_owner(self) -> None:
        """Makes the owner check ``state`` and ``pauses``."""
        self.needs_full_flush = True
        if not self.out:
            self.hub.dirty.append(self)

    def close(self, cause: CloseCause, detail: str = "", abort: bool = False) -> None:
        """Asks the owner to close the connection after ``out`` has been written, or at once."""
        self._fast = False
        if self.state == OPEN:
            self.state = CLOSING
            self.close_reason = CloseReason(cause, detail)
        if abort and self.state == CLOSING:
            self.state = ABORTING
        self.notify_owner()

    def violation(self, error: ProtocolViolation) -> None:
        """The peer violated its wire or messaging protocol: closes its connection."""
        if self.fault is None:
            self.fault = error
        self.close(CloseCause.DENIED if isinstance(error, AccessDenied) else CloseCause.VIOLATION, str(error))

    def pause(self, why: int) -> None:
        """``why`` is one of the PAUSE constants; each has its own ``resume``."""
        if not self.pauses & why:
            self._fast = False
            self.pauses |= why
            self.notify_owner()

    def resume(self, why: int) -> None:
        if self.pauses & why:
            self.pauses &= ~why
            if why == PAUSE_NOT_READING:
                self.handler.on_writable()
            if not self.pauses:
                self.hub.resumed.append(self)
                self.notify_owner()

    # --- work and memory

    def charge(self, work: int) -> None:
        """Charges work to the peer. Beyond its share, its input waits until the next turn."""
        self.work_left -= work
        if self.work_left < 0:
            self.use_up()

    def use_up(self) -> None:
        """The share is used up, or the whole turn is: the link waits. A share that lasted for several turns is renewed by half of it
        instead, once per turn, unless other links wait or the turn is nearly used up: a busy peer with little work in each turn never
        waits."""
        turns = self.hub.turns
        if turns is None:
            self.work_left = NO_LIMIT
        elif (
            self.work_left < 0
            and self.renewed != turns.number
            and not turns.waiting
            and self.hub.work_left >= turns.share
        ):
            self.renewed = turns.number
            self.work_left += turns.share >> 1
            if self.work_left < 0:
                self.use_up()
        elif not self.pauses & PAUSE_SHARE_USED and not self.state:
            turns.wait(self)
            self.pause(PAUSE_SHARE_USED)

    def charge_time(self, seconds: float, charged: int) -> None:
        """Charges the time that some work took, as far as it exceeds its price, which was ``charged`` already."""
        more = int(seconds * 1_000_000) - charged
        if more > 0:
            self.charge(more)

    def set_source(self, source: str) -> None:
        """Changes the source that the peer belongs to, for fairness."""
        turns = self.hub.turns
        waiting = 0 if turns is None else turns.waiting
        if turns is not None:
            turns.forget(self)
        self.source = source
        if turns is not None and turns.waiting != waiting:
            turns.wait(self)

    def book_input(self, size: int) -> None:
        """Sets the number of bytes of input that are incomplete or waiting."""
        if size < HELD_INPUT:
            size = 0
        if size != self.input_bytes:
            hub = self.hub
            grown = size - self.input_bytes
            hub.input_bytes += grown
            self.input_bytes = size
            self._hold()
            if grown > 0 and hub.input_bytes > hub.input_alarm and hub.on_input_alarm is not None:
                hub.on_input_alarm(self)

    def book_unsent(self, size: int) -> None:
        """Sets the number of unsent bytes."""
        if size != self.unsent_bytes:
            self.hub.unsent_bytes += size - self.unsent_bytes
            self.unsent_bytes = size
            self._hold()

    def _hold(self) -> None:
        if self.input_bytes or self.unsent_bytes:
            self.hub.holding[self] = None
        else:
            self.hub.holding.pop(self, None)

    def held(self) -> int:
        """All that is held for the peer, in bytes."""
        return self.input_bytes + self.unsent_bytes + self.handler.held()

    def drop_input(self) -> None:
        """Frees unfinished input when the connection is gone, or is cut to free memory. A link and its owner refer to each other, so
        without this its buffers would stay until the garbage collector runs, though the account of memory counts them no more."""

    def lost(self, cause: CloseCause = CloseCause.PEER_CLOSED, detail: str = "") -> None:
        """The owner reports that the connection is gone. May be called twice."""
        if self.state != CLOSED:
            self.state = CLOSED
            self._fast = False
            self.needs_full_flush = True
            self.out.clear()
            self.drop_input()
            self.book_input(0)
            self.book_unsent(0)
            if self.pauses & PAUSE_SHARE_USED and self.hub.turns is not None:
                self.hub.turns.forget(self)
            self.handler.on_close(self.close_reason or CloseReason(cause, detail))
