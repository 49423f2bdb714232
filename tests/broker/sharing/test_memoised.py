"""Memoised services: kept replies, identical requests at once, failures, deadlines and clients that leave."""

from polydomo.broker.sharing.memoised import Memoiser
from polydomo.limits import MEMO_PRUNE
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.outcomes import CANCELLED, FAILED, NO_WORKER, OK, TIMEOUT
from polydomo.model.request_options import NEEDS_WORKER
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.wire.frames import join
from tests.broker.rig import Peer, World


def start(
    patterns: list[str] | None = None, store: MemoValues | None = None, version: str = ""
) -> tuple[World, Memoiser]:
    world = World()
    memoiser = Memoiser(
        world.broker,
        world.broker,
        store or MemoValues(),
        chosen(patterns or ["echo"]),
        PatternMap({"echo": version} if version else {}),
    )
    world.broker.use_memo(memoiser)
    return world, memoiser


def finals(*peers: Peer) -> list[list[list[bytes]]]:
    return [peer.finals for peer in peers]


def test_a_repeated_request_is_answered_from_the_store() -> None:
    world, memo = start()
    worker, one, two = world.worker(), world.client(), world.client()
    one.ask(b"x")
    worker.answer(b"first", b"second")
    assert finals(one) == [[[b"first", b"second"]]]
    two.ask(b"x")
    assert finals(two) == [[[b"first", b"second"]]] and not worker.jobs
    assert (memo.hits, memo.misses, memo.joined) == (1, 1, 0)
    two.ask(b"y")
    assert len(worker.jobs) == 1
    assert world.notes.how == [OK, OK, OK]  # the client's, the memoiser's own, the client's
    worker.leave()
    one.ask(b"x")
    assert len(one.finals) == 2  # also without a worker


def test_identical_requests_run_once() -> None:
    world, memo = start()
    worker = world.worker(credit=9, auto_credit=0)
    peers = [world.client() for _ in range(4)]
    for peer in peers:
        peer.ask(b"x")
    peers[0].ask(b"other")
    assert len(worker.jobs) == 2
    worker.answer(b"same")
    assert finals(*peers) == [[[b"same"]]] * 4
    assert (memo.hits, memo.misses, memo.joined) == (0, 2, 3) and len(memo.runs.open) == 1


def test_services_that_do_not_match_are_not_memoised() -> None:
    world, memo = start(["lint.*"])
    worker, client = world.worker(b"echo", b"lint.a", credit=9), world.client()
    for service in (b"echo", b"echo", b"lint.a", b"lint.a"):
        client.ask(b"x", service)
        if worker.jobs:
            worker.answer(service)
    assert client.finals == [[b"echo"], [b"echo"], [b"lint.a"], [b"lint.a"]] and (memo.hits, memo.misses) == (1, 1)


def test_another_version_invalidates_stored_replies() -> None:
    store = MemoValues()
    for version, expected in (("1", 1), ("1", 0), ("2", 1)):
        world, memo = start(store=store, version=version)
        worker, client = world.worker(), world.client()
        client.ask(b"x")
        if worker.jobs:
            worker.answer(b"reply of " + version.encode())
        assert memo.misses == expected


def test_a_failure_reaches_all_and_is_not_kept() -> None:
    world, memo = start()
    worker, one, two = world.worker(), world.client(), world.client()
    one.ask(b"x")
    two.ask(b"x")
    worker.fail("oops")
    assert one.failures == two.failures == ["oops"] and world.notes.how.count(FAILED) == 3
    one.ask(b"x")
    worker.answer(b"better")
    assert one.finals == [[b"better"]] and memo.misses == 2


def test_a_request_without_a_worker_ends_as_no_worker() -> None:
    world, _ = start()
    client = world.client()
    client.ask(b"x")
    world.wait(61.0)
    assert client.failures == [NO_WORKER]
    assert world.broker.request(client, b"echo", join([b"x"]), None, 0.0, NEEDS_WORKER) is not None
    assert client.failures == [NO_WORKER, NO_WORKER]


def test_a_client_that_leaves_and_the_last_one() -> None:
    world, memo = start()
    worker, one, two = world.worker(), world.client(), world.client()
    worker.can_cancel = True
    one.ask(b"x")
    two.ask(b"x")
    one.close()
    world.check()
    assert len(worker.jobs) == 1
    two.close()
    world.check()
    assert len(worker.jobs) == 1  # a worker runs it: it goes on, for a client that asks again
    again = world.client()
    again.ask(b"x")
    worker.answer(b"X")
    world.check()
    assert again.finals == [[b"X"]] and not memo.runs.open and memo.misses == 1


def test_a_queued_memoised_request_ends_with_its_last_client() -> None:
    world, memo = start()
    one, two = world.client(), world.client()
    one.ask(b"x")
    two.ask(b"x")
    one.close()
    assert memo.runs.open
    two.close()
    world.check()
    assert not memo.runs.open and world.notes.how == [CANCELLED] * 3


def test_a_reply_that_no_client_waits_for_is_kept() -> None:
    world, memo = start()
    worker, client = world.worker(), world.client()
    client.ask(b"x")
    client.close()
    worker.answer(b"X")
    world.check()
    again = world.client()
    again.ask(b"x")
    assert again.finals == [[b"X"]] and memo.hits == 1 and not worker.jobs


def test_a_deadline_ends_one_request_and_not_the_others() -> None:
    world, _ = start()
    worker, one, two = world.worker(silence=0), world.client(), world.client()
    one.ask(b"x", deadline=1.0)
    two.ask(b"x")
    world.wait(2.0)
    assert one.failures == [TIMEOUT] and not two.failures
    worker.answer(b"late")
    assert two.finals == [[b"late"]] and not one.finals
    assert not world.broker.memoiser.runs.worker.held  # type: ignore[union-attr]


def test_a_lost_worker_is_none_of_the_clients_business() -> None:
    world, _ = start()
    first, second, client = world.worker(), world.worker(), world.client()
    client.ask(b"x")
    first.close()
    world.check()
    second.answer(b"saved")
    assert client.finals == [[b"saved"]]


def test_partials_are_joined_and_empty_replies_kept() -> None:
    world, memo = start()
    worker, client = world.worker(), world.client(takes_partials=True)
    client.ask(b"x")
    worker.part(b"one")
    worker.answer(b"two")
    assert client.finals == [[b"one", b"two"]] and not client.partials
    client.ask(b"")
    world.broker.final(worker.me, worker._token(0), b"")
    client.ask(b"")
    assert client.finals[1:] == [[], []] and memo.hits == 1


def test_stored_replies_can_be_listed_and_removed() -> None:
    world, memo = start()
    worker, client = world.worker(), world.client()
    client.ask(b"x")
    worker.answer(b"y")
    assert memo.answer({"op": "rm", "service": "echo"}) == {"removed": 1}
    stats = memo.answer({})
    assert isinstance(stats, dict) and stats["misses"] == 1 and stats["services"] == ["echo"]
    assert "error" in memo.answer({"op": "rm"})  # type: ignore[operator]
    client.ask(b"x")
    assert len(worker.jobs) == 1


def test_clients_are_served_in_turn() -> None:
    """A client that floods a memoised service does not starve another one."""
    world, _ = start()
    worker, flood, other = world.worker(), world.client(), world.client()
    for number in range(10):
        flood.ask(b"%d" % number)
    other.ask(b"x")
    for _ in range(3):
        worker.answer(b"done")
    assert len(flood.finals) == 2 and other.finals == [[b"done"]]


def test_state_of_disconnected_clients_is_bounded() -> None:
    world, memo = start()
    worker = world.worker()
    for number in range(3 * MEMO_PRUNE):
        client = world.client()
        client.ask(b"%d" % number)
        worker.answer(b"done")
        client.close()
    assert len(memo.runs._clients) <= MEMO_PRUNE and len(world.broker.sessions) <= MEMO_PRUNE + 2
