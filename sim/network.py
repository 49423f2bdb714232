"""The simulated network. Bytes of a connection arrive late, in pieces, in part or not at all; datagrams can be lost or repeated.

A connection behaves like TCP: each direction delivers bytes in order and without gaps until it ends, and can end at any byte. Bytes that
are written while the route is blocked arrive when it is open again.
"""

from collections import deque
from collections.abc import Callable
from random import Random

from sim.clock import Process, Scheduler
from sim.options import Options

READ = 256_000  # bytes that one read of an event loop returns at most


class Owner:
    """The owner of one side of a connection."""

    reads_in_turns = False  # it calls ``Endpoint.read_more`` in its next turn, after a read that returned READ bytes

    def on_data(self, data: bytes) -> None:
        raise NotImplementedError

    def on_lost(self, reason: str) -> None:
        """The connection is lost. Called once, and not after this side has closed it."""
        raise NotImplementedError

    def on_pressure(self, choked: bool) -> None:
        """``choked``: the other side does not read, so written bytes pile up."""


class Pipe:
    """One direction of a connection."""

    def __init__(self, network: "Network", source: Process, target: "Endpoint") -> None:
        self.network = network
        self.source = source
        self.target = target
        self.segments: deque[tuple[float, bytes | None]] = deque()  # arrival time and bytes; None marks the end
        self.size = 0  # bytes written and not yet read
        self.last = 0.0
        self.clogged = 0.0
        self.ended = False
        self.writer: Endpoint | None = None
        self.choked = False

    def write(self, data: bytes) -> None:
        if self.ended:
            return
        network = self.network
        rng = network.rng
        self.size += len(data)
        if len(data) > 1 and rng.random() < network.options.split:
            for _ in range(rng.choice((1, 1, 2, 5))):
                if len(data) > 1:
                    cut = (
                        rng.randint(1, min(len(data) - 1, 64)) if rng.random() < 0.7 else rng.randint(1, len(data) - 1)
                    )
                    self._send(data[:cut])
                    data = data[cut:]
        self._send(data)
        if not self.choked and self.size > network.options.choke:
            self.choked = True
            if self.writer is not None and self.writer.open:
                self.writer.owner.on_pressure(True)

    def end(self, wait: float = 0.0) -> None:
        if not self.ended:
            self.ended = True
            self._send(None, wait)
            if len(self.segments) > 1 and not self.target.reading:
                self.network.scheduler.at(self.last, self.pump)  # an owner that does not read still sees the end

    def _send(self, data: bytes | None, wait: float = 0.0) -> None:
        network = self.network
        options = network.options
        at = max(self.last, network.scheduler.now + options.latency + network.rng.random() * options.jitter + wait)
        self.last = at
        self.segments.append((at, data))
        if len(self.segments) == 1:
            network.scheduler.at(at, self.pump)

    def lose_suffix(self) -> None:
        """Bytes in transit are lost, from a random byte on."""
        rng = self.network.rng
        self.ended = False  # an end in transit is lost, too
        keep = rng.randint(0, len(self.segments)) if rng.random() < 0.8 else 0
        kept = list(self.segments)[:keep]
        if keep < len(self.segments) and rng.random() < 0.5:
            at, data = self.segments[keep]
            if data is not None and len(data) > 1:
                kept.append((at, data[: rng.randint(1, len(data) - 1)]))
        self.segments = deque((at, data) for at, data in kept if data is not None)
        self.last = self.segments[-1][0] if self.segments else 0.0
        self.size = sum(len(data) for _, data in self.segments if data is not None)

    def pump(self) -> None:
        """Delivers the bytes that have arrived, if the other side reads."""
        segments = self.segments
        target = self.target
        network = self.network
        now = network.scheduler.now
        if (
            not segments
            or target.full
            or target.process.frozen
            or (self.source.name, target.process.name) in network.blocked
        ):
            return  # called again when that changes
        if now < self.clogged:
            network.scheduler.at(self.clogged, self.pump)
            return
        if not target.reading and target.open:
            # The owner does not read, but it sees the end of the connection, and drops the rest.
            if segments[-1][1] is None and segments[-1][0] <= now:
                segments.clear()
                target.lost("closed by the other side")
            elif segments[-1][1] is None:
                network.scheduler.at(segments[-1][0], self.pump)
            return
        gathered = bytearray()
        over = False
        while segments and segments[0][0] <= now and len(gathered) < READ:
            at, data = segments.popleft()
            if data is None:
                over = True
            else:
                room = READ - len(gathered)
                gathered += data[:room]
                if len(data) > room:
                    segments.appendleft((at, data[room:]))
        if len(gathered) == READ and target.open and target.owner.reads_in_turns:
            target.full = True
        elif segments:
            network.scheduler.at(segments[0][0], self.pump)
        if gathered:
            self.size -= len(gathered)
            if self.choked and self.size <= network.options.choke // 4:
                self.choked = False
                if self.writer is not None and self.writer.open:
                    self.writer.owner.on_pressure(False)
            if target.open:
                target.owner.on_data(bytes(gathered))
        if over:
            target.lost("closed by the other side")


class Endpoint:
    """One side of a connection."""

    out: Pipe
    into: Pipe

    def __init__(self, process: Process, owner: Owner, name: str) -> None:
        self.process = process
        self.owner = owner
        self.name = name
        self.open = True
        self.reading = True
        self.full = False  # the last read returned as much as it can; the next one comes in another turn

    def read_more(self) -> None:
        """Called in the owner's turn, after it has handled what was read before."""
        if self.full:
            self.full = False
            self.into.network.scheduler.at(self.into.network.scheduler.now, self.into.pump)

    def write(self, data: bytes) -> None:
        if self.open:
            self.out.write(data)

    def read(self, reading: bool) -> None:
        if reading != self.reading:
            self.reading = reading
            self.into.network.scheduler.at(self.into.network.scheduler.now, self.into.pump)

    def close(self) -> None:
        """Closes the connection after all written bytes have been sent."""
        if self.open:
            self.open = False
            self.out.end()

    def abort(self) -> None:
        """Closes the connection at once. Bytes in transit may be lost."""
        if self.open:
            self.open = False
            self.out.lose_suffix()
            self.out.end()

    def lost(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.out.end()
            self.owner.on_lost(reason)


class Connection:
    """A connection: both endpoints and both directions."""

    def __init__(self, network: "Network", near: Endpoint, far: Endpoint) -> None:
        self.near = near
        self.far = far
        near.out = far.into = Pipe(network, near.process, far)
        near.into = far.out = Pipe(network, far.process, near)
        near.out.writer = near
        far.out.writer = far

    @property
    def over(self) -> bool:
        return not self.near.open and not self.far.open

    def cut(self, rng: Random, half_open: float) -> None:
        """Breaks the connection. With probability ``half_open``, one side notices it much later."""
        for pipe in (self.near.out, self.far.out):
            pipe.lose_suffix()
        waits = [0.0, 0.0]
        if rng.random() < half_open:
            waits[rng.randint(0, 1)] = rng.uniform(1.0, 30.0)
        self.near.out.end(waits[0])
        self.far.out.end(waits[1])


class Dialing:
    """An attempt to connect."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Listener(Process):
    """A process that accepts connections."""

    def accept(self, endpoint: Endpoint) -> Owner:
        raise NotImplementedError

    def on_datagram(self, data: bytes, source: str) -> None:
        raise NotImplementedError


class Network:
    def __init__(self, scheduler: Scheduler, options: Options, rng: Random) -> None:
        self.scheduler = scheduler
        self.options = options
        self.rng = rng
        self.blocked: dict[tuple[str, str], int] = {}  # (from, to) -> number of faults that block this route
        self.connections: list[Connection] = []
        self.made = 0

    def dial(
        self,
        process: Process,
        listener: Listener,
        owner: Owner,
        made: Callable[[Endpoint], None],
        refused: Callable[[str], None],
    ) -> Dialing:
        """Connects, and calls ``made`` or ``refused`` unless the attempt is cancelled first. On a blocked route neither is called, so
        the caller needs a timeout."""
        dialing = Dialing()
        life = process.life

        def knock() -> None:
            if dialing.cancelled or process.life != life:
                return
            ways = ((process.name, listener.name), (listener.name, process.name))
            if any(way in self.blocked for way in ways):
                self.scheduler.at(self.scheduler.now + 1.0, knock)  # like TCP, it tries again after a second
            elif not listener.up:
                process.later(
                    self.options.latency, lambda: None if dialing.cancelled else refused("connection refused")
                )
            else:
                self._connect(process, listener, owner, made)

        self.scheduler.at(
            self.scheduler.now + 2 * self.options.latency + self.rng.random() * self.options.jitter, knock
        )
        return dialing

    def _connect(self, process: Process, listener: Listener, owner: Owner, made: Callable[[Endpoint], None]) -> None:
        self.made += 1
        near = Endpoint(process, owner, f"{process.name}:{self.made}")
        far = Endpoint(listener, owner, near.name)
        self.connections.append(Connection(self, near, far))
        far.owner = listener.accept(far)
        made(near)

    def block(self, source: Process, target: Process, seconds: float) -> None:
        way = (source.name, target.name)
        self.blocked[way] = self.blocked.get(way, 0) + 1

        def unblock() -> None:
            if way in self.blocked:
                self.blocked[way] -= 1
                if not self.blocked[way]:
                    del self.blocked[way]
                    self.wake()

        self.scheduler.at(self.scheduler.now + seconds, unblock)

    def wake(self) -> None:
        """A process or a route works again: delivers what can be delivered."""
        self.connections = [
            connection for connection in self.connections if not connection.over or self._busy(connection)
        ]
        for connection in self.connections:
            connection.near.out.pump()
            connection.far.out.pump()

    def _busy(self, connection: Connection) -> bool:
        return bool(connection.near.out.segments or connection.far.out.segments)

    def heal(self) -> None:
        """Opens all routes. Endpoints that have not noticed the loss of their connection notice it now."""
        self.blocked.clear()
        now = self.scheduler.now
        for connection in self.connections:
            for pipe in (connection.near.out, connection.far.out):
                pipe.clogged = 0.0
                pipe.segments = deque((min(at, now), data) for at, data in pipe.segments)
                pipe.last = min(pipe.last, now)
        self.wake()

    def send_datagram(self, source: Process, target: Listener, data: bytes) -> None:
        """Sends a datagram, which may be lost, repeated or delayed according to the options ``cut`` and ``jitter``."""
        copies = 1
        if self.options.cut and self.rng.random() < 0.3:
            copies = self.rng.choice((0, 2))
        for _ in range(copies):
            wait = self.options.latency + self.rng.random() * self.options.jitter * 3
            self.scheduler.at(self.scheduler.now + wait, lambda: self._arrive(source, target, data))

    def _arrive(self, source: Process, target: Listener, data: bytes) -> None:
        if target.up and not target.frozen and (source.name, target.name) not in self.blocked:
            target.on_datagram(data, source.name)
