"""Calls that are answered later, and calls that are repeated under a key."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

import polydomo
from polydomo import testing
from tests.plain_http import http_client

WAIT = 60.0


class Runs:
    count = 0


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="module")
def http(runs: Runs) -> Iterator[httpx.Client]:
    with testing.broker(jobs=True) as broker:
        worker = polydomo.Worker(broker.url, concurrency=2)
        gate = threading.Event()

        @worker.service("upper")
        def upper(call: polydomo.Call) -> str:
            runs.count += 1
            return call.text.upper()

        @worker.service("slow")
        def slow(call: polydomo.Call) -> str:
            runs.count += 1
            gate.wait(WAIT)
            return "done"

        @worker.service("broken")
        def broken(call: polydomo.Call) -> str:
            runs.count += 1
            raise polydomo.CallFailed("no-luck", "not today")

        with worker, http_client(broker.url, timeout=WAIT) as client:
            yield client
            gate.set()


def test_a_call_is_answered_later(http: httpx.Client) -> None:
    response = http.post(
        "/v1/call/upper", content="hello", headers={"prefer": "respond-async", "idempotency-key": "k1"}
    )
    assert response.status_code == 202 and response.headers["preference-applied"] == "respond-async"
    place = response.headers["location"]
    assert place == f"/v1/jobs/{response.json()['job']}"
    result = http.get(f"{place}/result?wait=60")
    assert (result.status_code, result.text) == (200, "HELLO")
    row = http.get(place).json()
    assert (row["service"], row["state"], row["key"]) == ("upper", "done", "k1")
    assert row["job"] in [job["job"] for job in http.get("/v1/jobs").json()]
    again = http.post("/v1/call/upper", content="hello", headers={"prefer": "respond-async", "idempotency-key": "k1"})
    assert again.json()["job"] == row["job"] and again.json()["repeated"]


def test_a_job_that_has_no_result_yet_is_cancelled(http: httpx.Client) -> None:
    place = http.post("/v1/call/nobody", content="x", headers={"prefer": "respond-async"}).headers["location"]
    assert http.get(f"{place}/result").status_code == 202
    assert http.delete(place).status_code == 200
    result = http.get(f"{place}/result?wait=60")
    assert (result.status_code, result.headers["content-type"]) == (410, "application/problem+json")
    assert http.get("/v1/dead").json() == [] and http.get("/v1/schedules").json() == []
    assert http.get("/v1/schedules/nightly").status_code == 404


def test_jobs_that_are_not_there(http: httpx.Client) -> None:
    assert http.get("/v1/jobs/00000000000000000000000000").status_code == 404
    assert http.get("/v1/jobs/nonsense").status_code in (400, 404, 503)
    assert http.get("/v1/jobs?limit=x").status_code == 400
    assert http.delete("/v1/jobs").status_code == 405
    with testing.broker() as broker:
        response = httpx.get(broker.url.replace("tcp", "http") + "/v1/jobs", timeout=WAIT)
        assert (response.status_code, response.json()["type"]) == (404, "urn:polydomo:no-store")


# --- Idempotency-Key ------------------------------------------------------------------------------------------------------------


def test_a_repeated_call_runs_once(http: httpx.Client, runs: Runs) -> None:
    before = runs.count
    key = {"idempotency-key": "same"}
    first = http.post("/v1/call/upper", content="a", headers=key)
    second = http.post("/v1/call/upper", content="a", headers=key)
    assert first.text == second.text == "A" and runs.count == before + 1
    assert first.headers["polydomo-request"] == second.headers["polydomo-request"]
    other = http.post("/v1/call/upper", content="b", headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:polydomo:key-reused")
    assert http.post("/v1/call/upper", content="a").text == "A" and runs.count == before + 2
    assert http.post("/v1/call/upper", content="a", headers={"idempotency-key": "x" * 256}).status_code == 400


def test_a_failure_of_the_worker_is_kept_and_a_missing_worker_is_not(http: httpx.Client, runs: Runs) -> None:
    before = runs.count
    key = {"idempotency-key": "failing"}
    for _ in range(2):
        response = http.post("/v1/call/broken", headers=key)
        assert (response.status_code, response.json()["code"]) == (502, "no-luck")
    assert runs.count == before + 1
    for _ in range(2):
        assert http.post("/v1/call/nobody", headers=key).status_code == 404


def test_a_repeat_while_the_first_runs_and_after_its_client_left(http: httpx.Client, runs: Runs) -> None:
    before = runs.count
    key = {"idempotency-key": "leaving"}
    deadline = time.monotonic() + WAIT
    with socket.create_connection((http.base_url.host, http.base_url.port or 0), WAIT) as impatient:
        impatient.sendall(
            b"POST /v1/call/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nIdempotency-Key: leaving\r\n\r\n"
        )
        while runs.count == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    while http.post("/v1/call/slow", headers={**key, "polydomo-timeout": "10ms"}).status_code != 504:
        assert time.monotonic() < deadline  # 409 until the broker has noticed that the client left
