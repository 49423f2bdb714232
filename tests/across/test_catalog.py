"""What a DBP client sees of the other protocols, and the others of a DBP service."""

import pytest

from polydomo.protocols.dbp.ends import DbpEnd, Info
from polydomo.protocols.detect import Detector
from polydomo.wire import frames
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.across.kinds import CLIENTS, WORKERS
from tests.across.world import Client, Worker, World, carry

DIALECTS = {
    "dagbox": "dcp",
    "guide-php": "mdp1",
    "guide-digits": "mdp1",
    "rfc18": "mdp2",
    "majortomo": "mdp2",
    "libmdp": "mdp2",
    "zmq-mdp2": "mdp2",
}
PROTOCOLS = {name: DIALECTS.get(name, name) for name in WORKERS}


class Asking(LinkHandler):
    """A DBP client or service on a connection of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.end = DbpEnd()
        self.heard: list[object] = []
        hub = Hub()
        detector = Detector(world.broker)
        self.near = ZmtpLink(hub, self, "broker", socket_type=b"DEALER")
        self.far = ZmtpLink(hub, detector, "tcp://127.0.0.1:1")
        detector.attach(self.far)
        self.exchange()

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.heard += self.end.receive(frames.split(data[start:end]), self.world.broker.now)

    def exchange(self) -> None:
        for message in self.end.out:
            self.near.send(frames.join(message))
        self.end.out.clear()
        while carry(self.near, self.far) or carry(self.far, self.near):
            pass

    def directory(self, *names: str) -> Info:
        self.end.info(list(names), self.world.broker.now)
        self.exchange()
        info = self.heard.pop()
        assert isinstance(info, Info)
        return info


@pytest.mark.parametrize("name", [name for name in WORKERS if name != "dbp"])
def test_a_dbp_client_sees_the_services_of(name: str) -> None:
    world = World()
    world.broker.address = "tcp://127.0.0.1:5246"
    asking = Asking(world)
    assert asking.directory().services == {}
    worker = Worker(world, WORKERS[name].end, b"work")
    listed = asking.directory().services
    assert listed == {
        "work": {"name": "work", "protocol": PROTOCOLS[name], "address": "tcp://127.0.0.1:5246", "workers": 1}
    }
    assert asking.directory("work").services == listed
    worker.line.close()
    world.wait(2.0)
    assert asking.directory("work").error == "No Registered Service With the Name work"


@pytest.mark.parametrize("name", CLIENTS)
def test_a_name_in_the_catalog_can_be_called_over_every_protocol(name: str) -> None:
    """The name in the catalog is the name to call, over any protocol."""
    world = World()
    hand = Worker(world, WORKERS["dcp"].end, "wörk".encode())
    (found,) = Asking(world).directory().services
    client = Client(world, CLIENTS[name].end)
    client.ask(found.encode(), [b"ping"])
    hand.final(hand.take(), [b"pong"])
    assert client.wait_for_final() == [b"pong"]


def test_a_name_that_is_not_text_is_not_in_the_catalog() -> None:
    world = World()
    Worker(world, WORKERS["mdp1"].end, b"\xff\xfe")
    assert Asking(world).directory().services == {}
