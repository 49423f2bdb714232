"""Flows over HTTP, with a real HTTP client."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import polydomo.testing
from polydomo import Call, Client, Permanent, Worker
from polydomo.testing import Broker
from tests.server.harness import wait_for


@pytest.fixture
def broker() -> Iterator[Broker]:
    with polydomo.testing.broker(jobs=True) as broker:
        worker = Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        worker.add("join", lambda call: b" ".join(call.frames))
        with worker:
            yield broker


def ask(broker: Broker, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    url = broker.url.replace("tcp://", "http://") + path
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urlopen(
            Request(url, data, {"Content-Type": "application/json", **headers}, method=method), timeout=60
        ) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if answer.headers["Content-Type"].startswith(
                "application/json"
            ) else text
    except HTTPError as error:
        return error.code, json.loads(error.read())


FLOW = {
    "name": "nightly",
    "node": [
        {"name": "words", "service": "upper", "map": ["a", "b"]},
        {"name": "all", "service": "join", "args": [{"node": "words"}, "!"]},
    ],
}


def test_a_flow_is_started_followed_and_removed(broker: Broker) -> None:
    status, row = ask(broker, "POST", "/v1/flows", FLOW, **{"Idempotency-Key": "k"})
    assert status == 201
    id = row["flow"]
    status, events = ask(broker, "GET", f"/v1/flows/{id}", Accept="text/event-stream")
    assert status == 200
    names = [line.removeprefix("event: ") for line in events.decode().splitlines() if line.startswith("event: ")]
    assert names == ["step", "step", "step", "end"]
    assert ask(broker, "POST", "/v1/flows", FLOW, **{"Idempotency-Key": "k"}) == (
        200,
        {"flow": id, "state": "done", "repeated": True},
    )
    status, row = ask(broker, "GET", f"/v1/flows/{id}?edges=true")
    assert (status, row["state"], row["needs"]) == (200, "done", [[0, 2], [1, 2]])
    assert [node["state"] for node in row["nodes"]] == ["done", "done", "done"]
    assert ask(broker, "GET", f"/v1/flows/{id}/result/all") == (200, b"A B !")
    status, rows = ask(broker, "GET", "/v1/flows")
    assert [found["flow"] for found in rows] == [id]
    assert ask(broker, "POST", f"/v1/flows/{id}/retry")[0] == 400
    assert ask(broker, "DELETE", f"/v1/flows/{id}")[0] == 200
    assert ask(broker, "GET", f"/v1/flows/{id}")[0] == 404
    other = {**FLOW, "node": FLOW["node"][:1]}
    ask(broker, "POST", "/v1/flows", FLOW, **{"Idempotency-Key": "x"})
    assert ask(broker, "POST", "/v1/flows", other, **{"Idempotency-Key": "x"})[0] == 422


def test_a_failed_flow_is_a_problem_until_it_is_retried_also_after_a_restart(broker: Broker) -> None:
    luck = threading.Event()

    def moody(call: Call) -> bytes:
        if not luck.is_set():
            raise Permanent("not today")
        return b""

    def problems() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(broker, "GET", "/v1/problems")[1]["problems"]
        return [row for row in found if row["kind"] in ("failed-flows", "dead-jobs")]

    worker = Worker(broker.url)
    worker.add("moody", moody)
    flow = {"name": "f", "node": [{"name": "n", "service": "moody"}, {"name": "m", "service": "upper", "after": ["n"]}]}
    with worker, Client(broker.url) as client:
        run = client.flow(ask(broker, "POST", "/v1/flows", flow)[1]["flow"])
        assert run.wait(60) == "failed"
        (row,) = problems()  # its dead node is part of it: it cannot be retried alone
        assert (row["text"], row["flow"], row["count"]) == ("the flow f failed", run.id, 1)
        assert row["cause"] == "1 node is dead, 1 skipped"
        broker.stop()
        broker.start()
        wait_for(lambda: [row["flow"] for row in problems()] == [run.id], "the flow after the restart")
        luck.set()
        run.retry()
        assert run.wait(60) == "done"
        assert problems() == []


def test_steps_with_open_have_the_nodes_that_run(broker: Broker) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(call: Call) -> bytes:
        begun.set()
        call.progress(0.25, "page 1 of 4")
        go_on.wait(60)
        return b""

    worker = Worker(broker.url, name="scanner")
    worker.add("slow", slow)
    flow = {"name": "f", "node": [{"name": "n", "service": "slow"}, {"name": "m", "service": "nobody"}]}
    with worker, Client(broker.url) as client:
        id = ask(broker, "POST", "/v1/flows", flow)[1]["flow"]

        def steps(**more: object) -> dict[str, Any]:
            body = json.dumps({"flow": id, "after": 0, **more})
            found: dict[str, Any] = client.call("polydomo.flow.steps", body).json()
            return found

        assert begun.wait(60)
        (row,) = steps(open=True)["open"]
        assert (row["number"], row["state"], row["attempts"]) == (0, "running", 0) and row["started"]
        while row["progress"] is None:
            time.sleep(0.01)
            (row,) = steps(open=True)["open"]
        assert row["progress"] == {"share": 0.25, "text": "page 1 of 4"}
        job = client.job(ask(broker, "GET", f"/v1/flows/{id}")[1]["nodes"][0]["job"])
        assert (job["flow"], job["worker"]) == (id, "scanner")
        go_on.set()
        client.flow(id).result("n")
        found = steps(open=True)
        assert (len(found["steps"]), found["open"]) == (1, [])
        assert "open" not in steps()


def test_a_flow_of_several_parts_is_cancelled_and_retried(broker: Broker) -> None:
    flow = {"name": "f", "node": [{"name": "n", "service": "nobody", "map": list(range(1100))}]}
    status, row = ask(broker, "POST", "/v1/flows", flow)
    assert status == 201
    path = f"/v1/flows/{row['flow']}"
    assert ask(broker, "POST", f"{path}/cancel")[0] == 200
    status, events = ask(broker, "GET", path, Accept="text/event-stream")
    assert events.count(b"event: step") == 1100
    assert ask(broker, "GET", path)[1]["state"] == "cancelled"
    assert ask(broker, "POST", f"{path}/retry")[1]["state"] == "retrying"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/flows", [1], 400),
        ("POST", "/v1/flows", {"node": [{"service": "x", "after": ["y"]}]}, 400),
        ("POST", "/v1/flows/nonsense/cancel", None, 400),
        ("POST", "/v1/flows/x/y", None, 404),
        ("GET", "/v1/flows/x/y", None, 404),
        ("GET", "/v1/flows/01KDVDNA000000000000000000", None, 404),
        ("DELETE", "/v1/flows", None, 405),
    ],
)
def test_what_cannot_be_done(broker: Broker, method: str, path: str, body: object, status: int) -> None:
    assert ask(broker, method, path, body)[0] == status


def test_openapi_has_the_paths(broker: Broker) -> None:
    assert "/v1/flows/{id}" in ask(broker, "GET", "/openapi.json")[1]["paths"]
