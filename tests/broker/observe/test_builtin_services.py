"""What the broker answers itself: MMI, and polydomo's own names."""

import json

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.broker.requests import request_ids
from tests.broker.rig import Peer, World


@pytest.fixture
def world() -> World:
    return World()


def ask(peer: Peer, service: bytes, body: bytes = b"") -> bytes:
    peer.ask(body, service=service)
    ((answer,),) = peer.finals
    peer.finals.clear()
    return answer


def rows(peer: Peer, what: str) -> list[dict[str, object]]:
    found = json.loads(ask(peer, f"polydomo.{what}".encode()))
    assert isinstance(found, list)
    return found


def test_mmi_service_returns_whether_a_worker_is_registered(world: World) -> None:
    client = world.client()
    assert ask(client, b"mmi.service", b"echo") == b"404"
    client.ask(b"waiting")
    assert ask(client, b"mmi.service", b"echo") == b"404", "somebody asked for it, and nobody offers it"
    worker = world.worker()
    assert ask(client, b"mmi.service", b"echo") == b"200", "busy is there"
    worker.answer()
    client.finals.clear()
    assert ask(client, b"mmi.service", b"echo") == b"200"
    assert ask(client, b"mmi.service", b"ech") == b"404"
    assert ask(client, b"mmi.service") == b"404"
    worker.leave()
    assert ask(client, b"mmi.service", b"echo") == b"404"


@pytest.mark.parametrize("name", [b"mmi.", b"mmi.other", b"mmi.services", b"polydomo.", b"polydomo.other"])
def test_the_rest_is_not_implemented(world: World, name: bytes) -> None:
    assert ask(world.client(), name, b"x") == b"501"


def test_calls_of_builtin_services_are_not_counted_as_requests(world: World) -> None:
    client = world.client()
    request = client.core.request(client, b"mmi.service", b"", None)
    assert request is not None and request.outcome == "ok"
    assert client.requests == {} and world.broker.services == {} and world.notes.outcomes == []


def test_figures_of_a_broker_at_work(world: World) -> None:
    worker, idle, client, asker = world.worker(), world.worker(b"other", b"\xff"), world.client(), world.client()
    for i in range(3):
        client.ask(b"%d" % i)
    client.ask(service=b"nobody")
    world.wait(2.0)
    status = json.loads(ask(asker, b"polydomo.status"))
    assert status["connections"] == 4 and status["workers"] == 2 and status["services"] == 4
    assert status["open_requests"] == 4 and status["uptime_us"] == 2_000_000 and status["draining"] is False
    memory = status["memory"]
    assert memory.pop("limit_bytes") is None and memory.pop("total_bytes") == sum(memory.values()) > 0
    assert all(name.endswith("_bytes") for name in memory)
    services = {row["name"]: row for row in rows(asker, "services")}
    assert set(services) == {"echo", "other", "\\xff", "nobody"}
    assert services["echo"]["workers"] == 1 and services["echo"]["idle"] == 0 and services["echo"]["queued"] == 2
    assert services["echo"]["oldest_wait_us"] == 2_000_000 and services["echo"]["requests"] == 3
    assert services["other"]["idle"] == 1 and services["other"]["oldest_wait_us"] is None
    workers = {row["worker"]: row for row in rows(asker, "workers")}
    assert workers[f"w{worker.me.number}"]["held"] == 1 and workers[f"w{idle.me.number}"]["held"] == 0
    assert workers[f"w{idle.me.number}"]["services"] == ["other", "\\xff"]
    clients = {row["client"]: row for row in rows(asker, "clients")}
    assert clients[f"c{client.number}"]["open_requests"] == 4 and len(clients) == 2
    states = {
        request_ids.parse(str(row["request"])).number: (row["state"], row["why"]) for row in rows(asker, "requests")
    }
    assert states == {
        1: ("running", f"worker w{worker.me.number} has it"),
        2: ("queued", "its only worker is busy"),
        3: ("queued", "its only worker is busy"),
        4: ("queued", "no worker offers it"),
    }


def test_why_a_request_waits_again(world: World) -> None:
    first, second, client = world.worker(), world.worker(), world.client()
    for i in range(3):
        client.ask(b"%d" % i)
    assert rows(world.client(), "requests")[2]["why"] == "both workers are busy"
    first.close()
    assert rows(world.client(), "requests")[0]["why"] == "its only worker is busy; lost 1 times"
    assert second.bodies() == [b"1"]


def test_a_request_that_runs_after_its_client_disconnected_is_listed() -> None:
    world = World()
    worker, client, asker = world.worker(), world.client(), world.client()
    client.ask(body=b"long job")
    world.wait(3.0)
    client.close()
    (row,) = rows(asker, "requests")
    assert row["state"] == "abandoned" and row["worker"] == f"w{worker.me.number}" and row["state_us"] == 3_000_000
    assert row["why"] == "worker w1 still runs it, although it ended as cancelled: the client disconnected"
    assert row["request_bytes"] is None
    assert world.broker.open_requests == 0, "it has its outcome"
    worker.answer()
    assert rows(asker, "requests") == []


def test_a_request_that_runs_after_its_deadline_is_listed() -> None:
    world = World()
    worker, client, asker = world.worker(), world.client(), world.client()
    client.ask(deadline=world.now + 1.0)
    world.wait(1.5)
    (row,) = rows(asker, "requests")
    assert row["state"] == "abandoned" and str(row["why"]).startswith(
        "worker w1 still runs it, although it ended as timeout"
    )
    worker.close()
    assert rows(asker, "requests") == []


def test_a_list_of_requests_has_an_end() -> None:
    world = World(Policy(max_outstanding=10_000))
    client = world.client()
    for _ in range(limits.MAX_LISTED + 10):
        client.core.request(client, b"echo", b"", None)
    assert len(rows(world.client(), "requests")) == limits.MAX_LISTED


def test_the_window_follows_the_workers_and_never_passes_a_bound() -> None:
    world = World(Policy(max_outstanding=10, max_queue=5))
    client = world.client()
    assert ask(client, b"polydomo.window", b"echo") == b"1"
    world.worker()
    assert ask(client, b"polydomo.window", b"echo") == b"2"
    world.worker(credit=100)
    assert ask(client, b"polydomo.window", b"echo") == b"5"
    assert world.broker.window(client, b"echo") == 5
    for i in range(10):
        client.ask(b"%d" % i)
    assert ask(client, b"polydomo.window", b"echo") == b"0"


def test_services_of_other_protocols_are_in_the_catalogs_directory(world: World) -> None:
    world.worker(b"echo")
    world.worker(b"\xff")
    world.client().ask(service=b"only asked for")
    found = world.broker.directory.all()
    assert set(found) == {"echo"} and found["echo"]["protocol"] == "scripted"
    assert world.broker.directory.lookup("echo") == found["echo"] and world.broker.directory.lookup("other") is None


def test_workers_show_failures_and_how_long_requests_ran(world: World) -> None:
    worker, client, asker = world.worker(), world.client(), world.client()
    (row,) = rows(asker, "workers")
    assert (row["done"], row["failed"], row["mean_us"], row["max_us"]) == (0, 0, None, None)
    for seconds in (1.0, 3.0):
        client.ask()
        world.wait(seconds)
        worker.answer()
    client.ask()
    world.wait(2.0)
    worker.fail()
    (row,) = rows(asker, "workers")
    assert (row["done"], row["failed"], row["mean_us"], row["max_us"]) == (3, 1, 2_000_000, 3_000_000)


def test_live_requests_have_ids_of_one_form(world: World) -> None:
    client, asker = world.client(), world.client()
    request = client.ask(service=b"nobody")
    assert request is not None
    (row,) = rows(asker, "requests")
    known = request_ids.parse(str(row["request"]))
    assert known.number == request.number and known.run == request_ids.parse(world.broker.request_name(request)).run
    assert known.accepted_ms == int((world.broker.wall + request.accepted) * 1000)
