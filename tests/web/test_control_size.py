"""What the broker parses itself is limited to MAX_CONTROL bytes; payloads of calls are not."""

import json
from base64 import b64encode
from collections.abc import Iterator

import httpx
import pytest
from websockets.sync.client import connect

import polydomo
from polydomo import testing
from polydomo.limits import MAX_CONTROL
from polydomo.web.content import FRAMES_JSON
from tests.plain_http import http_client

WAIT = 60.0
LARGE = "ä" * MAX_CONTROL + '"\\ \n'
LISTS = b'{"a": [' + b"[]," * MAX_CONTROL + b"0]}"


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)

        @worker.service("echo")
        def echo(call: polydomo.Call) -> list[bytes]:
            return list(call)

        with worker:
            yield broker


@pytest.fixture
def http(broker: testing.Broker) -> Iterator[httpx.Client]:
    with http_client(broker.url, timeout=WAIT) as client:
        yield client


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/mcp", "/v1/session", "/v1/work/echo", "/worker"])
def test_control_messages_over_http(http: httpx.Client, path: str, chunked: bool) -> None:
    content = iter([LISTS]) if chunked else LISTS
    for _ in range(2):
        try:
            response = http.post(path, content=content, headers={"Content-Type": "application/json"})
        except httpx.WriteError:
            continue  # the broker has answered and closed before all was sent
        assert response.status_code == 413 and "MAX_CONTROL" in response.json()["detail"]
        if chunked:
            break


@pytest.mark.parametrize(
    "name", ["polydomo.schema", "polydomo.logs", "polydomo.pause", "polydomo.memo", "polydomo.topics"]
)
def test_built_in_services(broker: testing.Broker, name: str) -> None:
    with polydomo.Client(broker.url) as client:
        answer = client.call(name, LISTS).json()
    assert answer["error"] == "too-large" and "MAX_CONTROL" in answer["text"]


def test_the_header_of_a_job() -> None:
    with testing.broker(jobs=True) as broker, polydomo.Client(broker.url) as client:
        answer = json.loads(client.call("polydomo.submit", LISTS, b"x")[0])
        assert "MAX_CONTROL" in answer["text"]
        job = json.loads(client.call("polydomo.submit", b'{"service": "echo"}\n', LISTS)[0])
        assert job["state"], "its body may be large"


def test_large_frames_over_a_websocket(broker: testing.Broker) -> None:
    with connect(broker.url.replace("tcp", "ws") + "/v1/ws", max_size=None, open_timeout=60) as socket:
        assert json.loads(socket.recv())["op"] == "hello"
        binary = b"\xff" * MAX_CONTROL
        frames = [LARGE, {"base64": b64encode(binary).decode()}]
        socket.send(json.dumps({"op": "call", "id": 1, "service": "echo", "frames": frames}))
        socket.send('{"op": "ping"}')
        found = [json.loads(socket.recv(WAIT)) for _ in range(2)]
        assert {message["op"] for message in found} == {"final", "pong"}
        answer = next(message for message in found if message["op"] == "final")
        assert answer["id"] == 1 and answer["frames"] == frames
        socket.send(LISTS.decode())
        assert json.loads(socket.recv(WAIT))["op"] == "error"
        socket.send('{"op": "ping"}')
        assert json.loads(socket.recv(WAIT)) == {"op": "pong"}


def test_large_frames_in_a_call(http: httpx.Client) -> None:
    content = json.dumps({"frames": [LARGE, "b"]}).encode()
    response = http.post("/v1/call/echo", content=content, headers={"Content-Type": FRAMES_JSON, "Accept": FRAMES_JSON})
    assert response.json() == {"frames": [LARGE, "b"]}
    for wrong in (LISTS, content[:-1], content + b"x"):
        response = http.post("/v1/call/echo", content=wrong, headers={"Content-Type": FRAMES_JSON})
        assert response.status_code == 400, response.text


def test_a_large_node(http: httpx.Client) -> None:
    node = {"map": {"b": [LARGE, None], "a": 1}}
    response = http.post("/cid", json=node)
    assert response.status_code == 201
    assert http.get(response.headers["location"]).json() == node
    assert http.post("/cid", content=LISTS, headers={"Content-Type": "application/json"}).status_code == 400
    assert http.put("/head/x", content=b"[" + b"[]," * 2000 + b"0]").status_code == 413
