"""How long a busy worker may be silent: by protocol, and by the setting of each protocol."""

import pytest

from polydomo.model.tuning import LENIENT, STRICT
from tests.across.cases import IDLE_SILENCE, SERVICE
from tests.across.kinds import CLIENTS, WORKERS
from tests.across.world import BUSY_TIMEOUT, Client, Worker, World

KEYS = {"mdp1": "mdp", "rfc18": "mdp", "mdx": "mdx", "dcp": "dcp", "dagbox": "dcp", "emqp": "emqp"}


@pytest.mark.parametrize("busy", [STRICT, LENIENT])
@pytest.mark.parametrize("kind", KEYS)
def test_the_setting_of_the_protocol_decides(kind: str, busy: str) -> None:
    world = World()
    setattr(world.broker.tuning, f"{KEYS[kind]}_busy", busy)
    first, second = (Worker(world, WORKERS[kind].end) for _ in range(2))
    client = Client(world, CLIENTS["mdx"].end)
    client.ask(SERVICE, [b"precious"])
    first.take()
    first.line.frozen = True
    began = world.broker.now
    world.wait(BUSY_TIMEOUT + 5.0, lambda: not second.idle())
    assert second.take().body == [b"precious"]
    assert (world.broker.now - began <= IDLE_SILENCE + 1.0) == (busy == STRICT)


@pytest.mark.parametrize("kind", ["mdx", "dcp", "emqp"])
def test_a_busy_worker_that_sends_heartbeats_keeps_its_request(kind: str) -> None:
    world = World()
    first, second = (Worker(world, WORKERS[kind].end) for _ in range(2))
    client = Client(world, CLIENTS["mdx"].end)
    client.ask(SERVICE, [b"long"])
    job = first.take()
    world.wait(20 * BUSY_TIMEOUT)
    assert second.idle()
    first.final(job, [b"done"])
    assert client.wait_for_final() == [b"done"]
