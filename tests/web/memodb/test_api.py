"""MemoDB's REST API: the examples of its document, content negotiation, and calls that workers of other protocols evaluate."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import cbor2
import httpx
import pytest

import polydomo
from polydomo import testing
from tests.plain_http import http_client

WAIT = 60.0


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        yield broker


@pytest.fixture
def http(broker: testing.Broker) -> Iterator[httpx.Client]:
    with http_client(broker.url, timeout=WAIT) as client:
        yield client


def put(http: httpx.Client, node: object) -> str:
    response = http.post("/cid", json=node)
    assert response.status_code == 201
    return str(response.headers["location"].removeprefix("/cid/"))


LONG = "x" * 100


# --- the document -----------------------------------------------------------------------------------------------------------


def test_examples_of_the_document(http: httpx.Client) -> None:
    assert http.get("/cid/uAXEABYIYfBiF").json() == [124, 133]
    assert http.get("/cid/uAXEACdgqRgABcQABAg?depth=0").text == '{"cid":"uAXEAAQI"}'
    assert http.get("/cid/uAXEACdgqRgABcQABAg?depth=1").text == '{"node":2}'
    cid = put(http, {"map": {"key": LONG}})
    assert http.get(f"/cid/{cid}").json() == {"map": {"key": LONG}}
    assert http.get("/head").json() == []
    assert http.put("/head/a/b", json={"cid": cid}).status_code == 201
    assert http.get("/head/a%2Fb").json() == {"cid": cid}
    assert http.get("/head").json() == ["/head/a/b"]
    assert http.get("/call").json() == []
    assert http.put("/call/add/uAXEAAQI,uAXEAAQI", json={"cid": "uAXEAAQQ"}).status_code == 201
    assert http.get("/call/add/uAXEAAQI,uAXEAAQI").json() == {"cid": "uAXEAAQQ"}
    assert http.get("/call").json() == ["/call/add"]
    assert http.get("/call/add").json() == ["/call/add/uAXEAAQI,uAXEAAQI"]
    assert http.post("/call/add/uAXEAAQI,uAXEAAQI/evaluate").json() == {"cid": "uAXEAAQQ"}
    assert http.delete("/call/add").status_code == 204
    assert http.get("/call/add/uAXEAAQI,uAXEAAQI").status_code == 404


def test_a_cid_in_every_multibase(http: httpx.Client) -> None:
    for cid in (
        "f0171000102",
        "F0171000102",
        "bafyqaaic",
        "BAFYQAAIC",
        "mAXEAAQI",
        "MAXEAAQI=",
        "uAXEAAQI",
        "UAXEAAQI=",
    ):
        assert http.get(f"/cid/{cid}").json() == 2


def test_content_negotiation(http: httpx.Client) -> None:
    cid = put(http, {"base64": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJyg="})
    raw = bytes(range(41))
    for accept, kind, content in (
        ("", "application/json", None),
        ("application/octet-stream, application/cbor;q=0.9, application/problem+json", "application/octet-stream", raw),
        ("application/cbor", "application/cbor", cbor2.dumps(raw)),
        ("text/html", "text/html; charset=utf-8", None),
    ):
        response = http.get(f"/cid/{cid}", headers={"accept": accept})
        assert (response.status_code, response.headers["content-type"]) == (200, kind)
        assert content is None or response.content == content
    assert http.get("/cid/uAXEAAQI", headers={"accept": "application/octet-stream"}).status_code == 406
    for kind, body in (("application/octet-stream", raw), ("application/cbor", cbor2.dumps(raw))):
        response = http.post("/cid", content=body, headers={"content-type": kind})
        assert response.headers["location"] == f"/cid/{cid}"
    assert http.post("/cid", content=b"x", headers={"content-type": "image/png"}).status_code == 415


def test_a_page_shows_a_node_and_runs_nothing_of_it(http: httpx.Client) -> None:
    cid = put(http, "<script>alert(1)</script>" + LONG)
    page = http.get(f"/cid/{cid}", headers={"accept": "text/html"})
    assert "<script>" not in page.text and "&lt;script&gt;" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_caching(http: httpx.Client) -> None:
    cid = put(http, LONG)
    response = http.get(f"/cid/{cid}")
    assert "immutable" in response.headers["cache-control"]
    again = http.get(f"/cid/{cid}", headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    http.put("/head/h", json={"cid": cid})
    tag = http.get("/head/h").headers["etag"]
    assert http.get("/head/h", headers={"if-none-match": f'"x", W/{tag}'}).status_code == 304
    http.put("/head/h", json={"cid": "uAXEAAQI"})
    assert http.get("/head/h", headers={"if-none-match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "type_"),
    [
        ("GET", "/cid/nonsense", None, 400, "/problems/invalid-or-unsupported-cid"),
        ("GET", "/cid/f0155a0e40220" + "00" * 32, None, 404, "urn:polydomo:not-found"),
        ("GET", "/cid/uAXEAAf8", None, 404, "urn:polydomo:not-found"),
        ("POST", "/cid", b"{", 400, "urn:polydomo:bad-request"),
        ("POST", "/cid", b"1.5", 400, "urn:polydomo:bad-request"),
        ("GET", "/cid", None, 405, "urn:polydomo:method-not-allowed"),
        ("PUT", "/head/x", b"2", 400, "/problems/expected-cid"),
        ("PUT", "/head/", b'{"cid":"uAXEAAQI"}', 405, "urn:polydomo:method-not-allowed"),
        ("GET", "/head/x", None, 404, "urn:polydomo:not-found"),
        ("PUT", "/call/f/uAXEAAQI", b"null", 400, "/problems/expected-cid"),
        ("GET", "/call/f/x,y", None, 400, "/problems/invalid-or-unsupported-cid"),
        ("POST", "/call/f/uAXEAAQI/other", None, 404, "urn:polydomo:not-found"),
        ("POST", "/call/f/uAXEAAQI/evaluate", b"3", 400, "urn:polydomo:bad-request"),
        ("POST", "/worker", b"2", 400, "/problems/expected-cid"),
        ("POST", "/worker", b'{"cid":"uAXEAAQI"}', 400, "/problems/invalid-worker-info"),
    ],
)
def test_errors(http: httpx.Client, method: str, path: str, body: bytes | None, status: int, type_: str) -> None:
    response = http.request(method, path, content=body)
    assert (response.status_code, response.json()["type"]) == (status, type_)


@pytest.mark.parametrize(
    "body", [b'{"a": 1, "b": 2}', b'{"a": 1}', b"{}", b'[{"map": {"x": {"y": 2}}}]', b'{"map": [1]}']
)
def test_json_that_is_no_node_gets_an_error_that_shows_how_a_map_is_written(http: httpx.Client, body: bytes) -> None:
    response = http.post("/cid", content=body)
    assert response.status_code == 400
    assert '{"map": {"key": 1}}' in response.json()["detail"]
    shown = json.loads('{"map": {"key": 1}}')
    assert http.post("/cid", json=shown).status_code == 201


# --- calls ---------------------------------------------------------------------------------------------------------------------


def evaluate(http: httpx.Client, path: str) -> Any:
    deadline = time.monotonic() + WAIT
    while (response := http.post(f"{path}/evaluate")).status_code == 202:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return response


def test_a_call_is_evaluated_once_by_an_mdp_worker(broker: testing.Broker, http: httpx.Client) -> None:
    runs: list[list[bytes]] = []
    worker = polydomo.Worker(broker.url, "mdp1")

    @worker.service("join")
    def join(call: polydomo.Call) -> bytes:
        runs.append(list(call))
        time.sleep(0.1)
        return b"-".join(call)

    args = ",".join([put(http, "text" + LONG), put(http, {"base64": "/w=="}), put(http, [1, {"map": {}}])])
    with worker:
        found: list[dict[str, str]] = []
        threads = [
            threading.Thread(target=lambda: found.append(evaluate(http, f"/call/join/{args}").json())) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert runs == [[b"text" + LONG.encode(), b"\xff", b'[1,{"map":{}}]']]
    assert len(found) == 5 and len({row["cid"] for row in found}) == 1
    result = http.get(f"/cid/{found[0]['cid']}", headers={"accept": "application/octet-stream"}).content
    assert result == b"text" + LONG.encode() + b"-\xff-" + b'[1,{"map":{}}]'
    assert evaluate(http, f"/call/join/{args}").json() == found[0]  # without a worker


def test_waiting_for_a_result_and_hearing_of_a_failure(broker: testing.Broker, http: httpx.Client) -> None:
    worker = polydomo.Worker(broker.url)
    worker.add("echo", lambda call: call.body)

    def fails(call: polydomo.Call) -> None:
        raise polydomo.CallFailed("no-luck", "not today")

    worker.add("fails", fails)
    with worker:
        response = http.post("/call/echo/uAXEAAQI/evaluate", headers={"prefer": "wait=60"})
        assert (response.status_code, response.json()) == (200, {"cid": "uAVUAATI"})
        response = http.post("/call/fails/uAXEAAQI/evaluate", headers={"prefer": "wait=60"})
        assert (response.status_code, response.json()["code"]) == (502, "no-luck")
        response = evaluate(http, "/call/fails/uAXEAAQI")
        assert (response.status_code, response.json()["detail"]) == (502, "not today")
    response = http.post("/call/nobody/uAXEAAQI/evaluate", headers={"prefer": "wait=0.1"})
    assert response.status_code == 202


def test_a_memodb_worker_serves_evaluations_and_other_clients(broker: testing.Broker, http: httpx.Client) -> None:
    info = put(http, {"map": {"funcs": ["double"]}})

    def work(times: int) -> None:
        with httpx.Client(base_url=http.base_url, timeout=WAIT) as worker:
            for _ in range(times):
                job = worker.post("/worker", json={"cid": info}).json()["map"]
                assert job["func"] == "double"
                (arg,) = (item["cid"] for item in job["args"])
                node = worker.get(f"/cid/{arg}").json()
                number = (
                    node
                    if isinstance(node, int)
                    else int(worker.get(f"/cid/{arg}", headers={"accept": "application/octet-stream"}).text)
                )
                result = put(worker, 2 * number)
                assert worker.put(f"/call/double/{arg}", json={"cid": result}).status_code == 201

    thread = threading.Thread(target=work, args=(2,))
    thread.start()
    found = evaluate(http, "/call/double/uAXEAAQI").json()
    assert http.get(f"/cid/{found['cid']}").json() == 4
    with polydomo.Client(broker.url, "mdp1", timeout=WAIT) as client:
        assert client.call("double", "21").text == "42"
    thread.join(WAIT)
    assert http.get("/call/double").json() and json.dumps(http.get("/v1/workers").json()).count("memodb") <= 1
