"""Requests with an idempotency key: one that is repeated while the first one is open joins it."""

import pytest

from polydomo.broker.observe import figures
from polydomo.broker.sharing.keyed import KeyedRequests
from polydomo.limits import KEYED_LINGER, SHARED_PARTS
from polydomo.model.outcomes import CANCELLED, FAILED, KEY_REUSED, NO_WORKER, OK, REFUSED, SHUTDOWN, TIMEOUT
from tests.broker.rig import Peer, World


def keyed(world: World) -> KeyedRequests:
    assert world.broker.keyed is not None
    return world.broker.keyed


def test_a_request_with_the_key_of_an_open_one_joins_it() -> None:
    world = World()
    worker = world.worker(credit=9, auto_credit=0)
    peers = [world.client() for _ in range(3)]
    for peer in peers:
        peer.ask_with_key(b"k", b"x")
    assert len(worker.jobs) == 1
    assert figures.connections(world.broker) == 4  # of peers, without the broker's own sessions
    worker.answer(b"same")
    assert [peer.finals for peer in peers] == [[[b"same"]]] * 3
    assert world.notes.how == [OK] * 4  # the run, and the three requests
    assert (keyed(world).started, keyed(world).joined) == (1, 2) and not keyed(world).runs.open
    row = figures.traffic(world.broker, world.broker.services[b"echo"])
    assert (row["requests"], row["answered"], row["failed"]) == (3, 3, 0)  # without the run
    assert figures.totals(world.broker)["answered"] == 3


def test_the_key_is_free_again_once_the_run_has_ended() -> None:
    world = World()
    worker, client = world.worker(), world.client()
    for reply in (b"one", b"two"):
        client.ask_with_key(b"k", b"x")
        worker.answer(reply)
    assert client.finals == [[b"one"], [b"two"]] and keyed(world).started == 2


def test_another_key_service_or_principal_does_not_join() -> None:
    world = World()
    worker = world.worker(b"echo", b"other", credit=9, auto_credit=0)
    one, two = world.client(), world.client()
    two.principal = "someone"
    one.ask_with_key(b"k", b"x")
    one.ask_with_key(b"l", b"x")
    one.ask_with_key(b"k", b"x", service=b"other")
    one.ask(b"x")
    two.ask_with_key(b"k", b"x")
    assert len(worker.jobs) == 5


def test_keys_cannot_be_confused_with_names_of_services() -> None:
    world = World()
    worker = world.worker(b"a", b"ab", credit=9, auto_credit=0)
    client = world.client()
    client.ask_with_key(b"bk", b"x", service=b"a")
    client.ask_with_key(b"k", b"x", service=b"ab")
    assert len(worker.jobs) == 2


def test_another_body_under_a_key_in_use_is_refused() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(), world.client()
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"y")
    assert two.failures == [KEY_REUSED] and not one.failures and keyed(world).reused == 1
    worker.answer(b"X")
    assert one.finals == [[b"X"]] and world.notes.how == [REFUSED, OK, OK]
    two.ask_with_key(b"k", b"y")
    worker.answer(b"Y")
    assert two.finals == [[b"Y"]]


def test_partial_replies_reach_every_client_also_one_that_joins_late() -> None:
    world = World()
    worker = world.worker()
    streaming, whole, late, late_whole = world.client(True), world.client(), world.client(True), world.client()
    streaming.ask_with_key(b"k", b"x")
    whole.ask_with_key(b"k", b"x")
    worker.part(b"1")
    worker.part(b"2")
    late.ask_with_key(b"k", b"x")
    late_whole.ask_with_key(b"k", b"x")
    worker.part(b"3")
    assert streaming.partials == late.partials == [[b"1"], [b"2"], [b"3"]]
    worker.answer(b"end")
    assert streaming.finals == late.finals == [[b"end"]]
    assert whole.finals == late_whole.finals == [[b"1", b"2", b"3", b"end"]]
    assert not world.broker.held_bytes


def test_a_stream_too_long_to_repeat_is_not_joined() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(True), world.client(True)
    one.ask_with_key(b"k", b"x")
    for _ in range(2):
        worker.part(bytes(SHARED_PARTS * 2 // 3))
    two.ask_with_key(b"k", b"x")
    assert two.failures == [REFUSED] and len(one.partials) == 2
    worker.answer(b"end")
    assert one.finals == [[b"end"]] and not world.broker.held_bytes


def test_a_failure_reaches_all() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(), world.client()
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"x")
    worker.fail("oops")
    assert one.failures == two.failures == ["oops"] and world.notes.how == [FAILED] * 3


def test_it_goes_on_for_the_others_when_the_first_client_leaves() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(), world.client()
    worker.can_cancel = True
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"x")
    one.close()
    world.wait(KEYED_LINGER * 2)
    assert len(worker.jobs) == 1
    worker.answer(b"X")
    assert two.finals == [[b"X"]]


def test_it_is_cancelled_when_the_last_client_cancels() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(), world.client()
    worker.can_cancel = True
    first, second = one.ask_with_key(b"k", b"x"), two.ask_with_key(b"k", b"x")
    assert first is not None and second is not None
    world.broker.cancel(first, "given up")
    world.check()
    assert len(worker.jobs) == 1
    world.broker.cancel(second, "given up")
    world.check()
    assert not worker.jobs and world.notes.how == [CANCELLED] * 3 and not keyed(world).runs.open


def test_a_client_that_connects_again_finds_its_run() -> None:
    world = World()
    worker, one = world.worker(silence=0), world.client()
    worker.can_cancel = True
    one.ask_with_key(b"k", b"x")
    one.close()
    world.wait(KEYED_LINGER * 0.9)
    again = world.client()
    again.ask_with_key(b"k", b"x")
    world.wait(KEYED_LINGER * 0.9)
    assert len(worker.jobs) == 1
    worker.answer(b"X")
    assert again.finals == [[b"X"]] and keyed(world).joined == 1


def test_a_run_that_no_client_asks_for_again_is_cancelled() -> None:
    world = World()
    worker = world.worker(silence=0)
    worker.can_cancel = True
    for client in (world.client(), world.client()):  # the second one comes while the first one's run goes on
        client.ask_with_key(b"k", b"x")
        client.close()
        world.wait(KEYED_LINGER / 2)
    assert len(worker.jobs) == 1
    world.wait(KEYED_LINGER / 2 + 0.5)
    assert not worker.jobs and not keyed(world).runs.open


def test_a_queued_run_ends_with_its_last_client() -> None:
    world = World()
    one, two = world.client(), world.client()
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"x")
    one.close()
    assert keyed(world).runs.open
    two.close()
    assert not keyed(world).runs.open and world.notes.how == [CANCELLED] * 3


def test_each_client_has_its_own_deadline() -> None:
    world = World()
    worker, one, two = world.worker(silence=0), world.client(), world.client()
    one.ask_with_key(b"k", b"x", deadline=1.0)
    two.ask_with_key(b"k", b"x", deadline=5.0)
    world.wait(2.0)
    assert one.failures == [TIMEOUT] and not two.failures
    worker.answer(b"X")
    assert two.finals == [[b"X"]]


def test_a_lost_worker_is_replaced_and_a_missing_one_reported() -> None:
    world = World()
    worker, one, two = world.worker(), world.client(), world.client()
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"x")
    worker.close()
    world.worker().answer(b"X")
    assert one.finals == two.finals == [[b"X"]]
    three = world.client()
    three.ask_with_key(b"k", b"x", service=b"missing")
    world.wait(61.0)
    assert three.failures == [NO_WORKER]


def test_attempts_of_the_first_request_hold() -> None:
    world = World()
    workers = [world.worker() for _ in range(3)]
    client = world.client()
    client.ask_with_key(b"k", b"x", attempts=1)
    next(worker for worker in workers if worker.jobs).close()
    assert client.failures == ["gave-up"]


def test_a_paused_service_keeps_keyed_requests() -> None:
    world = World()
    worker, one, two = world.worker(silence=0), world.client(), world.client()
    world.broker.control.pause(b"echo", True)
    one.ask_with_key(b"k", b"x")
    two.ask_with_key(b"k", b"x")
    one.close()
    world.wait(30.0)
    assert not worker.jobs
    world.broker.control.pause(b"echo", False)
    worker.answer(b"X")
    assert two.finals == [[b"X"]]


def test_a_client_is_paused_at_the_limits_and_never_refused() -> None:
    from polydomo.broker.policy import Policy

    world = World(Policy(max_queue=5, max_outstanding=20))
    client = world.client()
    for number in range(5):
        client.ask_with_key(b"%d" % number, b"x")
    assert client in world.broker.paused_clients
    client.ask_with_key(b"one more", b"x")  # it was read already
    worker = world.worker(credit=9, auto_credit=0)
    while worker.jobs:
        worker.answer(b"X")
    world.broker.end_turn()
    assert len(client.finals) == 6 and not client.failures and client not in world.broker.paused_clients


@pytest.mark.parametrize("asked", [0, 2])
def test_shutdown_ends_keyed_requests_once(asked: int) -> None:
    world = World()
    client = world.client()
    world.worker()
    for _ in range(asked):
        client.ask_with_key(b"k", b"x")
    world.broker.drain()
    client.ask_with_key(b"l", b"y")
    world.broker.shutdown()
    assert client.failures == [SHUTDOWN] * (asked + 1)


def test_the_limits_hold_for_peers() -> None:
    """What the broker keeps for clients that are gone is bounded."""
    world = World()
    worker = world.worker(silence=0)
    peers: list[Peer] = []
    for number in range(250):
        peer = world.client()
        peer.ask_with_key(b"k", b"%d" % number)
        worker.answer(b"done")
        peer.close()
        peers.append(peer)
    assert all(peer.finals == [[b"done"]] for peer in peers) and len(world.broker.sessions) < 110
