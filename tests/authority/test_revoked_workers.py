"""Rights that are taken away from workers without a connection of their own, from schedulers, from requests whose client has left, and from
bridges, while they are in use."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import cbor2
import pytest

from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.wire.close_reason import CloseCause, CloseReason
from tests.authority.place import Place, emqp, schedule, wait_for
from tests.authority.test_bridges import IDENTITY, PRINCIPALS, RULES, Hostile, node_with, peer
from tests.broker.net import Net, Node
from tests.protocols.memo.fakes import World

FEW = """
[[allow]]
who = ["bob"]
offer = ["weak", "kept"]
[[allow]]
who = ["bob"]
offer = ["emqp-scheduler"]
[[allow]]
who = ["alice"]
call = ["weak"]
"""
BOTH = '"weak", "kept"'
SHORT = {"polydomo-timeout": "1", "prefer": "wait=1"}


@pytest.fixture(scope="module", params=[1, 2])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("place"), request.param)
    made.rules += FEW
    made.write()
    with made:
        yield made


@pytest.fixture
def revoke(place: Place) -> Iterator[Callable[[], None]]:
    """Takes bob's right to offer `weak` away."""
    yield lambda: place.change(BOTH, '"kept"')
    if BOTH not in place.rules:
        place.change('"kept"', BOTH)


def offered(place: Place, service: str) -> bool:
    return any(row["name"] == service and row["workers"] for row in place.ask("services"))


def in_background(act: Callable[[], Any]) -> Callable[[], Any]:
    """Starts it in a thread; returns a function that waits for its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()), daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(60)
        return found[0]

    return result


def test_an_open_poll_gets_no_request_after_its_right_is_gone(place: Place, revoke: Callable[[], None]) -> None:
    poll = in_background(lambda: place.http("bob").post("/v1/work/weak?wait=30"))
    wait_for(lambda: offered(place, "weak"), "the worker")
    revoke()
    assert place.http("alice").post("/v1/call/weak", content=b"private", headers=SHORT).status_code == 504
    assert poll().status_code == 204


def test_a_request_that_a_revoked_http_worker_holds_is_not_answered_by_it(
    place: Place, revoke: Callable[[], None]
) -> None:
    bob = place.http("bob")
    poll = in_background(lambda: bob.post("/v1/work/weak?wait=30"))
    wait_for(lambda: offered(place, "weak"), "the worker")
    call = in_background(
        lambda: place.http("alice").post("/v1/call/weak", content=b"x", headers={"polydomo-timeout": "3"})
    )
    token = poll().headers["polydomo-token"]
    revoke()
    reply = place.http("bob").post("/v1/reply", content=b"forged", headers={"polydomo-token": token})
    assert (reply.status_code, call().status_code) == (409, 504)


def test_a_worker_of_two_services_gets_no_request_of_the_one_it_lost(place: Place, revoke: Callable[[], None]) -> None:
    bob = place.http("bob")
    name = bob.post("/v1/work/weak?wait=0").headers["polydomo-worker"]
    assert bob.post("/v1/work/kept?wait=0", headers={"polydomo-worker": name}).status_code == 204
    revoke()
    poll = in_background(lambda: bob.post("/v1/work/kept?wait=3", headers={"polydomo-worker": name}))
    wait_for(lambda: offered(place, "kept"), "the worker")
    assert place.http("alice").post("/v1/call/weak", content=b"private", headers=SHORT).status_code == 504
    assert poll().status_code == 204


def test_an_open_poll_of_memodb_ends_with_its_right(place: Place, revoke: Callable[[], None]) -> None:
    bob = place.http("bob")
    info = cbor2.dumps({"funcs": ["weak"]})
    stored = bob.post("/cid", content=info, headers={"content-type": "application/cbor"})
    cid = stored.headers["location"].rpartition("/")[2]
    link = f'{{"cid": "{cid}"}}'
    poll = in_background(lambda: bob.post("/worker", content=link, headers={"content-type": "application/json"}))
    wait_for(lambda: offered(place, "weak"), "the worker")
    revoke()
    assert not offered(place, "weak")
    assert place.http("alice").post("/v1/call/weak", content=b"private", headers=SHORT).status_code == 504
    assert poll().text.strip() == "null"


def test_a_scheduler_is_disconnected_with_its_right(place: Place) -> None:
    with place.emqp("bob") as scheduler, place.emqp("alice") as alice:
        emqp(scheduler, "INFORM", b"", b"scheduler")
        assert scheduler.recv_multipart()[2] == b"ACK"
        place.change('offer = ["emqp-scheduler"]', "offer = []")
        schedule(alice, b"open", b"for the store")
        wait_for(lambda: len(place.ask("schedules", {})["schedules"]) == 1, "the schedule is in the store")
        schedule(alice, b"open", b"for the store", "UNSCHEDULE")
        wait_for(lambda: place.ask("schedules", {})["schedules"] == [], "it is removed")


def test_a_request_without_a_reply_does_not_run_after_its_right_is_gone(place: Place) -> None:
    def waiting() -> list[str]:
        return [row["service"] for row in place.ask("requests")]

    place.change('call = ["weak"]', 'call = ["weak", "later", "also"]')
    with place.emqp("alice") as alice:
        emqp(alice, "REQUEST", b"later", b"", b"private")
        wait_for(lambda: "later" in waiting(), "the request is queued")
        alice.close()
    with place.emqp("alice") as connected:
        emqp(connected, "REQUEST", b"also", b"", b"private")
        wait_for(lambda: {"later", "also"} <= set(waiting()), "the requests are queued")
        place.change('call = ["weak", "later", "also"]', 'call = ["weak"]')
        assert not {"later", "also"} & set(waiting())


# --- memo01 -----------------------------------------------------------------------------------------------------------------


def memo_worker() -> tuple[World, Any, bytes]:
    world = World()
    world.broker.access.replace(AccessRules(["bob"], [AccessRule(1, ["bob"], {"offer": ["weak"]})]))
    bob = world.connect()
    bob.session.principal = "bob"
    return world, bob, bob.worker(10, "weak")


def test_a_memo01_worker_that_lost_its_right_does_not_come_back() -> None:
    world, bob, _ = memo_worker()
    world.broker.access.replace(AccessRules(["bob"], []))
    assert world.broker.revocation.lost_right(bob.session)
    bob.session.on_close(CloseReason(CloseCause.DENIED))
    assert not world.broker.workers and not world.broker.memo_workers


def test_a_memo01_worker_that_is_away_ends_with_its_right() -> None:
    world, bob, _ = memo_worker()
    bob.session.on_close(CloseReason(CloseCause.CONNECTION_LOST))
    world.broker.revocation.end_revoked()
    assert len(world.broker.workers) == 1
    world.broker.access.replace(AccessRules(["bob"], []))
    world.broker.revocation.end_revoked()
    assert not world.broker.workers and not world.broker.memo_workers


# --- bridges ----------------------------------------------------------------------------------------------------------------


def only(*names: str) -> AccessRules:
    return AccessRules(PRINCIPALS, [*RULES[:3], AccessRule(4, ["east"], {"bridge": list(names)})])


@pytest.fixture
def node() -> Node:
    return node_with(Net())


def test_a_bridge_is_told_of_the_services_that_it_may_call(node: Node) -> None:
    peer(node, "pool").offer(b"secret", b"open", credit=9)
    east = Hostile(node)
    assert [message[1] for message in east.heard() if message[0] == b"OFFER"] == [b"open"]
    node.broker.access.replace(only("secret"))
    node.broker.revocation.end_revoked()
    assert [message[:2] for message in east.heard()] == [[b"OFFER", b"secret"], [b"RETRACT", b"open"]]


def test_a_bridge_that_offers_a_service_it_lost_is_disconnected(node: Node) -> None:
    east = Hostile(node)
    east.say(b"OFFER", b"open", IDENTITY)
    assert node.broker.revocation.lost_right(east.session) == ""
    node.broker.access.replace(only("news.*"))
    assert "open" in node.broker.revocation.lost_right(east.session)


def test_a_bridge_with_an_open_request_that_it_lost_is_disconnected(node: Node) -> None:
    peer(node, "pool").offer(b"open", credit=9)
    east = Hostile(node)
    east.ask(b"open", b"alice")
    assert node.broker.revocation.lost_right(east.session) == ""
    node.broker.access.replace(only("news.*"))
    assert "open" in node.broker.revocation.lost_right(east.session)


def test_the_rights_that_a_bridge_has_as_a_client_are_not_those_of_its_clients(node: Node) -> None:
    node.broker.access.replace(
        AccessRules(PRINCIPALS, [*RULES[:3], AccessRule(4, ["east"], {"bridge": ["open"], "call": ["secret"]})])
    )
    worker = peer(node, "pool").offer(b"secret", credit=9)
    peer(node, "east").ask(b"secret", 1)  # allowed, and remembered
    assert len(worker.jobs) == 1
    east = Hostile(node)
    east.heard()
    east.ask(b"secret", b"alice")
    assert [message[0] for message in east.heard()] == [b"FAILURE"] and len(worker.jobs) == 1
