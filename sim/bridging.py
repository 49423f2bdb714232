"""A bridge between two brokers: one of them connects to the other, and reconnects, as ``server.connections.outgoing`` does."""

from typing import TYPE_CHECKING

from polydomo.limits import CONNECT_TIME
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.wire.link import Link, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from sim.network import Endpoint
from sim.server_connection import ServerConnection
from sim.wiretap import Tap

if TYPE_CHECKING:
    from sim.brokers import BrokerNode


class HandshakeHandler(LinkHandler):
    """The handler of the connection during its handshake."""

    link: Link
    tap: Tap

    def __init__(self, node: "BrokerNode") -> None:
        self.node = node

    def on_open(self) -> None:
        session = BridgeSession(self.node.broker, self.link, caller=True, sibling=self.node.options.siblings)
        self.link.handler = self.tap.in_front_of(session)
        self.node.broker.session_opened(session)
        session.on_open()


class Bridge:
    """Belongs to one run of a broker."""

    def __init__(self, node: "BrokerNode", other: "BrokerNode") -> None:
        self.node = node
        self.other = other
        self.failures = 0
        self.connection: BridgeConnection | None = None
        self._dial()

    def _dial(self) -> None:
        if self.node.bridging:
            self.connection = BridgeConnection(self)

    def lost(self) -> None:
        self.failures += 1
        wait = min(2.0, 0.05 * 2.0 ** min(self.failures, 8)) * self.node.rng.uniform(0.5, 1.0)
        self.node.later(wait, self._dial)


class BridgeConnection(ServerConnection):
    def __init__(self, bridge: Bridge) -> None:
        node = bridge.node
        self.bridge = bridge
        self.ended = False
        super().__init__(node, Endpoint(node, self, ""))
        self.endpoint.open = False  # until it is connected
        self._timer = node.later(CONNECT_TIME, self._too_late)
        self._dialing = node.world.network.dial(node, bridge.other, self, self._made, lambda why: self._over())

    def _made(self, endpoint: Endpoint) -> None:
        if self.ended or not self.node.up:
            endpoint.abort()
            return
        node = self.node
        self.endpoint = endpoint
        opening = HandshakeHandler(node)
        link = ZmtpLink(node.hub, opening, endpoint.name, socket_type=b"DEALER", bounds=node.bounds)
        self.link = opening.link = link
        link.owner = self
        self.tap = opening.tap = Tap(node.watcher, link, endpoint.name, self._drain)
        node.connections[self] = None
        node.wake()

    def _too_late(self) -> None:
        if (self.link is None or not self.link.open) and not self.ended:
            self._dialing.cancel()
            if self.endpoint.open:
                self.endpoint.abort()
                self.node.inbox.append((self, None))
                self.node.wake()
            else:
                self._over()

    def take(self, data: bytes | None) -> None:
        super().take(data)
        if data is None:
            self._over()
        elif self.link is not None and self.link.open:
            self.bridge.failures = 0

    def _over(self) -> None:
        if not self.ended:
            self.ended = True
            self._timer.cancel()
            self.bridge.lost()
