"""What counts as a problem, its cause, and when it is over. The test sets the clock."""

import json
from typing import Any

import pytest

from polydomo.broker.cluster import merging
from polydomo.broker.observe import problems
from polydomo.broker.observe.inspection import service_detail
from polydomo.broker.policy import Policy
from polydomo.limits import FAILING_LEAST, MAX_PROBLEMS, QUEUE_GROWN
from tests.broker.observe.history.test_history import serve, ticks
from tests.broker.rig import World


def found(world: World) -> list[dict[str, Any]]:
    answer: dict[str, list[dict[str, Any]]] = json.loads(json.dumps(problems.answer(world.broker.parts)))
    return answer["problems"]


def kinds(world: World) -> list[tuple[str, str, str]]:
    return [(row["kind"], row["severity"], row["service"]) for row in found(world)]


def test_a_broker_without_problems_lists_none() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    for _ in range(20):
        serve(client, worker)
    ticks(world, 15)
    assert found(world) == []


@pytest.mark.parametrize(("good", "bad", "severity"), [(5, 5, "error"), (50, 5, "warning")])
def test_a_service_that_fails_a_share_of_its_requests(good: int, bad: int, severity: str) -> None:
    world = World()
    client, worker = world.client(), world.worker()
    for number in range(good + bad):
        serve(client, worker, fails=number < bad)
    ticks(world, 11)
    (row,) = found(world)
    assert (row["kind"], row["severity"], row["service"]) == ("failing", severity, "echo")
    assert (row["count"], row["of"]) == (bad, good + bad)
    assert row["text"] == f"echo fails {100 * bad / (good + bad):.0f} % of its requests"
    assert row["cause"] == "oops: it went wrong"
    ticks(world, 320)
    assert found(world) == []


def test_services_that_fail_the_largest_share_come_first() -> None:
    rows = [
        {**problems.problem("failing", "warning", "", "", service, failed), "of": requests}
        for service, failed, requests in (("many", 200, 2000), ("often", 5, 25), ("seldom", 60, 900))
    ]
    merged: Any = problems.merged([{"time": "", "problems": rows}])
    assert [row["service"] for row in merged["problems"]] == ["often", "many", "seldom"]


def test_few_failures_are_no_problem() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    for _ in range(FAILING_LEAST - 1):
        serve(client, worker, fails=True)
    for _ in range(3):
        serve(client, worker)
    ticks(world, 11)
    assert found(world) == []


def test_requests_that_wait_for_a_service_without_workers() -> None:
    world = World()
    client = world.client()
    client.ask(service=b"nobody")
    (row,) = found(world)
    assert (row["kind"], row["severity"], row["service"], row["count"]) == ("no-workers", "error", "nobody", 1)
    assert row["cause"] == "no worker has offered it yet"
    worker = world.worker(b"nobody")
    assert found(world) == []
    worker.answer()
    worker.close()
    assert kinds(world) == [("no-workers", "warning", "nobody"), ("lost-workers", "warning", "nobody")]
    world.worker(b"nobody")
    assert kinds(world) == [("lost-workers", "warning", "nobody")]
    assert found(world)[0]["cause"].startswith("w1 at scripted: ")
    world.broker.now += 3601
    assert found(world) == []


def test_a_paused_and_a_drained_service() -> None:
    world = World()
    world.worker(b"one")
    world.worker(b"two")
    world.broker.control.answer(b"polydomo.pause", b'{"service": "one"}')
    world.broker.control.answer(b"polydomo.drain", b'{"service": "two"}')
    client = world.client()
    for _ in range(FAILING_LEAST):
        client.ask(service=b"two")  # rejected: not a second problem
    client.ask(service=b"one")
    ticks(world, 11)
    assert [(row["kind"], row["text"], row["count"], bool(row["since"])) for row in found(world)] == [
        ("paused", "one is paused: 1 request waits", 1, True),
        ("drained", "two is drained: new requests are rejected", 0, True),
    ]
    assert service_detail(world.broker.parts, b"one")["why"] == "the service is paused"
    world.broker.control.answer(b"polydomo.resume", b'{"service": "one"}')
    assert kinds(world) == [("drained", "warning", "two")]


def test_a_queue_that_grows() -> None:
    world = World(Policy(max_outstanding=10_000))
    client = world.client()
    world.worker()
    for _ in range(QUEUE_GROWN // 2):
        client.ask()
    ticks(world, 200)
    assert found(world) == []
    for _ in range(3 * QUEUE_GROWN):
        client.ask()
    ticks(world, 130)
    (row,) = found(world)
    assert (row["kind"], row["service"]) == ("queue-growing", "echo") and row["count"] > row["of"]
    assert row["cause"] == "its only worker is busy"
    ticks(world, 400)
    assert found(world) == []  # it is long, and grows no more


def test_clients_at_a_limit_memory_and_shutdown() -> None:
    world = World(Policy(max_outstanding=2, max_memory=1000))
    client = world.client()
    world.worker()
    for _ in range(3):
        client.ask()
    found_kinds = [row["kind"] for row in found(world)]
    assert "throttled" in found_kinds
    (memory,) = [row for row in found(world) if row["kind"] == "memory"]
    assert memory["severity"] == "error" and memory["of"] == 1000 < memory["count"]
    world.broker.drain()
    assert found(world)[-1]["kind"] == "stopping"


def test_problems_of_processes_are_joined() -> None:
    worlds = [World(), World()]
    for world in worlds:
        world.broker.process.count = 2
        world.client().ask(service=b"nobody")
    parts = [json.dumps(problems.answer(world.broker.parts)).encode() for world in worlds]
    merged = json.loads(merging.merge(problems.merged, parts))
    assert [(row["kind"], row["count"]) for row in merged["problems"]] == [("processes", 1), ("no-workers", 2)]
    assert merged["more"] == 0


def test_the_list_is_bounded() -> None:
    world = World()
    for number in range(MAX_PROBLEMS + 3):
        world.client().ask(service=b"s%d" % number)
    answer = problems.answer(world.broker.parts)
    assert len(json.loads(json.dumps(answer["problems"]))) == MAX_PROBLEMS and answer["more"] == 3


def test_the_detail_of_a_service() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    serve(client, worker, fails=True)
    ticks(world, 11)
    detail: Any = service_detail(world.broker.parts, b"echo")
    assert detail["service"]["name"] == "echo"
    assert (detail["service"]["recent_requests"], detail["service"]["recent_failed"]) == (1, 1)
    assert detail["limits"]["attempts"] == 3 and detail["limits"]["durable"] is False
    unknown: Any = service_detail(world.broker.parts, b"other")
    assert unknown["service"] is None and (unknown["why"], detail["why"]) == ("", "")
    client.ask()
    client.ask()
    waits: Any = service_detail(world.broker.parts, b"echo")
    assert waits["why"] == "its only worker is busy"
    merged = json.loads(merging.merge(merging.detail, [json.dumps(one).encode() for one in (detail, waits, unknown)]))
    assert merged["why"] == "its only worker is busy"
    both = json.loads(merging.merge(merging.detail, [json.dumps(unknown).encode(), json.dumps(detail).encode()]))
    assert both["service"]["name"] == "echo"
