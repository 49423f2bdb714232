"""Failed requests by reason: groups, their last example, and their bounds."""

import json
from typing import Any

from polydomo.broker.cluster import merging
from polydomo.broker.observe import inspection
from polydomo.broker.observe.error_groups import reason_of
from polydomo.limits import ERROR_EXAMPLE, ERROR_GROUPS
from polydomo.model.json_form import iso_time
from tests.broker.rig import START, Peer, World


def fail(client: Peer, worker: Peer, text: str) -> None:
    client.ask(service=next(iter(worker.me.services)).name)
    client.core.fail(worker.me, worker.jobs.pop(0).token, "failed", text)


def errors(world: World, **query: object) -> Any:
    return inspection.errors(world.broker.parts, json.dumps(query).encode())


def test_failures_with_the_same_reason_are_one_group_with_the_last_example() -> None:
    world = World()
    client, worker = world.client(), world.worker(b"order")
    fail(client, worker, "no such order: 17")
    world.wait(1.0)
    fail(client, worker, "no such order: 18")
    fail(client, worker, "no stock")
    first, second = errors(world, service="order")
    assert (first["outcome"], first["reason"], first["count"], first["example"]) == (
        "failed",
        "failed: no such order: #",
        2,
        "failed: no such order: 18",
    )
    assert (first["first"], first["last"]) == (iso_time(START), iso_time(START + 1))
    assert (first["worker"], first["client"], first["protocol"]) == ("w1", "c1", "scripted")
    assert len(first["request"]) == 26
    assert second["reason"] == "failed: no stock"
    assert errors(world, service="other") == []
    assert len(errors(world)) == 2


def test_what_varies_in_a_reason_is_replaced() -> None:
    assert reason_of("worker at 10.0.0.7:5246 said 0x7f3a") == "worker at # said #"
    assert reason_of("request 01M7F9Y9XBAXCJK5RP00000002 is gone") == "request # is gone"
    assert len(reason_of("x" * 10_000)) == 200


def test_groups_are_bounded_and_booked() -> None:
    world = World()
    table = world.broker.errors
    client, worker = world.client(), world.worker(b"many")
    for number in range(ERROR_GROUPS + 5):
        fail(client, worker, "reason " + "x" * number + "y" * 2 * ERROR_EXAMPLE)
        world.broker.now += 1
    assert len(table.of(b"many")) == table.count == ERROR_GROUPS
    assert all(len(group.example) <= ERROR_EXAMPLE for group in table.of(b"many"))
    assert world.broker.memory.by_kind()["errors"] == table.memory() > 0
    table.most = ERROR_GROUPS + 1
    for name in (b"a", b"b"):
        fail(client, world.worker(name), "oops")
    assert table.count == 2 and list(table.services) == [b"a", b"b"]  # the oldest service made room


def test_a_request_that_timed_out_in_the_queue_has_no_worker() -> None:
    world = World()
    world.client().ask(service=b"nobody", deadline=1.0)
    world.wait(2.0)
    (group,) = errors(world)
    assert (group["service"], group["outcome"], group["worker"]) == ("nobody", "timeout", None)


def test_groups_of_processes_are_added() -> None:
    rows = []
    for seconds in (5.0, 1.0):
        world = World()
        world.broker.now += seconds
        fail(world.client(), world.worker(b"s"), f"oops {seconds:.0f}")
        rows.append(json.dumps(errors(world)).encode())
    (group,) = json.loads(merging.merge(merging.errors, rows))
    assert (group["count"], group["example"]) == (2, "failed: oops 5")
    assert (group["first"], group["last"]) == (iso_time(START + 1), iso_time(START + 5))
