"""At a limit the sender is throttled, or refused if it cannot be throttled; and shutdown of the broker."""

from dataclasses import FrozenInstanceError

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.wire.link import PAUSE_AT_LIMIT, PAUSE_NOT_READING
from tests.broker.rig import Peer, World


def stalled(*peers: Peer) -> list[bool]:
    return [bool(peer.link.pauses & PAUSE_AT_LIMIT) for peer in peers]


# --- slowed


def test_a_client_with_too_many_open_requests_is_not_read() -> None:
    world = World(Policy(max_outstanding=8))
    worker, client, other = world.worker(credit=100, auto_credit=False), world.client(), world.client()
    for i in range(8):
        assert stalled(client) == [False]
        client.ask(b"%d" % i)
    assert stalled(client, other) == [True, False]
    worker.answer()
    world.broker.end_turn()
    assert stalled(client) == [True], "7 of 8 is still too many: it would flutter"
    worker.answer()
    assert stalled(client) == [True], "the loop's turn is when it is looked at"
    world.broker.end_turn()
    assert stalled(client) == [False]
    assert world.hub.resumed == [client.link], "to be asked for what was put aside"
    world.check()


def test_a_full_queue_throttles_its_senders_and_drops_nothing() -> None:
    world = World(Policy(max_queue=4))
    first, second, elsewhere = world.client(), world.client(), world.client()
    for i in range(4):
        first.ask(b"%d" % i)
    second.ask(b"4")
    elsewhere.ask(b"x", service=b"other")
    assert stalled(first, second, elsewhere) == [True, True, False]
    worker = world.worker(silence=0)
    seen = []
    for _ in range(5):
        seen += worker.bodies()
        worker.answer()
        world.broker.end_turn()
        world.check()
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
    assert stalled(first, second) == [False, False]


def test_a_queue_filled_by_forwarded_requests_throttles_their_clients() -> None:
    world = World(Policy(max_queue=4))
    first, client, other = world.worker(b"first", credit=9, auto_credit=False), world.client(), world.client()
    other.ask(b"x", service=b"first")
    for i in range(6):
        client.ask(b"%d" % i, service=b"first")
    assert first.forward(b"last")
    for _ in range(2):
        first.forward(b"last")
    assert stalled(client, other) == [False, False]
    first.forward(b"last")
    assert stalled(client, other) == [True, False], "the line is full, and this one's request filled it"
    world.check()
    last = world.worker(b"last", silence=0)
    for _ in range(3):
        last.answer()
    world.broker.end_turn()
    assert stalled(client) == [False]
    world.check()


def test_a_request_of_a_worker_connection_is_not_forwarded_to_a_full_queue() -> None:
    world = World(Policy(max_queue=2))
    first, client = world.worker(b"first", credit=9, auto_credit=False), world.client()
    both = world.worker(b"elsewhere")
    for _ in range(2):
        client.ask(b"x", service=b"first")
        first.forward(b"last")
    both.ask(b"y", service=b"first")
    first.forward(b"last")
    assert both.failures == ["refused"] and stalled(both) == [False]
    world.check()


def test_bytes_held_in_all_are_bounded() -> None:
    world = World(Policy(max_held_bytes=1000))
    first, second = world.client(), world.client()
    worker = world.worker()
    first.ask(bytes(600))
    assert stalled(first) == [False]
    second.ask(bytes(600))
    assert stalled(first, second) == [False, True]
    worker.answer()
    world.broker.end_turn()
    assert stalled(second) == [False]
    world.check()


def test_half_of_the_memory_is_for_bodies_and_clients_go_on_below_that() -> None:
    world = World(Policy(max_held_bytes=1 << 20, max_memory=2000))
    first, second, third, worker = world.client(), world.client(), world.client(), world.worker()
    for client in (first, second, third):
        client.ask(bytes(600))
    assert stalled(first, second, third) == [False, True, True]
    worker.answer()
    world.broker.end_turn()
    assert stalled(second, third) == [True, True], "1,200 bytes are held; the limit is 1,000"
    worker.answer()
    world.broker.end_turn()
    assert stalled(second, third) == [False, False]
    world.check()


def test_a_limit_is_computed_once_and_never_changes() -> None:
    policy = Policy(max_held_bytes=1 << 20, max_memory=2000)
    assert policy.max_held_bytes == 1000
    with pytest.raises(FrozenInstanceError):
        policy.max_held_bytes = 1 << 20  # type: ignore[misc]
    broker = World(policy).broker
    numbers = (broker.max_held_bytes, broker.max_queue, broker.max_outstanding)
    assert numbers == (policy.max_held_bytes, policy.max_queue, policy.max_outstanding)
    assert Policy(max_held_bytes=500, max_memory=2000).max_held_bytes == 500
    assert Policy(max_held_bytes=500).max_held_bytes == 500


def test_bytes_held_for_one_client_are_bounded_and_others_go_on() -> None:
    world = World(Policy(max_client_bytes=20_000))
    greedy, modest, worker = world.client(), world.client(), world.worker()
    for _ in range(3):
        greedy.ask(bytes(8_000))
    modest.ask(bytes(8_000))
    assert stalled(greedy, modest) == [True, False]
    for _ in range(4):
        world.check()
        worker.answer()
        world.broker.end_turn()
    assert stalled(greedy, modest) == [False, False]
    world.check()


def test_held_partials_count_too() -> None:
    world = World(Policy(max_held_bytes=1000))
    worker, client = world.worker(), world.client()
    client.ask(b"x")
    worker.part(bytes(2000))
    client.ask(b"y")
    assert stalled(client) == [True]
    worker.answer()
    worker.answer()
    world.broker.end_turn()
    assert stalled(client) == [False] and world.broker.held_bytes == 0


def test_a_paused_client_that_disconnects_is_removed() -> None:
    world = World(Policy(max_outstanding=1))
    client = world.client()
    client.ask()
    assert stalled(client) == [True]
    client.close()
    assert world.broker.paused_clients == {} and world.broker.services == {}


def test_a_client_that_does_not_read_stays_paused_for_that() -> None:
    world = World(Policy(max_outstanding=1))
    worker, client = world.worker(), world.client()
    client.ask()
    client.link.pause(PAUSE_NOT_READING)
    worker.answer()
    world.broker.end_turn()
    assert client.link.pauses == PAUSE_NOT_READING


# --- told no


def test_a_connection_that_carries_a_worker_is_refused_instead() -> None:
    """It "is never paused (that deadlocks): it is refused instead"."""
    world = World(Policy(max_outstanding=2))
    peer = world.worker(b"mine")
    assert peer.ask(b"1") is not None
    assert peer.ask(b"2") is not None
    assert peer.ask(b"3") is None
    assert stalled(peer) == [False] and peer.failures == ["refused"] and len(world.notes.refusals) == 1
    assert peer.ask(b"3", service=b"unknown") is None
    assert set(world.broker.services) == {b"mine", b"echo"}, "a refused request does not leave its name behind"


def test_a_paused_client_that_becomes_a_worker_is_resumed() -> None:
    world = World(Policy(max_outstanding=2))
    peer = world.client()
    peer.ask(b"1", service=b"other")
    peer.ask(b"2", service=b"other")
    assert stalled(peer) == [True]
    peer.register(b"mine")
    assert stalled(peer) == [False]
    peer.leave()
    assert stalled(peer) == [True], "or it could have more and more by coming and going"


def test_a_worker_that_leaves_when_there_is_room_is_not_paused() -> None:
    world = World(Policy(max_outstanding=2))
    peer = world.worker(b"mine")
    peer.ask(b"1")
    peer.leave()
    assert stalled(peer) == [False]


def test_names_are_bounded() -> None:
    world = World(Policy(max_services=3))
    client, worker = world.client(), world.worker(b"a", b"b", b"c")
    assert client.ask(service=b"d") is None
    assert client.failures == ["refused"]
    other = Peer(world)
    assert other.register(b"d") is None and "3 services" in other.refused
    assert world.broker.add_service(worker.me, b"d") is not None
    worker.leave()
    assert Peer(world).register(b"d", b"e", b"f", b"g") is None
    assert Peer(world).register(b"d", b"e", b"f") is not None


def test_names_without_workers_are_evicted_for_offered_services() -> None:
    world = World(Policy(max_services=3))
    client = world.client()
    for number, name in enumerate((b"x", b"y", b"y", b"z")):
        assert client.ask(b"%d" % number, service=name) is not None
        world.wait(1.0)
    assert client.ask(service=b"one more") is None
    assert client.failures == ["refused"]
    worker = world.worker(b"y", b"a")  # the one is waited for; the other takes the place of who has waited longest
    assert list(world.broker.services) == [b"y", b"z", b"a"]
    assert client.failures == ["refused", "no-worker"]
    assert worker.jobs
    assert world.broker.add_service(worker.me, b"b") is None
    assert set(world.broker.services) == {b"y", b"a", b"b"}
    assert client.failures == ["refused", "no-worker", "no-worker"]
    assert world.broker.add_service(worker.me, b"c") is not None, "now all of them are offered"
    world.broker.check_invariants()


def test_services_that_never_had_a_worker_are_evicted_first() -> None:
    world = World(Policy(max_services=2))
    client, worker = world.client(), world.worker(b"served")
    client.ask(b"1", service=b"served")
    worker.answer()
    client.ask(b"2", service=b"served")
    worker.leave()
    world.wait(1.0)
    client.ask(b"3", service=b"invented")
    world.worker(b"new")
    assert set(world.broker.services) == {b"served", b"new"}


def test_a_request_is_not_forwarded_beyond_the_limit_of_services() -> None:
    world = World(Policy(max_services=1))
    client, worker = world.client(), world.worker(b"a")
    client.ask(service=b"a")
    worker.forward(b"b")
    assert client.failures == ["refused"]
    assert list(world.broker.services) == [b"a"]


def test_no_service_is_evicted_if_that_would_not_make_enough_room() -> None:
    world = World(Policy(max_services=3))
    client, _ = world.client(), world.worker(b"a", b"b")
    client.ask(service=b"x")
    assert Peer(world).register(b"c", b"d") is None
    assert client.failures == [] and b"x" in world.broker.services


def test_a_name_has_a_length() -> None:
    world = World()
    client = world.client()
    assert client.ask(service=b"n" * 255) is not None
    assert client.ask(service=b"n" * 256) is None
    assert client.failures == ["refused"]


def test_services_of_one_worker_are_bounded() -> None:
    world = World()
    names = [b"%d" % i for i in range(limits.MAX_SERVICES_PER_WORKER)]
    assert Peer(world).register(*names, b"one more") is None
    peer = world.worker(*names)
    assert world.broker.add_service(peer.me, b"one more") is not None


# --- leaving


def test_drain_lets_what_has_a_worker_finish() -> None:
    world = World()
    worker, client, peer = world.worker(), world.client(), Peer(world)
    client.ask(b"held")
    client.ask(b"queued")
    client.ask(b"nobody", service=b"other")
    world.broker.drain()
    world.check()
    assert client.failures == ["shutdown"]
    assert client.ask(b"too late") is None and client.ask(b"too late", service=b"new") is None
    assert client.failures == ["shutdown"] * 3
    assert peer.register(b"echo") is None
    worker.answer(b"1")
    worker.answer(b"2")
    assert client.finals == [[b"1"], [b"2"]]
    assert client.ask(b"echo", service=b"mmi.service") is not None, "it still answers for itself"
    assert client.finals[-1] == [b"200"]


def test_a_worker_lost_while_draining_ends_its_request_and_those_behind_it() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    client.ask(b"held")
    client.ask(b"queued")
    world.broker.drain()
    worker.close()
    assert client.failures == ["shutdown"] * 2
    assert world.broker.open_requests == 0


def test_shutdown_ends_all_requests_and_disconnects_workers() -> None:
    world = World()
    worker, idle, client = world.worker(credit=2), world.worker(), world.client()
    for i in range(6):
        client.ask(b"%d" % i, deadline=50.0)
    client.ask(service=b"nobody")
    world.broker.shutdown()
    world.check()
    assert client.failures == ["shutdown"] * 7
    assert worker.said == idle.said == ["dismiss", "gone"]
    assert world.broker.services == {} and world.broker.workers == {} and world.broker.open_requests == 0
    assert len(world.broker.timers) == 0
    world.broker.shutdown()
    client.close()
    worker.close()
    world.check()


@pytest.mark.parametrize("count", [1, 5])
def test_nothing_is_left_after_all_peers_have_disconnected(count: int) -> None:
    world = World()
    peers = [world.worker(b"a", b"b") for _ in range(count)] + [world.client() for _ in range(count)]
    for i, peer in enumerate(peers):
        peer.ask(service=(b"a", b"b", b"c")[i % 3], deadline=30.0)
    for peer in peers:
        peer.close()
    broker = world.broker
    assert not broker.services and not broker.workers and not broker.sessions and not broker.session_workers
    assert not broker.open_requests and not broker.held_bytes and not len(broker.timers)
    assert world.notes.open == {}
