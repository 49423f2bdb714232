"""Workers that hold several requests: windows, prefetching, releases, and requests that come back."""

from typing import Any

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.broker.requests import dispatch
from polydomo.model.records import Request, Worker
from polydomo.native import is_compiled
from tests.broker.rig import Peer, World


class Prefetcher(Peer):
    """A worker that names a window. It remembers what it was asked to release."""

    def __init__(self, world: World, window: int, runs: int, *services: bytes) -> None:
        super().__init__(world)
        self.revoked: list[Request] = []
        self.register(*(services or (b"echo",)))
        self.window(window, runs)

    def window(self, window: int, runs: int) -> None:
        self.core.set_credit(self.me, window, runs)
        self.world.check()

    def revoke_request(self, worker: Worker, request: Request) -> None:
        assert request.token in worker.held
        self.revoked.append(request)

    def release(self, request: Request) -> bool:
        self.jobs.remove(request)
        known = self.core.release(self.me, request.token)
        self.world.check()
        return known

    def keep(self, request: Request) -> None:
        self.core.kept(self.me, request.token)
        self.world.check()

    def give_back(self, index: int = 0) -> bool:
        known = self.core.give_back(self.me, self.jobs.pop(index).token, "it failed")
        self.world.check()
        return known


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, *bodies: bytes) -> Peer:
    client = world.client()
    for body in bodies:
        client.ask(body)
    return client


def test_a_worker_gets_as_many_requests_as_its_window(world: World) -> None:
    worker = Prefetcher(world, 3, 3)
    client = ask(world, b"1", b"2", b"3", b"4", b"5")
    assert worker.bodies() == [b"1", b"2", b"3"]
    worker.answer(index=1)
    assert worker.bodies() == [b"1", b"3", b"4"]  # in any order, and each reply makes room for one
    worker.answer()
    worker.answer()
    worker.answer()
    worker.answer()
    assert len(client.finals) == 5 and not worker.jobs
    assert worker.me.credit == 3


def test_a_window_grows_and_shrinks(world: World) -> None:
    worker = Prefetcher(world, 2, 2)
    ask(world, b"1", b"2", b"3", b"4")
    worker.window(3, 3)
    assert worker.bodies() == [b"1", b"2", b"3"]
    worker.window(1, 1)  # what it holds it keeps
    worker.answer()
    worker.answer()
    assert worker.bodies() == [b"3"]
    worker.answer()
    assert worker.bodies() == [b"4"]
    worker.window(0, 0)
    worker.answer()
    ask(world, b"5")
    assert not worker.jobs


def test_idle_workers_come_first_then_those_that_can_start_it_then_prefetch(world: World) -> None:
    prefetcher = Prefetcher(world, 4, 2)
    ask(world, b"1")
    other = world.worker()
    ask(world, b"2")
    assert other.bodies() == [b"2"]  # idle
    ask(world, b"3")
    assert prefetcher.bodies() == [b"1", b"3"]  # busy, and can start one more
    third = world.worker()
    ask(world, b"4", b"5")
    assert third.bodies() == [b"4"]
    assert prefetcher.bodies() == [b"1", b"3", b"5"]  # only prefetch room is left


def test_a_request_that_is_not_started_moves_to_an_idle_worker(world: World) -> None:
    slow = Prefetcher(world, 3, 1)
    ask(world, b"1", b"2", b"3")
    other = world.worker()
    assert [request.ref for request in slow.revoked] == [b"2"]  # the next in line, and no more than the other can start
    slow.release(slow.revoked[0])
    assert other.bodies() == [b"2"]
    other.answer()
    assert [request.ref for request in slow.revoked] == [b"2", b"3"]
    slow.release(slow.revoked[1])
    other.answer()
    slow.answer()
    assert world.notes.how == ["ok"] * 3
    assert not world.notes.requeues  # moving is no attempt that was lost


def test_a_request_that_was_started_meanwhile_stays_and_the_next_one_moves(world: World) -> None:
    slow = Prefetcher(world, 3, 1)
    ask(world, b"1", b"2", b"3")
    other = world.worker()
    slow.answer()  # it starts 2 now, before it hears that 2 was asked for
    slow.keep(slow.revoked[0])
    assert [request.ref for request in slow.revoked] == [b"2", b"3"]
    slow.release(slow.revoked[1])
    assert other.bodies() == [b"3"] and slow.bodies() == [b"2"]
    other.answer()
    slow.answer()
    assert world.notes.how == ["ok"] * 3


def test_a_request_that_stays_does_not_hold_up_those_of_other_services(world: World) -> None:
    slow = Prefetcher(world, 4, 1, b"echo", b"other")
    client = ask(world, b"1", b"2")
    client.ask(b"3", b"other")
    world.worker()
    other = world.worker(b"other")
    slow.answer()
    slow.keep(slow.revoked[0])
    assert [request.ref for request in slow.revoked] == [b"2", b"3"]
    slow.release(slow.revoked[1])
    assert other.bodies() == [b"3"]


@pytest.mark.parametrize("how", ["answered", "cancelled"])
def test_an_answered_revocation_lets_the_next_request_move(world: World, how: str) -> None:
    slow = Prefetcher(world, 3, 1, b"echo", b"other")
    client = ask(world, b"1", b"2", b"3")
    client.ask(b"4", b"other")  # queued: it takes the room at the worker
    free = world.worker()
    assert [request.ref for request in slow.revoked] == [b"2"]
    if how == "cancelled":
        world.broker.cancel(slow.revoked[0], "cancelled")
        slow.release(slow.revoked[0])
    else:
        slow.answer(index=1)
    assert slow.bodies() == [b"1", b"3", b"4"] and not slow.me.credit
    assert [request.ref for request in slow.revoked] == [b"2", b"3"], "the free worker can start it"
    slow.release(slow.revoked[1])
    assert free.bodies() == [b"3"]


def test_a_release_that_crosses_the_final_reply_is_stale(world: World) -> None:
    slow = Prefetcher(world, 2, 1)
    ask(world, b"1", b"2")
    world.worker()
    asked = slow.revoked[0]
    slow.answer(index=1)
    assert not world.broker.release(slow.me, asked.token)
    assert world.notes.how == ["ok"] and world.notes.stales == [(1, "release")]


def test_a_released_request_uses_up_no_attempt(world: World) -> None:
    world.broker.policy = Policy(attempts=1)
    worker = Prefetcher(world, 2, 1)
    ask(world, b"1", b"2")
    for _ in range(5):
        worker.release(worker.jobs[-1])  # nobody else is there: it comes back
    assert worker.bodies() == [b"1", b"2"]
    worker.leave()
    assert world.notes.how == ["gave-up", "gave-up"]


def test_a_release_after_partial_replies_of_an_earlier_attempt_uses_up_no_attempt(world: World) -> None:
    world.broker.policy = Policy(attempts=2, requeue_after_partial=True)
    first = world.worker()
    client = world.client(takes_partials=True)
    client.ask(b"1")
    first.part(b"half")
    first.close()
    second = Prefetcher(world, 2, 1)
    second.release(second.jobs[0])
    assert second.bodies() == [b"1"] and not client.failures
    second.answer()
    assert world.notes.how == ["ok"]


@pytest.mark.parametrize("takes_partials", [True, False])
def test_a_release_after_a_partial_reply_uses_up_an_attempt(world: World, takes_partials: bool) -> None:
    world.broker.policy = Policy(attempts=1, requeue_after_partial=True)
    worker = Prefetcher(world, 2, 1)
    client = world.client(takes_partials)
    client.ask(b"1")
    worker.part(b"half")
    worker.release(worker.jobs[0])
    assert client.failures == ["gave-up"]


def test_a_worker_that_forwards_its_last_request_counts_as_idle(world: World) -> None:
    busy = Prefetcher(world, 3, 1, b"last")
    client = world.client()
    client.ask(b"1", b"last")
    chain = Prefetcher(world, 3, 1, b"first", b"last")
    client.ask(b"2", b"first")
    assert chain.bodies() == [b"2"]
    chain.forward(b"last")
    assert busy.bodies() == [b"1"] and len(chain.jobs) == 1, "the other worker would only prefetch it"


def test_a_worker_that_releases_everything_does_not_keep_a_request_for_ever(world: World) -> None:
    worker = Prefetcher(world, 2, 1)
    client = ask(world, b"1")
    times = 0
    while worker.jobs:
        worker.release(worker.jobs[0])
        times += 1
        assert times < 1000
    assert times == limits.MAX_RELEASES + world.broker.policy.attempts
    assert client.failures == ["gave-up"]


def test_a_prefetched_request_is_not_lost_with_its_worker(world: World) -> None:
    worker = Prefetcher(world, 4, 1)
    client = ask(world, b"1", b"2", b"3")
    worker.close()
    other = world.worker()
    assert other.bodies() == [b"1"]
    for _ in range(3):
        other.answer()
    assert len(client.finals) == 3


def test_a_cancelled_request_leaves_the_queue_at_once(world: World) -> None:
    worker = world.worker()
    client = world.client()
    client.ask(b"1")
    queued = client.ask(b"2")
    assert queued is not None
    world.broker.cancel(queued, "cancelled by the client")
    worker.answer()
    assert not worker.jobs and world.notes.how == ["cancelled", "ok"]


def test_a_request_whose_client_timed_out_ends_as_timeout(world: World) -> None:
    world.worker()
    client = world.client()
    client.ask(b"1")
    queued = client.ask(b"2")
    assert queued is not None
    world.broker.cancel(queued, "the client's timeout passed", expired=True)
    assert world.notes.how == ["timeout"]
    assert not client.failures  # it does not wait for an answer


def test_a_cancelled_request_occupies_its_worker_until_that_releases_it(world: World) -> None:
    worker = Prefetcher(world, 2, 2)
    client = world.client()
    first, second = client.ask(b"1"), client.ask(b"2")
    assert first is not None and second is not None
    world.broker.cancel(first, "cancelled by the client")
    world.check()
    client.ask(b"3")
    assert worker.bodies() == [b"1", b"2"]
    worker.release(first)
    assert worker.bodies() == [b"2", b"3"]
    assert world.notes.how == ["cancelled"]


def test_one_failure_costs_an_attempt_and_not_the_connection(world: World) -> None:
    worker = Prefetcher(world, 3, 3)
    client = ask(world, b"1", b"2")
    other = world.worker()
    worker.give_back()
    assert other.bodies() == [b"1"]  # another worker first
    assert worker.bodies() == [b"2"] and worker.me.alive
    assert world.notes.requeues == [1]
    other.answer()
    worker.answer()
    assert len(client.finals) == 2


def test_a_request_that_every_worker_gives_back_ends(world: World) -> None:
    worker = Prefetcher(world, 1, 1)
    client = ask(world, b"1")
    for _ in range(world.broker.policy.attempts):
        worker.give_back()
    assert client.failures == ["gave-up"]
    assert worker.me.alive and worker.me.credit == 1


def test_a_drained_worker_keeps_its_window_for_later(world: World) -> None:
    worker = Prefetcher(world, 3, 1)
    ask(world, b"1")
    world.broker.control.drain_worker(worker.me, True)
    ask(world, b"2", b"3")
    assert worker.bodies() == [b"1"]
    worker.answer()
    assert not worker.jobs
    worker.window(2, 2)
    assert not worker.jobs
    world.broker.control.drain_worker(worker.me, False)
    world.check()
    assert worker.bodies() == [b"2", b"3"]


def test_a_worker_that_announces_prefetching_later(world: World) -> None:
    worker = Prefetcher(world, 2, 2)
    ask(world, b"1", b"2")
    other = world.worker()
    worker.window(2, 1)
    assert [request.ref for request in worker.revoked] == [b"2"]
    worker.release(worker.revoked[0])
    assert other.bodies() == [b"2"]


def test_nothing_moves_while_the_broker_shuts_down(world: World) -> None:
    slow = Prefetcher(world, 2, 1)
    other = world.worker()
    ask(world, b"0", b"1", b"2")
    assert slow.bodies() == [b"0", b"2"]
    world.broker.drain()
    other.answer()
    assert not slow.revoked


class Walked(dict[bytes, Request]):
    """Counts how often all of its values are asked for."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


@pytest.mark.skipif(is_compiled(), reason="compiled code does not call methods of subclasses of dict")
def test_held_requests_are_not_walked_if_none_can_move(world: World) -> None:
    holder = Prefetcher(world, 8, 1)
    ask(world, b"1", b"2", b"3")
    held = holder.me.held = Walked(holder.me.held)
    Prefetcher(world, 1, 1)
    assert len(holder.revoked) == 1
    service = world.broker.services[b"echo"]
    walks = held.walks
    assert walks
    dispatch.rebalance(world.broker, service)  # the worker that is free waits for the request that was asked for
    assert held.walks == walks
    holder.keep(holder.revoked[0])
    assert len(holder.revoked) == 2, "the other one could be started"
    holder.release(holder.revoked[1])
    walks = held.walks
    dispatch.rebalance(world.broker, service)  # no worker is free
    assert held.walks == walks
