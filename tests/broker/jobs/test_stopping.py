"""A broker that stops interrupts an attempt of a durable job: that uses up none of the job's attempts."""

from polydomo.model.name_patterns import chosen
from polydomo.stores.memory import MemoryBackend
from tests.broker.jobs.kept import keep_jobs
from tests.broker.net import Net
from tests.broker.rig import World


def test_a_job_that_runs_longer_than_the_grace_time_keeps_its_attempts() -> None:
    world = World()
    backend = MemoryBackend()
    store = keep_jobs(world.broker, chosen(["slow"]), backend)
    world.client().ask(service=b"slow")
    store.sync()
    worker = world.worker(b"slow", silence=1000)
    world.broker.end_turn()
    assert worker.jobs
    world.broker.drain()
    world.broker.shutdown()
    world.broker.end_turn()
    store.sync()
    (job,) = backend.tables.jobs.values()
    assert (job.attempts, job.state, job.story) == (0, "open", [])


def test_a_worker_that_stops_with_its_broker_uses_up_no_attempt() -> None:
    world = World()
    backend = MemoryBackend()
    store = keep_jobs(world.broker, chosen(["slow"]), backend)
    world.client().ask(service=b"slow")
    store.sync()
    worker = world.worker(b"slow", silence=1000)
    world.broker.end_turn()
    world.broker.drain()
    worker.link.lost()
    world.broker.end_turn()
    store.sync()
    (job,) = backend.tables.jobs.values()
    assert (job.attempts, job.state, job.story) == (0, "open", [])


def test_another_broker_that_stops_uses_up_no_attempt() -> None:
    net = Net()
    a, b = net.chain("a", "b")
    backend = MemoryBackend()
    store = keep_jobs(a.broker, chosen(["slow"]), backend)
    there = b.worker(b"slow")
    net.settle()
    a.peer().ask(b"slow")
    store.sync()
    net.settle()
    assert there.jobs
    b.broker.drain()
    b.broker.shutdown()
    net.settle()
    a.broker.end_turn()
    store.sync()
    (job,) = backend.tables.jobs.values()
    assert (job.attempts, job.state, job.story) == (0, "open", [])
    here = a.worker(b"slow")
    a.broker.end_turn()
    assert len(here.jobs) == 1
