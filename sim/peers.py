"""A peer's side of a connection: the real client or worker end of a protocol and a real link, on a simulated connection.

``Line`` corresponds to ``client.connection``, which uses a socket. ``NngSocket`` behaves like a socket of NNG: it reconnects, and it
repeats a request without an answer after a while and on every new connection, with the same id.
"""

import typing
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from polydomo.errors import ProtocolViolation
from polydomo.limits import CONNECT_TIME
from polydomo.protocols.ends import ANNOUNCED, ClientEnd, WorkerEnd
from polydomo.wire import frames, sp
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.link import DEFAULT_BOUNDS, Bounds, Hub, Link, LinkHandler
from polydomo.wire.security.mechanism import Mechanism, Null
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from sim import clock
from sim.http_ends import HttpPeerLink, read_message
from sim.network import Dialing, Endpoint, Owner

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World


EXTENDED = Bounds(extensions=ANNOUNCED)


class End(typing.Protocol):
    """The interface of an end, as in ``protocols``."""

    protocol: str
    wire: str
    socket_type: bytes
    out: list[list[bytes]]

    def receive(self, message: list[bytes]) -> "Sequence[object]": ...


class Peer(clock.Process):
    """The process of a client or a worker."""

    def __init__(self, world: "World", name: str, node: "BrokerNode") -> None:
        super().__init__(world.scheduler, name)
        self.world = world
        self.options = world.options
        self.rng = world.rng
        self.node = node
        self.extended = Random(f"extended {self.options.seed} {name}").random() < self.options.extended

    def note(self, what: str, tag: str = "", *more: object) -> None:
        self.world.record.add(self.now, self.name, what, tag, *more)

    def mechanism(self, socket_type: bytes, identity: bytes) -> Mechanism | None:
        """CURVE, for the fraction of peers that the options name; None stands for NULL."""
        keys = self.world.keys
        if keys is None or Random(f"curve {self.options.seed} {self.name}").random() >= self.options.curve:
            return None
        return keys.client(keys.honest, socket_type, identity)

    def backoff(self, failures: int) -> float:
        return float(min(2.0, 0.05 * 2.0 ** min(failures, 10)) * self.rng.uniform(0.5, 1.0))

    def thaw(self) -> None:
        if self.frozen:
            super().thaw()
            self.world.network.wake()

    def crash(self, restart_after: float) -> None:
        raise NotImplementedError

    def restart(self) -> None:
        """Starts the process again after a crash. Does nothing if it is running."""
        raise NotImplementedError

    def leave(self) -> None:
        """Disconnects for good."""
        raise NotImplementedError


class Line(Owner, LinkHandler):
    """One connection of a peer, from the attempt to connect until it is closed."""

    def __init__(
        self,
        peer: Peer,
        end: End,
        on_open: Callable[[], None],
        on_event: Callable[[Any], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.peer = peer
        self.end = end
        self.on_opened = on_open
        self.on_event = on_event
        self.lost_to = on_lost
        self.heard = peer.now
        self.alive = True  # from the attempt to connect until it is closed or lost
        self.opened = False
        self.endpoint: Endpoint | None = None
        self._hub = Hub()
        self._link: Link = self._make_link()
        self._timer = peer.later(CONNECT_TIME, self._too_late)
        self._dialing: Dialing = peer.world.network.dial(peer, peer.node, self, self._made, self.on_lost)

    @property
    def name(self) -> str:
        return self.endpoint.name if self.endpoint is not None else ""

    def _make_link(self) -> Link:
        if self.end.wire == "http":
            return HttpPeerLink(self._hub, self, "broker")
        if self.end.wire == "sp":
            return SpLink(self._hub, self, "broker", listener=False)
        kind = self.end.socket_type
        identity: bytes = getattr(self.end, "identity", b"")  # those of topics and of the catalog have none
        mechanism = self.peer.mechanism(kind, identity)
        bounds = EXTENDED if self.peer.extended else DEFAULT_BOUNDS
        if mechanism is None and identity:
            mechanism = Null(False, kind, identity)
        return ZmtpLink(self._hub, self, "broker", socket_type=kind, bounds=bounds, mechanism=mechanism)

    def _made(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        if self.alive:
            if self.end.wire == "http":
                self.on_open()  # there is no handshake
            self.flush()
        else:
            endpoint.abort()

    def _too_late(self) -> None:
        if not self.opened:
            self.close(abort=True)
            self.lost_to("no answer in time")

    def flush(self) -> None:
        """Writes the messages of the end, and the link's own output."""
        self.hand_over()
        link = self._link
        self._hub.dirty.clear()
        endpoint = self.endpoint
        if endpoint is None:
            return
        if link.out:
            data = b"".join(link.take())
            link.needs_full_flush = False
            endpoint.write(data)
        reason = link.close_reason
        if reason is not None and self.alive:
            self.close()
            if reason.cause in (CloseCause.VIOLATION, CloseCause.DENIED) and not self.peer.name.startswith("g"):
                self.peer.world.breach("to-peer", f"{self.end.protocol} {self.name}: {reason}")
                self.lost_to(str(reason))

    def hand_over(self) -> None:
        out = self.end.out
        if out and self.opened:
            for message in out:
                self.send(message)
            out.clear()

    def send(self, message: list[bytes]) -> None:
        link = self._link
        if isinstance(link, SpLink):
            link.send_message(message[0], b"", message[1])
        elif self.end.wire == "http":
            link.send(message[0])
        else:
            link.send(frames.join(message))

    def close(self, abort: bool = False) -> None:
        """Closes the connection from this side; ``on_lost`` is not called."""
        if self.alive:
            self.alive = False
            self._timer.cancel()
            self._dialing.cancel()
            if self.endpoint is not None:
                if not abort:
                    self.hand_over()
                    if self._link.out:
                        self.endpoint.write(b"".join(self._link.take()))
                    self.endpoint.close()
                else:
                    self.endpoint.abort()

    # --- from the network

    def on_data(self, data: bytes) -> None:
        if self.alive:
            self._hub.now = self.heard = self.peer.now
            self._link.receive(data)
            self.flush()

    def on_lost(self, reason: str) -> None:
        if self.alive:
            self.alive = False
            self._timer.cancel()
            self._dialing.cancel()
            self.lost_to(reason)

    # --- from the link

    def on_open(self) -> None:
        if isinstance(self.end, ClientEnd | WorkerEnd):
            self.end.agreed = self._link.extensions
        self.opened = True
        self._timer.cancel()
        self.on_opened()

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if not self.alive:
            return
        try:
            if self.end.wire == "http":
                message = read_message(data[start:end])
            else:
                message = sp.split(data, start, end) if self.end.wire == "sp" else frames.split(data[start:end])
            events = self.end.receive(message)
        except ProtocolViolation as error:
            self.peer.world.breach("to-peer", f"{self.end.protocol} {self.name}: {error}: {message!r:.300}")
            self.close(abort=True)
            self.lost_to(str(error))
            return
        for event in events:
            self.on_event(event)


class NngSocket:
    """A memo01 end that reconnects as often as necessary."""

    def __init__(self, peer: Peer, end: End, on_event: Callable[[Any], None]) -> None:
        self.peer = peer
        self.end = end
        self.on_event = on_event
        self.pending: dict[bytes, bytes] = {}  # request id -> body, of requests without an answer
        self.line: Line | None = None
        self.closed = False
        self.failures = 0
        self.since = 0.0
        self._dial()

    def _dial(self) -> None:
        if not self.closed:
            self.line = NngLine(self)

    def opened(self) -> None:
        self.failures = 0
        for rid, body in self.pending.items():
            assert self.line is not None
            self.line.send([rid, body])

    def lost(self, reason: str) -> None:
        if not self.closed:
            self.failures += 1
            self.peer.later(self.peer.backoff(self.failures), self._dial)

    def close(self, abort: bool = False) -> None:
        self.closed = True
        self.pending.clear()
        if self.line is not None:
            self.line.close(abort)

    def flush(self) -> None:
        for rid, body in self.end.out:
            self.pending[rid] = body
            self._repeat_later(rid)
            if self.line is not None and self.line.opened and self.line.alive:
                self.line.send([rid, body])
        self.end.out.clear()
        if self.line is not None and self.line.alive:
            self.line.flush()

    def forget(self, rid: bytes) -> None:
        self.pending.pop(rid, None)

    def _repeat_later(self, rid: bytes) -> None:
        self.peer.later(self.peer.options.resend, lambda: self._repeat(rid))

    def _repeat(self, rid: bytes) -> None:
        body = self.pending.get(rid)
        if body is not None and not self.closed:
            line = self.line
            if line is not None and line.alive and line.opened:
                self.peer.world.count("resend")
                line.send([rid, body])
                line.flush()
            self._repeat_later(rid)


class NngLine(Line):
    """One of the connections of an ``NngSocket``."""

    def __init__(self, socket: NngSocket) -> None:
        self.socket = socket
        super().__init__(socket.peer, socket.end, socket.opened, socket.on_event, socket.lost)

    def hand_over(self) -> None:
        """Does nothing: the socket sends its messages itself, and keeps them for repetition."""

    def on_message(self, data: bytes, start: int, end: int) -> None:
        rid = data[start : start + 4]
        if self.alive and rid in self.socket.pending:
            del self.socket.pending[rid]
            super().on_message(data, start, end)
            self.socket.flush()
