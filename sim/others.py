"""Simulated peers without requests: services and clients of the catalog (DBP), publishers and subscribers.

A service registers and sends heartbeats as datagrams, which may be lost, duplicated or delayed; it falls back to its connection. It must
be listed while it sends heartbeats, and expire when it stops. A subscriber must get the messages of its topic, no others, and in the order
in which they were published.
"""

from typing import TYPE_CHECKING, Any

from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.dbp.ends import Acknowledged, Approved, DbpEnd, Denied, Disconnected, Info
from sim.peers import Line, Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

Message = list[bytes]


class Keeper(Peer):
    """A peer with one connection, which it opens again whenever it is lost."""

    def __init__(self, world: "World", name: str, node: "BrokerNode") -> None:
        super().__init__(world, name, node)
        self.line: Line | None = None
        self.failures = 0
        self.closed = False
        self._dial()

    @property
    def pace(self) -> float:
        """Seconds between two messages: short while faults are injected, long while the simulation settles."""
        return self.options.pace if self.world.troubled else 5.0

    def make_end(self) -> Any:
        raise NotImplementedError

    def opened(self) -> None:
        """Called when the connection is open."""

    def heard(self, event: Any) -> None:
        raise NotImplementedError

    def dropped(self) -> None:
        """Called when the connection is lost."""

    def goodbye(self) -> None:
        """Called before the peer disconnects: sends a last message."""

    def _dial(self) -> None:
        if self.closed:
            return
        self.up = True
        line = Line(
            self,
            self.make_end(),
            lambda: self._opened(line),
            lambda event: self.heard(event),
            lambda why: self.lost(line, why),
        )
        self.line = line

    def _opened(self, line: Line) -> None:
        self.failures = 0
        self.opened()
        line.flush()

    def lost(self, line: Line, why: str) -> None:
        if self.line is line:
            self.line = None
            self.failures += 1
            self.dropped()
            self.later(self.backoff(self.failures), self._dial)

    def flush(self) -> None:
        if self.line is not None and self.line.alive:
            self.line.flush()

    @property
    def connected(self) -> bool:
        return self.line is not None and self.line.alive and self.line.opened

    def crash(self, restart_after: float) -> None:
        if self.up:
            self.note("crashed")
            if self.line is not None:
                self.line.close(abort=True)
                self.line = None
                self.dropped()
            self.die()
            self.world.scheduler.at(self.now + restart_after, self.restart)

    def restart(self) -> None:
        if not self.up:
            self._dial()

    def leave(self) -> None:
        self.closed = True
        line = self.line
        if line is not None:
            self.goodbye()
            line.flush()
            line.close()
            self.lost(line, "left")


class DbpSpeaker:
    """A ``DbpEnd`` that gets the simulated time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.end = DbpEnd()
        self.protocol = self.end.protocol
        self.wire = self.end.wire
        self.socket_type = self.end.socket_type
        self.out = self.end.out

    def receive(self, message: Message) -> list[Any]:
        return list(self.end.receive(message, self.peer.now))


class CatalogService(Keeper):
    """Registers under its own name and sends heartbeats as datagrams."""

    approved = False
    speaker: DbpSpeaker

    def make_end(self) -> DbpSpeaker:
        self.speaker = DbpSpeaker(self)
        return self.speaker

    def opened(self) -> None:
        info: dict[str, object] = {
            "name": self.name,
            "ip": self.name,
            "port": 1,
            "function": "test",
            "heartbeat": self.options.beat,
        }
        self.speaker.end.register(info, self.now)
        line = self.line
        self.later(self.options.beat, lambda: self._beat(line))

    def _beat(self, line: Line | None) -> None:
        if line is None or self.line is not line or not line.alive:
            return
        if self.now - line.heard > 6 * self.options.beat:
            line.close(abort=True)
            self.lost(line, "the broker is silent")
            return
        data = udp.write(dbp.HEARTBEAT, self.name, self.now)
        self.world.network.send_datagram(self, self.node, data)
        if self.rng.random() < 0.3 or not self.world.troubled:  # "on a missed beat both fall back to the connection"
            self.speaker.end.beat(self.now)
            line.flush()
        self.later(self.options.beat, lambda: self._beat(line))

    def heard(self, event: Any) -> None:
        if isinstance(event, Approved):
            self.approved = True
        elif isinstance(event, Denied):
            self.world.breach("catalog", f"{self.name} was denied its own name: {event.reason}")
        elif isinstance(event, Disconnected) and self.line is not None:
            line = self.line
            line.close()
            self.lost(line, "disconnected")
        elif not isinstance(event, Acknowledged | Disconnected):
            self.world.breach("catalog", f"{self.name} received {event} without having asked")

    def dropped(self) -> None:
        self.approved = False

    def goodbye(self) -> None:
        self.speaker.end.disconnect(self.now)


class CatalogClient(Keeper):
    """Looks up services, one query at a time; every query must get one answer."""

    speaker: DbpSpeaker
    asked: list[str] | None = None
    last: Info | None = None

    def make_end(self) -> DbpSpeaker:
        self.speaker = DbpSpeaker(self)
        return self.speaker

    def opened(self) -> None:
        self.asked = None
        line = self.line
        self.later(self.rng.random(), lambda: self._ask(line))

    def _ask(self, line: Line | None) -> None:
        if line is None or self.line is not line or not line.alive:
            return
        if self.asked is None:
            self.asked = self.rng.choice([[], [self.world.catalog_names[0]], [*self.world.catalog_names, "nobody"]])
            self.speaker.end.info(self.asked, self.now)
            line.flush()
        self.later(self.pace, lambda: self._ask(line))

    def heard(self, event: Any) -> None:
        if not isinstance(event, Info) or self.asked is None:
            self.world.breach("catalog", f"{self.name} asked for {self.asked} and received {event}")
            return
        if self.asked:
            strange = set(event.services) - set(self.asked)
            if strange or ("nobody" in self.asked) > ("nobody" in event.error):
                self.world.breach("catalog", f"{self.name} asked for {self.asked} and received {event}")
        self.asked = None
        self.last = event


class Topics:
    """The end of a PUB or a SUB socket."""

    protocol = "pubsub"
    wire = "zmtp"

    def __init__(self, socket_type: bytes) -> None:
        self.socket_type = socket_type
        self.out: list[Message] = []

    def receive(self, message: Message) -> list[Message]:
        return [message]


class Publisher(Keeper):
    """Publishes increasing numbers under its own topic."""

    number = 0

    def make_end(self) -> Topics:
        return Topics(b"PUB")

    def opened(self) -> None:
        line = self.line
        self.later(self.rng.random(), lambda: self._publish(line))

    def _publish(self, line: Line | None) -> None:
        if line is not None and self.line is line and line.alive:
            self.number += 1
            line.end.out.append([b"topic." + self.name.encode(), b"%d" % self.number])
            line.flush()
            self.later(self.pace, lambda: self._publish(line))

    def heard(self, event: Message) -> None:
        """Ignores the broker's subscriptions."""


class Subscriber(Keeper):
    """Subscribes to the topic of one publisher."""

    def __init__(self, world: "World", name: str, node: "BrokerNode", publisher: Publisher) -> None:
        self.publisher = publisher
        self.last = 0
        super().__init__(world, name, node)

    def make_end(self) -> Topics:
        return Topics(b"SUB")

    def opened(self) -> None:
        assert self.line is not None
        self.last = 0
        self.line.end.out.append([b"\x01topic." + self.publisher.name.encode()])

    def heard(self, event: Message) -> None:
        topic = b"topic." + self.publisher.name.encode()
        if len(event) != 2 or event[0] != topic:
            self.world.breach("topic", f"{self.name} subscribed to {topic!r} and received {event!r}")
            return
        number = int(event[1])
        if number <= self.last:
            self.world.breach("topic", f"{self.name} received {number} of {topic!r} after {self.last}")
        self.last = number
