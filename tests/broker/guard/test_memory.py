"""Work is charged to the connection it is done for, and a connection past its share waits for the next turn."""

import pytest

from polydomo import limits
from polydomo.broker.guard.memory import INPUT, OUTPUT, REQUESTS, SUBSCRIPTIONS
from polydomo.broker.policy import Policy
from polydomo.limits import MIB
from polydomo.model.registration import WorkerTerms
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.link import PAUSE_AT_LIMIT, PAUSE_LISTING, PAUSE_MEMORY, PAUSE_SHARE_USED, Hub, LinkHandler, Turns
from polydomo.wire.zmtp.link import ZmtpLink
from tests.broker.rig import Peer, World
from tests.wire.zmtp.rig import GREETING_31, ready


def limited(policy: Policy | None = None) -> World:
    """A world whose connections have shares, as a server's have."""
    world = World(policy)
    world.hub = Hub(Turns())
    world.hub.now = world.broker.now
    world.broker.memory.attach(world.hub)
    return world


def turn(world: World) -> None:
    world.hub.begin_turn()
    world.broker.end_turn()
    world.hub.resumed.clear()
    world.check()


@pytest.mark.parametrize("with_worker", [False, True])
def test_a_connection_that_asks_without_end_waits_for_the_next_turn(with_worker: bool) -> None:
    world = limited()
    flood, other = world.worker() if with_worker else world.client(), world.client()
    for _ in range(3):
        asked = 0
        while not flood.link.pauses:
            world.broker.request(flood, b"mmi.service", b"", None)
            asked += 1
            assert asked < limits.TURN_SHARE
        assert flood.link.pauses == PAUSE_SHARE_USED and not other.link.pauses
        assert world.hub.turns_waiting(), "the next turn must not wait for something to arrive"
        world.check()
        turn(world)
        assert not flood.link.pauses and not world.hub.turns_waiting()


def test_the_time_of_an_answer_of_the_broker_is_charged() -> None:
    """A question of a few bytes may take long to answer, and its answer may be short."""
    world = limited()
    asking = world.client()
    moments = iter([1.0, 1.005])
    world.hub.clock = lambda: next(moments)
    asking.ask(b"x", service=b"mmi.service")
    assert asking.link.pauses == PAUSE_SHARE_USED


def test_a_connection_that_closes_while_it_waits_is_forgotten() -> None:
    world = limited()
    flood = world.client()
    while not flood.link.pauses:
        flood.ask(b"x", service=b"mmi.service")
    flood.link.lost()
    assert not world.hub.turns_waiting()
    world.check()


@pytest.mark.parametrize("verb", ["publish", "log", "subscribe", "violate", "register"])
def test_everything_is_charged(verb: str) -> None:
    world = limited()
    peer = world.client()
    for number in range(limits.TURN_SHARE):
        if verb == "publish":
            world.broker.publish(peer, b"topic", b"\x00\x01x")
        elif verb == "log":
            world.broker.publish(peer, b"log.x", b"\x00\x0f" + b'{"message": ""}')
        elif verb == "subscribe":
            world.broker.subscribe(peer, b"topic.%d" % number)
        elif verb == "violate":
            world.broker.report_violation(peer, "nonsense")
        else:
            world.broker.register_worker(peer, [b"s%d" % number], None, WorkerTerms(0, 0))
        if peer.link.pauses & PAUSE_SHARE_USED:
            return
    raise AssertionError(f"{verb} costs nothing")


def test_repeated_violations_close_the_connection() -> None:
    world = World()
    peer = world.client()
    for _ in range(limits.MAX_VIOLATIONS):
        assert peer.link.close_reason is None
        world.broker.report_violation(peer, "nonsense")
    assert peer.link.close_reason is not None and peer.link.close_reason.cause is CloseCause.VIOLATION


def test_a_long_list_is_made_over_some_turns_and_once_for_all() -> None:
    world = limited()
    world.worker(b"first")
    for number in range(1_000):
        world.worker(b"service-%d" % number)
    clients = [world.client() for _ in range(2)]
    for client in clients:
        client.ask(b"", service=b"polydomo.services")
        assert client.link.pauses & PAUSE_LISTING and not client.finals
    turns = 0
    while world.broker.has_more_work():
        turn(world)
        turns += 1
    assert turns == 3
    assert [len(client.finals) for client in clients] == [1, 1]
    assert clients[0].finals[0] is clients[1].finals[0] or clients[0].finals == clients[1].finals
    assert not any(client.link.pauses & PAUSE_LISTING for client in clients)


def test_large_requests_of_others_do_not_stop_a_small_client() -> None:
    world = World(Policy(max_held_bytes=2 * MIB, max_client_bytes=8 * MIB))
    world.worker()
    big, small = world.client(), world.client()
    while not big.link.pauses:
        big.ask(bytes(MIB), service=b"without-a-worker")
    small.ask(b"x")
    assert not small.link.pauses and big.link.pauses & PAUSE_AT_LIMIT
    world.check()


def fill(world: World, peer: Peer, size: int) -> None:
    world.broker.now += 1.0
    peer.link.book_input(size)
    turn(world)


def test_near_the_limit_the_largest_are_throttled_and_go_on_when_there_is_room() -> None:
    world = limited(Policy(max_memory=100 * MIB))
    large, medium, small = (world.client() for _ in range(3))
    for peer, source in ((large, "a"), (medium, "b"), (small, "c")):
        peer.link.source = source
    fill(world, small, 200_000)
    fill(world, medium, MIB)
    fill(world, large, 75 * MIB)
    assert large.link.pauses & PAUSE_MEMORY and not medium.link.pauses and not small.link.pauses
    fill(world, large, 30 * MIB)
    assert not large.link.pauses
    assert world.broker.memory.cut == 0


def test_memory_is_measured_after_much_work_even_if_the_clock_has_not_moved() -> None:
    world = limited(Policy(max_memory=4 * MIB))
    turn(world)
    hoarder = world.client()
    hoarder.link.source = "hoarder"
    for number in range(9):
        hoarder.link.book_unsent(number * MIB // 2)
        world.hub.work_left -= limits.MEMORY_WORK  # as the links do after they have handled their input
        turn(world)
    assert "limits.max_memory" in str(hoarder.link.close_reason)


def test_past_the_limit_the_largest_source_is_cut_first() -> None:
    world = limited(Policy(max_memory=100 * MIB))
    single = world.client()
    single.link.source = "single"
    crowd = [world.client() for _ in range(10)]
    for peer in crowd:
        peer.link.source = "crowd"
    fill(world, single, 20 * MIB)
    for peer in crowd[:-1]:
        peer.link.book_input(7 * MIB)
    fill(world, crowd[-1], 10 * MIB)
    cut = [peer for peer in crowd if peer.link.close_reason is not None]
    assert crowd[-1] in cut, "the largest connection of the largest source"
    assert single.link.close_reason is None and len(cut) < len(crowd)
    assert "limits.max_memory" in str(crowd[-1].link.close_reason)


def test_a_long_memory_shortage_closes_a_connection() -> None:
    world = limited(Policy(max_memory=100 * MIB))
    stuck = world.client()
    fill(world, stuck, 80 * MIB)
    assert stuck.link.close_reason is None
    world.broker.now += limits.MEMORY_PATIENCE
    fill(world, stuck, 80 * MIB)
    assert stuck.link.close_reason is not None


def test_the_account_has_every_kind() -> None:
    world = limited(Policy(max_memory=100 * MIB))
    client = world.client()
    client.ask(bytes(100_000), service=b"none")
    world.broker.subscribe(client, b"topic")
    client.link.book_unsent(70_000)
    client.link.book_input(50_000)
    memory = world.broker.memory
    total = memory.measure()
    kinds = memory.by_kind()
    assert total == sum(kinds.values())
    assert kinds[INPUT] == 50_000 and kinds[OUTPUT] == 70_000
    assert kinds[REQUESTS] >= 100_000 and kinds[SUBSCRIPTIONS] == limits.COST_SUBSCRIPTION
    assert client.link.held() >= 220_000
    client.link.lost()
    assert world.hub.input_bytes == world.hub.unsent_bytes == 0 and not world.hub.holding
    assert memory.measure() < 5_000


@pytest.mark.parametrize("read", [256_000, 300_000])
def test_unfinished_input_of_many_connections_is_measured_within_a_turn(read: int) -> None:
    """With reads of 256,000 bytes, no connection alone holds much, but their source does."""
    limit = 16 * MIB
    world = limited(Policy(max_memory=limit))
    small = world.client()
    links = [ZmtpLink(world.hub, LinkHandler(), f"peer {number}") for number in range(100)]
    for link in links:
        link.source = small.link.source = "one host"
        link.receive(GREETING_31 + ready() + b"\x02" + (900_000).to_bytes(8, "big"))
        assert link.open
    for _ in range(2):
        for link in links:  # the turn does not end in between
            link.receive(bytes(read))
            held = sum(len(one._rest) + (one._gather.tell() if one._gather is not None else 0) for one in links)
            assert held <= limit + limits.MEMORY_STEP + MIB
    cut = [link for link in links if link.close_reason is not None]
    assert cut and all(link.close_reason.cause is CloseCause.MEMORY for link in cut if link.close_reason)
    assert len(cut) < len(links) and small.link.close_reason is None
    world.broker.now += limits.MEMORY_INTERVAL
    turn(world)
    assert world.broker.memory.measure() <= limit


def test_small_peers_of_many_hosts_are_not_cut() -> None:
    world = limited(Policy(max_memory=16 * MIB))
    crowd = [world.client() for _ in range(150)]
    for number, peer in enumerate(crowd):
        peer.link.source = f"host {number}"
        peer.link.book_input(limits.SMALL_PEER // 2)
    turn(world)
    assert world.broker.memory.measure() > 16 * MIB
    assert all(peer.link.close_reason is None for peer in crowd)
