"""A client that sends eMQP requests without ``reply-requested`` and leaves: its requests must be run all the same."""

from typing import TYPE_CHECKING

from polydomo.wire.frames import join
from sim.garbage import GREETING, READY
from sim.network import Endpoint, Owner
from sim.peers import Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World


class Leaver(Peer, Owner):
    def __init__(self, world: "World", node: "BrokerNode") -> None:
        super().__init__(world, f"l{world.faults.get('left without waiting', 0)}", node)

    def start(self) -> None:
        self.world.network.dial(self, self.node, self, self._made, lambda why: None)

    def _made(self, endpoint: Endpoint) -> None:
        rng = self.rng
        requests = [
            join(
                [
                    b"",
                    b"eMQP/1.0",
                    b"REQUEST",
                    b"%d" % number,
                    rng.choice([*self.world.services, b"nobody"]),
                    self._headers(),
                    b"<garbage>",
                ]
            )
            for number in range(rng.choice((1, 3, 10)))
        ]
        endpoint.write(GREETING + READY + b"".join(requests))
        self.later(rng.expovariate(2.0), endpoint.close)

    def _headers(self) -> bytes:
        return self.rng.choice((b"", b"", b"timeout:1"))

    def on_data(self, data: bytes) -> None:
        """Ignores what it receives."""

    def on_lost(self, reason: str) -> None:
        """Does not reconnect."""
