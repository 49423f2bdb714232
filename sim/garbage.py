"""A peer that sends random bytes, or a valid dialog with some bytes changed."""

from typing import TYPE_CHECKING

from polydomo.protocols import registry
from polydomo.wire.frames import join
from polydomo.wire.sp import message
from sim.network import Endpoint, Owner
from sim.options import PROTOCOLS
from sim.peers import Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(48)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
HELLO = b"\x00SP\x00\x00\x30\x00\x00"


class Garbler(Peer, Owner):
    def __init__(self, world: "World", node: "BrokerNode") -> None:
        super().__init__(world, f"g{world.faults.get('garbage', 0)}", node)

    def start(self) -> None:
        self.world.network.dial(self, self.node, self, self._made, lambda why: None)

    def _made(self, endpoint: Endpoint) -> None:
        data = self._words()
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 3))):
            if data:
                at = rng.randrange(len(data))
                data = data[:at] + rng.randbytes(rng.choice((0, 1, 1, 4))) + data[at + rng.choice((0, 1, 1, 8)) :]
        endpoint.write(data)
        self.later(rng.expovariate(0.5), endpoint.close if rng.random() < 0.5 else endpoint.abort)

    def _words(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.2:
            return rng.randbytes(rng.randint(1, 200))
        protocol = rng.choice(PROTOCOLS)
        service = rng.choice([*self.world.services, b"mmi.service", b"\xff"])
        out: list[list[bytes]] = []
        if rng.random() < 0.5 or (protocol in ("memo", "emqp") and service == b"\xff"):
            client = registry.client_end(protocol)
            client.request(1, b"garbage" if service == b"\xff" else service, [b"<garbage>"], 5.0)
            out += client.out
        else:
            worker = registry.worker_end(protocol)
            worker.open([service if service != b"mmi.service" else b"garbage"])
            worker.beat()
            out += worker.out
        out += [[bytes(frame) for frame in rng.choice(out)] for _ in range(rng.randint(0, 2))]
        if protocol == "memo":
            return HELLO + b"".join(message(rid, body) for rid, body in out)
        return GREETING + READY + b"".join(map(join, out))

    def on_data(self, data: bytes) -> None:
        """Ignores what it receives."""

    def on_lost(self, reason: str) -> None:
        """Ignores the end of the connection."""
