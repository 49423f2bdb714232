"""A hostile broker at the other end of a bridge: the principals, services, routes and topics that it claims give it no rights."""

import pytest

from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.model.principals import BRIDGE_OUT
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.wire.frames import MORE, bounds, join
from polydomo.wire.link import Link, LinkHandler
from polydomo.wire.zmtp.extensions import Extensions
from tests.broker.net import Bridge, Net, Node, Peer

IDENTITY = b"0123456789abcdef"
PRINCIPALS = ["admin", "alice", "pool", "east"]
RULES = [
    AccessRule(1, ["admin"], {"admin": ["*"]}),
    AccessRule(2, ["alice"], {"call": ["*"], "subscribe": ["*"]}),
    AccessRule(3, ["pool"], {"offer": ["*"], "publish": ["*"]}),
    AccessRule(4, ["east"], {"bridge": ["open", "news.*"]}),
]


def node_with(net: Net, name: str = "a", rules: list[AccessRule] | None = None) -> Node:
    node = net.node(name)
    node.broker.access.replace(AccessRules(PRINCIPALS, RULES if rules is None else rules))
    return node


def peer(node: Node, principal: str) -> Peer:
    made = node.peer()
    made.principal = principal
    return made


class Hostile:
    """A bridge with the principal `east`, whose other end says what it likes."""

    def __init__(self, node: Node, principal: str = "east", caller: bool = False) -> None:
        self.node = node
        self.link = Link(node.net.hub, LinkHandler(), "the hostile broker")
        self.link.principal = principal
        self.link.extensions = Extensions(origin=True)
        self.session = BridgeSession(node.broker, self.link, caller)
        self.link.handler = self.session
        node.broker.session_opened(self.session)
        self.say(b"HELLO", IDENTITY, b"100", b"1000000", b"")

    def say(self, *frames: bytes) -> None:
        data = b"\x00\x00" + join([b"PDBR01", *frames]) + b"\x00"
        self.session.on_message(data, 2, len(data) - 1)

    def ask(self, service: bytes, claimed: bytes, key: bytes = b"k") -> None:
        self.say(b"REQUEST", key, service, b"0", b"", b"", IDENTITY, claimed, b"body")

    def heard(self) -> list[list[bytes]]:
        """The messages to it since the last time: command and frames."""
        data = b"".join(bytes(piece) for piece in self.link.out)
        self.link.out.clear()
        found: list[list[bytes]] = []
        message: list[bytes] = []
        at = 0
        while at < len(data):
            start, at, flags = bounds(data, at)
            message.append(data[start:at])
            if not flags & MORE:
                found.append(message[1:])
                message = []
        return found


@pytest.fixture
def node() -> Node:
    return node_with(Net())


@pytest.fixture
def east(node: Node) -> Hostile:
    made = Hostile(node)
    assert made.session.worker is not None
    made.heard()
    return made


@pytest.mark.parametrize("claimed", [b"admin", b"alice", b"polydomo:process", b"polydomo:schedules", b"", b"x/admin"])
def test_a_forged_principal_has_the_rights_of_the_bridge_only(node: Node, east: Hostile, claimed: bytes) -> None:
    worker = peer(node, "pool").offer(b"secret", b"open", credit=9)
    east.heard()
    east.ask(b"secret", claimed)
    assert [message[:1] for message in east.heard()] == [[b"FAILURE"]] and not worker.jobs
    east.ask(b"open", claimed)
    assert [job[1].origin for job in worker.jobs] == [f"east/{claimed.decode()}"]


@pytest.mark.parametrize(
    "service",
    [b"polydomo.pause", b"polydomo.status", b"polydomo.submit", b"polydomo.accept", b"polydomo.join", b"mmi.service"],
)
def test_a_bridge_uses_no_built_in_service(node: Node, east: Hostile, service: bytes) -> None:
    east.ask(service, b"admin")
    (message,) = east.heard()
    assert (message[0], message[2]) == (b"FAILURE", b"denied")


def test_a_bridge_offers_the_services_of_its_right_only(node: Node, east: Hostile) -> None:
    for name in (b"secret", b"open", b"polydomo.submit", b"mmi.service"):
        east.say(b"OFFER", name, IDENTITY)
    assert [name for name in (b"secret", b"open", b"polydomo.submit") if node.knows(name) >= 0] == [b"open"]
    alice = peer(node, "alice")
    alice.ask(b"secret", 1)
    alice.ask(b"open", 2)
    assert [message[2] for message in east.heard() if message[0] == b"REQUEST"] == [b"open"]


def test_an_offer_with_a_forged_route_is_a_violation(node: Node, east: Hostile) -> None:
    east.say(b"OFFER", b"open", b"fedcba9876543210")
    assert east.link.closing is not None and node.knows(b"open") < 0


def test_a_request_with_a_forged_route_is_a_violation(node: Node, east: Hostile) -> None:
    peer(node, "pool").offer(b"open")
    east.say(b"REQUEST", b"k", b"open", b"0", b"", b"", b"fedcba9876543210", b"admin", b"body")
    assert east.link.closing is not None and node.broker.open_requests == 0


def test_a_bridge_publishes_and_receives_the_topics_of_its_right_only(node: Node, east: Hostile) -> None:
    alice = peer(node, "alice")
    node.broker.subscribe(alice, b"")
    for number, topic in enumerate((b"news.today", b"private.x", b"log.service", b"monitor.figures"), 1):
        east.say(b"PUBLISH", IDENTITY, b"%d" % number, topic, b"forged")
    assert alice.heard == [(b"news.today", b"forged")]
    east.heard()
    pool = peer(node, "pool")
    for topic in (b"news.here", b"private.y"):
        node.broker.publish(pool, topic, join([b"content"]))
    assert [message[3] for message in east.heard() if message[0] == b"PUBLISH"] == [b"news.here"]


@pytest.mark.parametrize("word", [b"ASK", b"SCHEDULE", b"LOG", b"EVENT", b"TAP", b"CALL", b"PROCESS"])
def test_messages_between_processes_are_violations(node: Node, east: Hostile, word: bytes) -> None:
    frames = {b"ASK": [b"1", b"polydomo.pause", b"admin", b"{}"], b"SCHEDULE": [b"admin", b"raw"], b"TAP": [b"1"]}
    east.say(word, *frames.get(word, [b"0", b"x"]))
    assert east.link.closing is not None


def test_a_bridge_without_the_right_is_closed(node: Node) -> None:
    refused = Hostile(node, "alice")
    assert refused.session.worker is None and "alice may not bridge" in str(refused.link.closing)


def test_a_forwarded_request_of_a_bridge_stays_within_its_right(node: Node, east: Hostile) -> None:
    worker = peer(node, "pool").offer(b"open", credit=9)
    secret = peer(node, "pool").offer(b"secret", credit=9)
    east.heard()
    east.ask(b"open", b"admin")
    worker.forward(b"secret")
    assert not secret.jobs and [message[2] for message in east.heard()] == [b"denied"]


def test_a_broker_that_this_one_connects_to_has_a_named_principal(node: Node) -> None:
    other = Hostile(node, "", caller=True)
    worker = peer(node, "pool").offer(b"open", credit=9)
    other.heard()
    other.ask(b"polydomo.pause", b"admin", b"1")
    other.ask(b"open", b"admin", b"2")
    assert [message[2] for message in other.heard()] == [b"denied"]
    assert [job[1].origin for job in worker.jobs] == [f"{BRIDGE_OUT}/admin"]


def test_the_origin_crosses_two_honest_brokers() -> None:
    net = Net()
    a, b = node_with(net, "a"), node_with(net, "b")
    bridge = Bridge(a, b)
    for end in bridge.ends:
        end.link.extensions = Extensions(origin=True)
    bridge.ends[1].principal = "east"
    net.bridges.append(bridge)
    worker = peer(b, "pool").offer(b"open")
    net.settle()
    peer(a, "alice").ask(b"open", 1)
    net.settle()
    assert [job[1].origin for job in worker.jobs] == ["east/alice"]
