"""A greedy peer: it floods the broker with valid messages, or makes it hold as much as possible. Other peers must not be affected."""

from typing import TYPE_CHECKING

from polydomo.wire.frames import join
from polydomo.wire.security.mechanism import command, properties
from sim.garbage import GREETING
from sim.network import Endpoint, Owner
from sim.peers import Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

UNFINISHED = 900_000  # bytes of a message that is never completed


class Greedy(Peer, Owner):
    def __init__(self, world: "World", node: "BrokerNode") -> None:
        super().__init__(world, f"g{world.faults.get('greed', 0)}", node)

    def start(self) -> None:
        self.world.network.dial(self, self.node, self, self._made, lambda why: None)

    def _made(self, endpoint: Endpoint) -> None:
        rng = self.rng
        kind, words = rng.choice(
            (
                (b"DEALER", self._requests()),
                (b"DEALER", self._invalid()),
                (b"PUB", self._publications()),
                (b"SUB", self._subscriptions()),
                (b"DEALER", b"\x02" + (UNFINISHED + 1).to_bytes(8, "big") + bytes(UNFINISHED)),
            )
        )
        ready = command(b"READY", properties([(b"Socket-Type", kind)]))
        endpoint.write(GREETING + ready + words)
        self.later(rng.uniform(2.0, 8.0), endpoint.close if rng.random() < 0.5 else endpoint.abort)

    def _requests(self) -> bytes:
        return join([b"", b"MDPC01", b"mmi.service", b"x"]) * self.rng.choice((100, 1000))

    def _invalid(self) -> bytes:
        return join([b"MDXC01", b"\x01", b"mmi.service", b"1", b"x"]) + join([b"MDXC01", b"\x7f", b"x"]) * 300

    def _publications(self) -> bytes:
        return join([b"greed", b"x"]) * self.rng.choice((100, 1000))

    def _subscriptions(self) -> bytes:
        return b"".join(command(b"SUBSCRIBE", b"greed.%d" % number) for number in range(500))

    def on_data(self, data: bytes) -> None:
        """Ignores what it receives."""

    def on_lost(self, reason: str) -> None:
        """Does not reconnect."""
