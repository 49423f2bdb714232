"""One catalog over bridges: entries are found at every broker, with their broker named, and changes and losses travel."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.catalog import bridged_entries
from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.model.tuning import Tuning
from polydomo.native import is_compiled
from tests.authority.test_bridges import IDENTITY, Hostile, node_with
from tests.broker.net import Net, Node
from tests.forms import replaces_core

HERE = "192.0.2.1"


def register(node: Node, name: str, beat: float = 0.0, address: str = HERE, **info: object) -> None:
    if beat:
        info["heartbeat"] = beat
    assert node.broker.catalog.register(node.broker.now, name, address, {"name": name, **info}, beat) == ""
    node.broker.changes.report()


def leave(node: Node, name: str, address: str = HERE) -> None:
    assert node.broker.directory.remove(name, address, "DISCONNECT")


def seen(node: Node, name: str) -> "tuple[str, int] | None":
    """The function of a service, and how far away its broker is."""
    found = node.broker.directory.lookup(name)
    if found is None:
        return None
    broker = found.get("broker")
    return str(found.get("function", "")), broker["hops"] if isinstance(broker, dict) else 0


def names(node: Node) -> set[str]:
    return set(node.broker.directory.all())


def test_an_entry_is_found_at_every_broker_with_its_broker_named() -> None:
    net = Net()
    a, b, c = net.chain("a", "b", "c")
    a.broker.address = "tcp://192.0.2.1:5246"
    register(a, "camera", function="images", ip="10.0.0.7", port=9)
    net.settle()
    for node, hops in ((b, 1), (c, 2)):
        broker = {"identity": a.identity.decode(), "address": "tcp://192.0.2.1:5246", "hops": hops}
        wanted = {"name": "camera", "function": "images", "ip": "10.0.0.7", "port": 9, "broker": broker}
        assert node.broker.directory.lookup("camera") == wanted
        assert node.broker.directory.all() == {"camera": wanted}
        assert json.loads(node.broker.directory.first()) == [wanted]
    assert "broker" not in (a.broker.directory.lookup("camera") or {})


def test_changes_and_losses_travel() -> None:
    net = Net()
    a, _, c = net.chain("a", "b", "c")
    register(a, "camera", 2.0, function="images")
    net.settle()
    assert seen(c, "camera") == ("images", 2)
    assert a.broker.directory.update(a.peer(), "camera", HERE, {"function": "video"}) == ""
    net.settle()
    assert seen(c, "camera") == ("video", 2)
    net.wait(60.0)  # no heartbeat
    assert seen(a, "camera") is None and seen(c, "camera") is None
    register(a, "camera")
    net.settle()
    assert seen(c, "camera") == ("", 2)
    leave(a, "camera")
    net.settle()
    assert seen(c, "camera") is None


def test_a_bridge_that_is_lost_takes_its_entries_with_it_and_a_new_one_brings_them_back() -> None:
    net = Net()
    a, b, c = net.chain("a", "b", "c")
    register(a, "camera")
    net.settle()
    net.bridges[0].cut()
    net.settle()
    assert seen(b, "camera") is None and seen(c, "camera") is None
    net.bridge(a, b)
    net.settle()
    assert seen(b, "camera") == ("", 1) and seen(c, "camera") == ("", 2)


def test_in_a_ring_the_shorter_way_is_used_and_a_lost_entry_is_forgotten_everywhere() -> None:
    net = Net()
    a, b, c, d = net.ring("a", "b", "c", "d")
    register(a, "camera")
    net.settle()
    assert [seen(node, "camera") for node in (b, c, d)] == [("", 1), ("", 2), ("", 1)]
    net.bridges[0].cut()  # a - b
    net.settle()
    assert [seen(node, "camera") for node in (b, c, d)] == [("", 3), ("", 2), ("", 1)]
    leave(a, "camera")
    net.settle()
    assert [seen(node, "camera") for node in (b, c, d)] == [None, None, None]


def test_the_own_entry_comes_first() -> None:
    net = Net()
    a, b = net.chain("a", "b")
    register(a, "camera", function="there")
    register(b, "camera", function="here")
    net.settle()
    assert seen(a, "camera") == ("there", 0) and seen(b, "camera") == ("here", 0)
    leave(b, "camera")
    net.settle()
    assert seen(b, "camera") == ("there", 1)


def test_an_entry_hides_no_service_that_workers_offer_elsewhere() -> None:
    """A service with workers here is shown as such; one that another broker offers, unless it is registered there."""
    net = Net()
    a, b, c = net.chain("a", "b", "c")
    register(a, "camera", function="images")
    worker = c.worker(b"camera")
    net.settle()
    shown = b.broker.directory.lookup("camera")
    assert shown is not None and shown["protocol"] == "bridge" and "broker" not in shown
    worker.close()
    net.settle()
    assert seen(b, "camera") == ("images", 1)
    a.worker(b"camera")
    net.settle()
    assert seen(b, "camera") == ("images", 1)
    b.worker(b"camera")
    shown = b.broker.directory.lookup("camera")
    assert shown is not None and "broker" not in shown


def test_a_look_up_by_function_finds_entries_of_all_brokers() -> None:
    net = Net()
    a, b = net.chain("a", "b")
    register(a, "camera", function="images, raw")
    register(a, "lamp", function="light")
    register(b, "scanner", function=["images", "text"])
    register(b, "silent")
    net.settle()
    directory = b.broker.directory
    assert set(directory.with_functions(["images*"])) == {"camera", "scanner"}
    assert set(directory.with_functions(["light", "text"])) == {"lamp", "scanner"}
    assert directory.with_functions(["imag", "*raw", ""]) == {}
    assert "broker" in json.loads(directory.with_functions(["light"])["lamp"])


def test_processes_of_one_broker_share_the_catalog_of_process_0() -> None:
    """Another broker joins process 1: it learns the entries of process 0, and process 0 learns its own."""
    net = Net()
    zero, one = net.processes("a", "b")
    other = net.node("c")
    net.bridge(other, one)
    register(zero, "camera")
    register(other, "lamp")
    net.settle()
    assert seen(other, "camera") == ("", 2) and seen(zero, "lamp") == ("", 2)
    leave(zero, "camera")
    leave(other, "lamp")
    net.settle()
    assert names(other) == names(zero) == set() and seen(one, "camera") is None


def test_a_broker_that_does_not_know_entries_is_told_none() -> None:
    net = Net()
    a = net.node("a")
    old = Hostile(a, "")  # it announces only the extension `origin`
    register(a, "camera")
    net.settle()
    assert [message[0] for message in old.heard()] == [b"HELLO"]
    old.say(b"ENTRY", b"lamp", IDENTITY, b"", b"{}")
    assert old.link.closing is not None


def test_a_neighbour_that_listens_on_all_addresses_is_named_by_that_of_the_bridge() -> None:
    net = Net()
    a, b = net.chain("a", "b")
    a.broker.address = "tcp://0.0.0.0:5246"
    register(a, "camera")
    net.settle()
    found = b.broker.directory.lookup("camera")
    assert found is not None and isinstance(found["broker"], dict)
    assert found["broker"]["address"] == "tcp://192.0.2.9:5246"


# --- a hostile bridge


class Announcing(Hostile):
    """A hostile broker that knows entries."""

    def __init__(self, node: Node, principal: str = "east") -> None:
        super().__init__(node, principal)
        self.heard()

    def entry(self, name: bytes, info: bytes = b"{}", path: bytes = IDENTITY, address: bytes = b"tcp://x:1") -> None:
        self.say(b"ENTRY", name, path, address, info)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Announcing:
    monkeypatch.setattr("tests.authority.test_bridges.Extensions", lambda origin: _extensions())
    return Announcing(node_with(Net()))


def _extensions() -> object:
    from polydomo.wire.zmtp.extensions import Extensions

    return Extensions(origin=True, catalog=True)


def test_a_bridge_announces_the_names_of_its_right_only(hostile: Announcing) -> None:
    for name in (b"open", b"secret", b"polydomo.status", b"news.camera", b"a,b", b"Error", b"\xff"):
        hostile.entry(name)
    assert names(hostile.node) == {"open", "news.camera"}
    assert hostile.node.broker.counters.denied["register"] == 2  # secret, and the replacement of \xff


def test_a_forged_route_is_a_violation(hostile: Announcing) -> None:
    hostile.entry(b"open", path=b"fedcba9876543210")
    assert hostile.link.closing is not None and names(hostile.node) == set()


def test_an_entry_says_nothing_about_its_broker_or_name(hostile: Announcing) -> None:
    """These are known from the bridge."""
    hostile.entry(b"open", b'{"name": "secret", "broker": {"identity": "me", "hops": 0}, "function": "f"}')
    found = hostile.node.broker.directory.lookup("open")
    assert found is not None and found["name"] == "open"
    assert found["broker"] == {"identity": IDENTITY.decode(), "address": "tcp://x:1", "hops": 1}


def test_an_entry_of_a_bridge_replaces_no_own_entry_and_no_node_is_registered_by_it(hostile: Announcing) -> None:
    broker = hostile.node.broker
    register(hostile.node, "open", function="own")
    broker.access.replace(AccessRules(["east"], [AccessRule(1, ["east"], {"bridge": ["*"]})]))
    hostile.entry(
        b"open", b'{"function": "forged", "interfaces": {"requests": {"port": 7}, "pub": {"port": 8}}, "topics": ["x"]}'
    )
    assert seen(hostile.node, "open") == ("own", 0)
    assert (
        not broker.catalog.callees
        and not broker.catalog.publishers
        and not broker.workers - {hostile.session.worker: None}.keys()
    )
    hostile.entry(b"other", b'{"interfaces": {"requests": {"port": 7}, "pub": {"port": 8}}, "topics": ["x"]}')
    assert names(hostile.node) == {"open", "other"} and not broker.catalog.callees and set(broker.catalog.at) == {HERE}


@pytest.mark.parametrize(
    "info", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": "' + b"x" * 20_000 + b'"}', b"[" * 10_000, b" " * 70_000]
)
def test_information_that_is_not_believed(hostile: Announcing, info: bytes) -> None:
    hostile.entry(b"open", b'{"function": "old"}')
    hostile.entry(b"open", info)
    assert names(hostile.node) == set() and hostile.link.closing is None


@pytest.mark.skipif(is_compiled(), reason="compiled code contains its limits")
@replaces_core
def test_the_entries_of_bridges_are_bounded_and_charged(hostile: Announcing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridged_entries, "MAX_SERVICES", 5)
    monkeypatch.setattr(bridged_entries, "MAX_CATALOG_BYTES", 4000)
    before = hostile.link.work_left
    for number in range(9):
        hostile.entry(b"news.%d" % number)
    assert len(names(hostile.node)) == 5 and hostile.link.work_left < before
    assert hostile.session.kept_bytes > 0
    hostile.entry(b"news.0", b'{"function": "%s"}' % (b"x" * 1500))  # more than a quarter
    assert len(names(hostile.node)) == 4
    hostile.link.lost()
    assert names(hostile.node) == set()
    hostile.node.broker.check_invariants()


def test_a_right_that_is_taken_away_ends_the_entries_of_its_names(hostile: Announcing) -> None:
    hostile.entry(b"open")
    hostile.entry(b"news.x")
    broker = hostile.node.broker
    broker.access.replace(AccessRules(["east"], [AccessRule(1, ["east"], {"bridge": ["news.*"]})]))
    broker.revocation.end_revoked()
    assert names(hostile.node) == {"news.x"}


def test_a_bridge_is_told_the_names_that_it_may_call_only(hostile: Announcing) -> None:
    node = hostile.node
    register(node, "open")
    register(node, "secret", address="192.0.2.7")
    node.broker.end_turn()
    assert [message[:2] for message in hostile.heard()] == [[b"ENTRY", b"open"]]


def test_the_allow_list_of_names_counts_for_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.authority.test_bridges.Extensions", lambda origin: _extensions())
    node = Net().node("a", None, Tuning(dbp_names=["lamp"]))
    other = Announcing(node, "")
    other.entry(b"lamp")
    other.entry(b"camera")
    assert names(node) == {"lamp"}


# --- any order of events


steps = st.lists(
    st.tuples(st.sampled_from(["register", "leave", "cut", "join", "carry"]), st.integers(0, 3), st.integers(0, 1)),
    max_size=40,
)


@given(steps=steps)
@settings(max_examples=60, deadline=None)
def test_after_any_changes_all_brokers_that_are_joined_agree(steps: "list[tuple[str, int, int]]") -> None:
    net = Net()
    nodes = net.ring("a", "b", "c", "d")
    for what, which, name in steps:
        node, service = nodes[which], f"s{name}"
        if what == "register":
            register(node, service, function=str(len(net.bridges)))
        elif what == "leave":
            node.broker.directory.remove(service, HERE, "DISCONNECT")
        elif what == "cut":
            net.bridges[which % len(net.bridges)].cut()
        elif what == "join":
            net.bridge(node, nodes[(which + 1) % 4])
        else:
            for each in nodes:
                each.broker.end_turn()
            for bridge in net.bridges:
                if bridge.up:
                    bridge.carry(name, 1)
    net.settle()
    for node in nodes:
        reached = reach(net, node)
        for service in ("s0", "s1"):
            homes = {other.identity for other in reached if other.broker.catalog.active(service) is not None}
            found = node.broker.directory.lookup(service)
            assert (found is not None) == bool(homes), (node.name, service)
            if found is not None and isinstance(found.get("broker"), dict):
                assert found["broker"]["identity"].encode() in homes  # type: ignore[index]


def reach(net: Net, node: Node) -> set[Node]:
    found = {node}
    while True:
        more = {other for bridge in net.bridges if bridge.up and found & set(bridge.nodes) for other in bridge.nodes}
        if more <= found:
            return found
        found |= more
