"""A durable request whose client leaves before its outcome: the request ends, and its job goes on."""

from polydomo.model.name_patterns import chosen
from polydomo.stores.memory import MemoryBackend
from tests.broker.jobs.kept import keep_jobs
from tests.broker.rig import World


def test_the_request_ends_and_says_that_its_job_continues() -> None:
    world = World()
    store = keep_jobs(world.broker, chosen(["kept"]), MemoryBackend())
    client = world.client()
    request = client.ask(service=b"kept")
    assert request is not None
    store.sync()
    world.wait(1.0)
    client.close()
    assert world.notes.reasons[request.number] == "the client disconnected; a stored job continues"
    worker = world.worker(b"kept")
    store.sync()
    world.wait(1.0)
    assert len(worker.jobs) == 1
