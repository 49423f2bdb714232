"""MemoDB with large Nodes, graphs and lists: answered in several turns, and within limits."""

import json
from collections.abc import Iterator

import httpx
import pytest

import polydomo
from polydomo import testing
from polydomo.limits import LISTED_AT_ONCE, MAX_MESSAGE, MIB, STEP_BYTES
from polydomo.web.memodb.pages import CBOR
from tests.plain_http import http_client
from tests.web.memodb.test_api import WAIT, put


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)

        @worker.service("sizes")
        def sizes(call: polydomo.Call) -> str:
            return json.dumps([len(frame) for frame in call])

        with worker:
            yield broker


@pytest.fixture
def http(broker: testing.Broker) -> Iterator[httpx.Client]:
    with http_client(broker.url, timeout=WAIT) as client:
        yield client


def octets(http: httpx.Client, content: bytes) -> str:
    response = http.post("/cid", content=content, headers={"Content-Type": "application/octet-stream"})
    return str(response.headers["location"].removeprefix("/cid/"))


def test_a_graph_that_doubles_is_refused_and_the_connection_stays_usable(http: httpx.Client) -> None:
    cid = put(http, ["bottom" * 100])
    for _ in range(18):
        cid = put(http, [{"cid": cid}, {"cid": cid}])
    response = http.get(f"/cid/{cid}?depth=20")
    assert response.status_code == 413 and "MAX_NODE_TEXT" in response.json()["detail"]
    assert http.get(f"/cid/{cid}?depth=2").status_code == 200


def test_depth_on_a_head(http: httpx.Client) -> None:
    cid = put(http, ["x" * 100])
    assert http.put("/head/deep", json={"cid": cid}).status_code == 201
    assert http.get("/head/deep?depth=1").json() == {"node": ["x" * 100]}
    assert http.get("/head/deep").json() == {"cid": cid}


def test_a_large_node_in_every_form(http: httpx.Client) -> None:
    node = {"map": {"a": ["x" * STEP_BYTES, {"base64": "AAAA" * STEP_BYTES}], "b": [[] for _ in range(5000)]}}
    path = http.post("/cid", json=node).headers["location"]
    response = http.get(path)
    assert response.json() == node
    assert http.get(path, headers={"If-None-Match": response.headers["etag"]}).status_code == 304
    cbor = http.get(path, headers={"Accept": CBOR}).content
    assert http.post("/cid", content=cbor, headers={"Content-Type": CBOR}).headers["location"] == path
    page = http.get(path, headers={"Accept": "text/html"})
    assert "to get all of it" in page.text and len(page.content) < 2 * MIB


def test_a_long_list_of_heads(http: httpx.Client) -> None:
    link = {"cid": put(http, "x")}
    names = [f"long/{number:04d}" for number in range(3 * LISTED_AT_ONCE + 1)]
    for name in names:
        assert http.put(f"/head/{name}", json=link).status_code == 201
    assert [uri for uri in http.get("/head").json() if "long" in uri] == [f"/head/{name}" for name in names]
    assert http.get("/head", headers={"Accept": CBOR}).content.count(b"/head/long/") == len(names)


def test_a_long_list_of_calls(http: httpx.Client) -> None:
    link = {"cid": put(http, 1)}
    wanted = set()
    for number in range(2 * LISTED_AT_ONCE + 1):
        cid = put(http, number)
        assert http.put(f"/call/listed/{cid}", json=link).status_code == 201
        wanted.add(f"/call/listed/{cid}")
    found = http.get("/call/listed").json()
    assert set(found) == wanted and len(found) == len(wanted)
    assert "/call/listed" in http.get("/call").json()


def evaluated(http: httpx.Client, args: "list[str]") -> httpx.Response:
    return http.post(f"/call/sizes/{','.join(args)}/evaluate", headers={"Prefer": "wait=60"})


def test_large_arguments_of_every_kind(http: httpx.Client) -> None:
    text, listed = "ü" * STEP_BYTES, ["y" * STEP_BYTES, 1]
    args = [octets(http, b"x" * MIB), put(http, text), put(http, listed), put(http, 5)]
    result = evaluated(http, [*args, args[0]]).json()["cid"]
    sizes = http.get(f"/cid/{result}", headers={"Accept": "application/octet-stream"}).json()
    json_size = len(json.dumps(listed, separators=(",", ":")))
    assert sizes == [MIB, len(text.encode()), json_size, 1, MIB]


def test_arguments_that_are_too_large_together(http: httpx.Client) -> None:
    cid = octets(http, b"x" * (4 * MIB))
    response = evaluated(http, [cid] * (MAX_MESSAGE // (4 * MIB) + 1))
    assert response.status_code == 422 and "limits.max_message" in response.json()["detail"]
    response = evaluated(http, ["uAXGg5AIgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])
    assert response.status_code == 422 and "not in the store" in response.json()["detail"]


def test_a_worker_info_that_is_too_large(http: httpx.Client) -> None:
    cid = put(http, {"map": {"funcs": ["f" * 100] * 5000}})
    response = http.post("/worker", json={"cid": cid})
    assert response.status_code == 400 and "MAX_CONTROL" in response.json()["detail"]


def test_a_result_for_a_client_of_another_protocol(broker: testing.Broker, http: httpx.Client) -> None:
    """A list of large byte strings is a reply with as many frames; any other large Node is refused."""
    info = {"cid": put(http, {"map": {"funcs": ["other"]}})}
    large = [{"base64": "AAAA" * STEP_BYTES}, {"base64": "AA=="}]
    for node, wanted in ((large, [3 * STEP_BYTES, 1]), ([[] for _ in range(STEP_BYTES)], None), ("x", [1])):
        with polydomo.Client(broker.url) as client:
            future = client.submit("other", b"argument")
            call = http.post("/worker", json=info).json()["map"]
            path = f"/call/other/{call['args'][0]['cid']}"
            assert http.put(path, json={"cid": put(http, node)}).status_code == 201
            if wanted is None:
                with pytest.raises(polydomo.CallFailed, match="at most"):
                    future.result(WAIT)
            else:
                assert [len(frame) for frame in future.result(WAIT)] == wanted
            assert http.delete("/call/other").status_code == 204
