"""A listener with a role takes only what belongs there, and refuses the rest as its protocol says."""

import pytest

from polydomo.model.listener_roles import ROLES, SHARED
from polydomo.protocols.ends import Dismissed, Failure
from tests.across.kinds import CLIENTS, WORKERS
from tests.across.world import Line, World

LISTENERS = [name for name, role in ROLES.items() if role is not SHARED]

REQUESTS = {("mdx.front", "mdx"), ("emqp.front", "emqp"), ("emqp.front", "emqp-document")}
REGISTRATIONS = {("mdx.back", "mdx"), ("emqp.back", "emqp"), ("dbp.listen", "dbp")}
WRONG_DOOR = {
    ("mdx.front", "mdx"),
    ("mdx.back", "mdx"),
    ("emqp.front", "emqp"),
    ("emqp.back", "emqp"),
    ("emqp.publish_in", "emqp"),
    ("emqp.back", "emqp-document"),
    ("emqp.publish_in", "emqp-document"),
}


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "http"])  # HTTP is served at the shared port only
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_request(listener: str, name: str) -> None:
    world = World()
    end = CLIENTS[name].end()
    line = Line(world, end, ROLES[listener])
    end.request(1, b"echo", [b"hello"])
    world.settle()
    assert world.broker.open_requests == ((listener, name) in REQUESTS)
    if (listener, name) in REQUESTS:
        assert line.open and line.messages == 0
    elif (listener, name) in WRONG_DOOR:
        # no word for it but MDX's; the connection stays, since a worker that asks by mistake has done nothing worse
        assert line.open
        observed = [Failure(1, "refused", f"the listener {listener} does not accept requests")]
        assert line.events == (observed if name == "mdx" else [])
    else:
        assert not line.open and line.messages == 0


@pytest.mark.parametrize("service", [b"mmi.service", b"polydomo.status"])
def test_the_brokers_own_services_are_requests_too(service: bytes) -> None:
    world = World()
    end = CLIENTS["mdx"].end()
    line = Line(world, end, ROLES["mdx.back"])
    end.request(1, service, [b"echo"])
    world.settle()
    assert line.events == [Failure(1, "refused", "the listener mdx.back does not accept requests")]


@pytest.mark.parametrize("name", [name for name in WORKERS if name != "http"])
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_registration(listener: str, name: str) -> None:
    world = World()
    end = WORKERS[name].end()
    end.open([b"echo"])
    line = Line(world, end, ROLES[listener])
    assert world.broker.has_worker(b"echo") == ((listener, name) in REGISTRATIONS)
    if (listener, name) in REGISTRATIONS:
        assert line.open
    elif (listener, name) in WRONG_DOOR:
        assert line.open
        assert [type(event) for event in line.events] == [Dismissed]
        world.wait(10.0)
        assert not line.open  # it did not leave by itself
    else:
        assert not line.open and line.messages == 0


def test_front_and_back_meet_in_one_broker() -> None:
    world = World()
    worker_end = WORKERS["mdx"].end()
    worker_end.open([b"echo"])
    worker = Line(world, worker_end, ROLES["mdx.back"])
    client_end = CLIENTS["mdx"].end()
    client = Line(world, client_end, ROLES["mdx.front"])
    client_end.request(1, b"echo", [b"hello"])
    world.settle()
    (job,) = worker.events
    worker_end.final(job, [b"hello"])  # type: ignore[arg-type]
    world.settle()
    assert client.messages == 1
