"""Limits of durable jobs: groups pass each other, limits are stored, and a new leader waits for a window."""

import json

from polydomo.broker.policy import Policy
from polydomo.model.jobs.messages import make_id
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.service_limits import LimitPatterns, ServiceLimits
from polydomo.stores.memory import MemoryBackend
from polydomo.wire.frames import join
from tests.broker.jobs.kept import keep_jobs
from tests.broker.jobs.machine import HeldStore
from tests.broker.rig import Peer, World

LIMITS = LimitPatterns(PatternMap({"echo": 2}), PatternMap({"echo": (3, 10.0)}), PatternMap({"echo": "group"}))


def leader(backend: MemoryBackend) -> tuple[World, HeldStore]:
    world = World(Policy(limits=LIMITS))
    return world, keep_jobs(world.broker, chosen(["echo"]), backend)


def submit(world: World, store: HeldStore, count: int, group: str) -> None:
    client = world.client()
    for _ in range(count):
        id = make_id(1.0, len(store.backend.tables.jobs).to_bytes(10, "big"))
        header = json.dumps({"service": "echo", "group": group, "id": id}).encode()
        client.core.request(client, b"polydomo.submit", join([header, b"x"]), b"")
        store.sync()
    turn(world, store)


def turn(world: World, store: HeldStore) -> None:
    for _ in range(3):
        world.broker.end_turn()
        store.sync()
    world.check()
    durable = world.broker.durable
    assert durable is not None
    durable.jobs.check()


def groups(worker: Peer) -> list[str]:
    return [request.options.group.decode() for request in worker.jobs]


def test_jobs_of_a_group_over_its_limit_let_others_pass() -> None:
    world, store = leader(MemoryBackend())
    worker = world.worker(silence=0.0, credit=100)
    submit(world, store, 200, "a")
    submit(world, store, 3, "b")
    assert groups(worker) == ["a", "a", "b", "b"]
    for _ in range(4):
        worker.answer()
        turn(world, store)
    assert sorted(groups(worker)) == ["a", "b"]  # three in ten seconds
    world.wait(10.2)
    turn(world, store)
    assert groups(worker).count("a") == 2
    for _ in range(700):
        while worker.jobs:
            worker.answer()
        world.wait(1.0)
        turn(world, store)
    assert {job.state for job in store.backend.tables.jobs.values()} == {"done"}


def test_a_raised_limit_frees_jobs_that_wait() -> None:
    world, store = leader(MemoryBackend())
    worker = world.worker(silence=0.0, credit=100)
    submit(world, store, 20, "a")
    assert len(worker.jobs) == 2
    world.broker.limiter.answer(b'{"service": "echo", "running": 7, "per": "group"}')
    turn(world, store)
    assert len(worker.jobs) == 7
    world.broker.limiter.answer(b'{"service": "e?ho", "running": 1}')
    world.broker.limiter.answer(b'{"service": "echo", "remove": true}')
    turn(world, store)
    assert len(worker.jobs) == 7
    backend = store.backend
    assert backend.tables.limits == {"e?ho": ServiceLimits(running=1)}


def test_a_new_leader_has_the_limits_and_waits_for_a_window() -> None:
    backend = MemoryBackend()
    world, store = leader(backend)
    worker = world.worker(silence=0.0, credit=100)
    world.broker.limiter.answer(b'{"service": "echo", "rate": "4/20s", "per": "service"}')
    submit(world, store, 6, "a")
    assert len(worker.jobs) == 4
    again, second = leader(backend)
    worker = again.worker(silence=0.0, credit=100)
    assert again.broker.limiter.live == {"echo": ServiceLimits(starts=4, window=20.0)}
    turn(again, second)
    again.wait(19.9)
    turn(again, second)
    assert not worker.jobs
    again.wait(0.4)
    turn(again, second)
    assert len(worker.jobs) == 4


def test_a_new_leader_starts_nothing_before_it_has_the_limits() -> None:
    """Jobs of the store wait, and a worker is there before this broker leads."""
    backend = MemoryBackend()
    world, store = leader(backend)
    world.worker(silence=0.0, credit=100)
    world.broker.limiter.answer(b'{"service": "echo", "running": 1, "rate": "4/20s"}')
    submit(world, store, 6, "a")
    again = World()  # its settings have no limits
    worker = again.worker(silence=0.0, credit=100)
    second = keep_jobs(again.broker, chosen(["echo"]), backend)
    turn(again, second)
    assert not worker.jobs
    again.wait(20.2)
    turn(again, second)
    assert len(worker.jobs) == 1


def test_a_leader_whose_lease_ran_out_while_it_stood_still_starts_no_job() -> None:
    world, store = leader(MemoryBackend())
    worker = world.worker(silence=0.0, credit=1)
    submit(world, store, 3, "a")
    assert len(worker.jobs) == 1
    store.lease = False
    worker.answer()  # the first thing that it reads
    turn(world, store)
    assert not worker.jobs
    store.lease = True
    durable = world.broker.durable
    assert durable is not None
    durable.suspend(False)  # the store's thread has renewed the lease
    turn(world, store)
    assert len(worker.jobs) == 1
    for _ in range(40):
        while worker.jobs:
            worker.answer()
        world.wait(1.0)
        turn(world, store)
    assert {(job.state, job.attempts) for job in store.backend.tables.jobs.values()} == {("done", 1)}
