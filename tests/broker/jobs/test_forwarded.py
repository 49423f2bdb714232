"""An attempt of a durable job that its worker forwards to another service: it stays one attempt."""

import pytest

from polydomo.broker.policy import Policy
from polydomo.model.name_patterns import chosen
from polydomo.stores.memory import MemoryBackend
from polydomo.wire.frames import join
from tests.broker.jobs.kept import keep_jobs
from tests.broker.rig import Peer, World

SECOND = 5.0  # seconds, more than the backoff before the next attempt


@pytest.mark.parametrize("lost_before", [0, 1, 2])
def test_a_forwarded_attempt_is_dispatched_once(lost_before: int) -> None:
    world = World(Policy(attempts=3))
    store = keep_jobs(world.broker, chosen(["first"]), MemoryBackend())
    world.client().ask(service=b"first")

    def settle() -> None:
        store.sync()
        world.wait(SECOND)

    settle()
    for _ in range(lost_before):
        lost = world.worker(b"first", silence=1000)
        settle()
        assert lost.jobs
        lost.link.lost()
        settle()
    first = world.worker(b"first", silence=1000)
    settle()
    targets = [world.worker(b"last", silence=1000) for _ in range(2)]
    (request,) = first.jobs
    assert world.broker.forward(first.me, request.token, b"last", join([b"on"]), request.ref)
    holder: Peer = next(target for target in targets if target.jobs)
    other = next(target for target in targets if target is not holder)
    holder.link.lost()
    world.check()
    assert not other.jobs, "the job, not the request, decides about the next attempt"
    assert request.outcome == "gave-up"
