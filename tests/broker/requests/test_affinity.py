"""Affinity: a request that names a key prefers the worker that served it last, and never waits for it."""

import pytest

from polydomo.broker.guard.memory import AFFINITY
from polydomo.broker.requests.affinity import Affinity
from polydomo.limits import COST_NEAR
from polydomo.model.records import Request, Service, Worker
from polydomo.model.request_options import options_of
from polydomo.wire.frames import join
from tests.broker.rig import Peer, World


class Runner(Peer):
    """A worker that runs ``runs`` requests at once and holds ``window``."""

    def __init__(self, world: World, window: int = 1, runs: int = 1) -> None:
        super().__init__(world)
        self.revoked: list[Request] = []
        self.register(b"echo")
        if window > 1:
            self.core.set_credit(self.me, window, runs)

    def revoke_request(self, worker: Worker, request: Request) -> None:
        self.revoked.append(request)


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, near: bytes, service: bytes = b"echo") -> Request:
    client = world.client()
    request = world.broker.request(client, service, join([b"body"]), b"ref", 0.0, options_of(False, b"", b"", near))
    assert request is not None
    world.check()
    return request


def test_a_key_stays_with_its_worker(world: World) -> None:
    workers = [Runner(world) for _ in range(3)]
    for _ in range(3):
        for key in (b"a", b"b"):
            ask(world, key)
            [holder] = [worker for worker in workers if worker.jobs]
            holder.answer(b"done")
    # Without affinity, each of the three would have served both keys.
    table = world.broker.affinity
    service = world.broker.services[b"echo"]
    assert table.worker_of(service, b"a") is workers[0].me and table.worker_of(service, b"b") is workers[1].me
    assert workers[2].me.done == 0
    assert len(table) == 2 and world.broker.memory.by_kind()[AFFINITY] > 2 * COST_NEAR


def test_it_goes_to_another_worker_at_once_if_its_own_is_busy(world: World) -> None:
    first, second = Runner(world), Runner(world)
    ask(world, b"a")
    assert len(first.jobs) == 1
    ask(world, b"a")
    assert len(second.jobs) == 1
    first.answer(b"done")
    second.answer(b"done")
    ask(world, b"a")  # the one that served it last, although the other one was idle for longer
    assert second.jobs and not first.jobs


def test_a_worker_that_only_prefetches_is_not_preferred_to_one_that_can_start_it(world: World) -> None:
    first = Runner(world, window=3, runs=1)
    ask(world, b"a")
    second = Runner(world, window=3, runs=1)
    ask(world, b"a")
    assert (len(first.jobs), len(second.jobs)) == (1, 1)
    ask(world, b"b")  # both can only prefetch: the least recently used
    assert (len(first.jobs), len(second.jobs)) == (2, 1)
    ask(world, b"b")  # the one that has the key
    assert (len(first.jobs), len(second.jobs)) == (3, 1)


def test_a_worker_with_room_is_preferred_to_an_idle_one(world: World) -> None:
    first, second = Runner(world, window=4, runs=4), Runner(world, window=4, runs=4)
    for _ in range(4):
        ask(world, b"a")
    assert (len(first.jobs), len(second.jobs)) == (4, 0)
    ask(world, b"a")
    assert (len(first.jobs), len(second.jobs)) == (4, 1)


def test_a_lost_worker_is_forgotten(world: World) -> None:
    first, second = Runner(world), Runner(world)
    ask(world, b"a")
    first.close()  # its request is requeued, and the other one has it now
    assert len(second.jobs) == 1
    second.answer(b"done")
    service = world.broker.services[b"echo"]
    assert world.broker.affinity.worker_of(service, b"a") is second.me
    second.close()
    assert world.broker.affinity.worker_of(service, b"a") is None
    third = Runner(world)
    ask(world, b"a")
    assert third.jobs


def test_a_key_counts_for_one_service(world: World) -> None:
    first = Runner(world)
    ask(world, b"a")
    first.answer(b"done")
    assert world.broker.affinity.worker_of(Service(b"other"), b"a") is None


def test_the_table_is_bounded() -> None:
    world = World()
    table, service, worker = Affinity(most=3), Service(b"s"), Runner(world).me
    for key in (b"a", b"b", b"c", b"a", b"d"):
        table.served(service, key, worker)
    known = [key for key in (b"a", b"b", b"c", b"d") if table.worker_of(service, key)]
    assert known == [b"a", b"c", b"d"]  # the longest unused was forgotten
    assert table.memory() == 3 * COST_NEAR + 3 * len(b"s\0a")
    table.left(worker)
    assert table.worker_of(service, b"a") is None
