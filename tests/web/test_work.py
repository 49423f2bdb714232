"""HTTP workers and WebSockets over real sockets, with clients of other protocols."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from socket import create_connection
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import polydomo
from polydomo import testing
from polydomo.limits import JSON_PIECE
from polydomo.web import work
from sim.replacing import set_limit
from tests.forms import replaces_core
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


class Calling(threading.Thread):
    """A call in the background."""

    def __init__(self, broker: testing.Broker, service: str, *body: str, protocol: str = "mdx") -> None:
        super().__init__()
        self.broker, self.service, self.body, self.protocol = broker, service, body, protocol
        self.parts: list[str] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with polydomo.Client(self.broker.url, self.protocol, timeout=WAIT) as client:
                for part in client.stream(self.service, *self.body):
                    self.parts.append("|".join(frame.decode() for frame in part))
        except Exception as error:
            self.error = error

    def result(self) -> list[str]:
        self.join(WAIT)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.parts


def until(condition: Any) -> Any:
    deadline = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


# --- long polls -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["mdp1", "mdx"])
def test_a_worker_takes_a_request_and_answers_it(broker: testing.Broker, http: httpx.Client, protocol: str) -> None:
    calling = Calling(broker, "upper", "hello", protocol=protocol)
    job = http.post("/v1/work/upper")
    assert (job.status_code, job.text, job.headers["polydomo-service"]) == (200, "hello", "upper")
    answer = http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}, content="HELLO")
    assert answer.status_code == 204
    assert calling.result() == ["HELLO"]
    again = http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}, content="HELLO")
    assert again.status_code == 409 and "no longer waits" in again.json()["detail"]


def test_one_worker_polls_again_and_answers_with_next(broker: testing.Broker, http: httpx.Client) -> None:
    first = http.post("/v1/work/double?wait=10ms")
    assert first.status_code == 204
    worker = {"polydomo-worker": first.headers["polydomo-worker"]}
    calls = [Calling(broker, "double", str(number)) for number in range(3)]
    broker.wait_until(lambda server: server.broker.open_requests == 3)
    job = http.post("/v1/work/double", headers=worker)
    for _ in range(3):
        assert job.headers["polydomo-worker"] == worker["polydomo-worker"]
        reply = {"polydomo-token": job.headers["polydomo-token"]}
        job = http.post("/v1/reply?next&wait=50ms", headers=reply, content=str(2 * int(job.text)))
    assert job.status_code == 204
    assert [call.result() for call in calls] == [["0"], ["2"], ["4"]]
    (row,) = http.get("/v1/workers").json()
    assert (row["protocol"], row["services"]) == ("http", ["double"])


def test_partials_failures_and_frames(broker: testing.Broker, http: httpx.Client) -> None:
    calling = Calling(broker, "s", "a", "b")
    job = http.post("/v1/work/s", headers={"accept": "application/json"})
    assert job.json() == {"frames": ["a", "b"]}
    token = {"polydomo-token": job.headers["polydomo-token"]}
    assert http.post("/v1/reply?partial", headers=token, content="one").status_code == 204
    assert http.post("/v1/reply?heartbeat", headers=token).status_code == 204
    assert http.post("/v1/reply?failure=no-luck", headers=token, content="not today").status_code == 204
    with pytest.raises(polydomo.CallFailed, match="not today") as caught:
        calling.result()
    assert caught.value.code == "no-luck" and calling.parts == ["one"]


def test_a_lease_that_ends_gives_the_request_to_another_worker(broker: testing.Broker, http: httpx.Client) -> None:
    calling = Calling(broker, "s", "x")
    job = http.post("/v1/work/s?lease=1")
    assert job.text == "x"
    other = http.post("/v1/work/s")
    assert other.text == "x" and other.headers["polydomo-token"] != job.headers["polydomo-token"]
    assert http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}).status_code == 409
    http.post("/v1/reply", headers={"polydomo-token": other.headers["polydomo-token"]}, content="saved")
    assert calling.result() == ["saved"]


@pytest.mark.parametrize("how", ["", "?heartbeat", "?partial", "?failure=no"])
def test_a_worker_hears_of_a_cancelled_request_when_it_says_something(
    broker: testing.Broker, http: httpx.Client, how: str
) -> None:
    with polydomo.Client(broker.url, timeout=WAIT) as client:
        call = client.submit("s", "x")
        job = http.post("/v1/work/s")
        assert job.text == "x" and 0 < float(job.headers["polydomo-timeout"]) <= WAIT
        assert call.cancel()
        broker.wait_until(lambda server: not server.broker.open_requests)
        token = {"polydomo-token": job.headers["polydomo-token"]}
        answer = http.post(f"/v1/reply{how}", headers=token, content="late")
        assert (answer.status_code, answer.json()["type"]) == (410, "urn:polydomo:cancelled")
        assert "cancelled by the client" in answer.json()["detail"]
        assert http.post("/v1/reply", headers=token, content="later").status_code == 409
        again = client.submit("s", "y")  # the same worker is free
        job = http.post("/v1/work/s", headers={"polydomo-worker": job.headers["polydomo-worker"]})
        assert job.text == "y"
        assert http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}).status_code == 204
        assert again.result().text == ""


def test_a_late_reply_that_asks_for_the_next_request_gets_it(broker: testing.Broker, http: httpx.Client) -> None:
    with polydomo.Client(broker.url, timeout=WAIT) as client:
        call = client.submit("s", "x")
        job = http.post("/v1/work/s")
        assert call.cancel()
        broker.wait_until(lambda server: not server.broker.open_requests)
        again = client.submit("s", "y")
        job = http.post("/v1/reply?next", headers={"polydomo-token": job.headers["polydomo-token"]}, content="late")
        assert job.text == "y"
        http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}, content="Y")
        assert again.result().text == "Y"


def test_a_poll_whose_connection_breaks_gets_nothing(broker: testing.Broker, http: httpx.Client) -> None:
    with create_connection((http.base_url.host, http.base_url.port or 0), WAIT) as other:
        other.sendall(b"POST /v1/work/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        until(lambda: [row["idle"] for row in http.get("/v1/services").json()] == [1])
    until(lambda: http.get("/v1/services").json()[0]["idle"] == 0)
    calling = Calling(broker, "s", "x")
    job = http.post("/v1/work/s")
    assert job.text == "x"
    http.post("/v1/reply", headers={"polydomo-token": job.headers["polydomo-token"]}, content="y")
    assert calling.result() == ["y"]


@replaces_core
def test_a_worker_that_stops_asking_is_removed(http: httpx.Client, stack: contextlib.ExitStack) -> None:
    set_limit(stack, "HTTP_WORKER_IDLE", 0.1, work)
    assert http.post("/v1/work/s?wait=1ms").status_code == 204
    until(lambda: not http.get("/v1/workers").json())


def test_invalid_requests_of_a_worker(http: httpx.Client) -> None:
    assert http.post("/v1/work/").status_code == 404
    assert http.post("/v1/work/mmi.x").status_code == 503
    assert http.post("/v1/work/s?wait=x").status_code == 400
    assert http.post("/v1/reply").status_code == 400
    assert http.post("/v1/reply", headers={"polydomo-token": "000000001001"}).status_code == 409


def test_an_open_poll_ends_when_the_broker_stops(broker: testing.Broker, http: httpx.Client) -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(http.post("/v1/work/s").status_code))
    thread.start()
    with httpx.Client(base_url=http.base_url, timeout=WAIT) as other:
        until(lambda: other.get("/v1/workers").json())
    broker.stop()
    thread.join(WAIT)
    assert found == [204]


# --- WebSocket --------------------------------------------------------------------------------------------------------------------


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        assert self.hear()["op"] == "hello"

    def say(self, **message: object) -> None:
        self.connection.send(json.dumps(message))

    def hear(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(WAIT))
        return found


@contextlib.contextmanager
def opened(broker: testing.Broker) -> Iterator[Socket]:
    with connect(broker.url.replace("tcp", "ws") + "/v1/ws", compression=None, open_timeout=60) as connection:
        yield Socket(connection)


def test_large_messages_are_sent_in_fragments(broker: testing.Broker) -> None:
    """The request to a worker over a WebSocket, and the reply to a client over another one."""
    text = '"\u20ac' * JSON_PIECE
    with connect(
        broker.url.replace("tcp", "ws") + "/v1/ws", compression=None, max_size=None, open_timeout=60
    ) as working:
        worker = Socket(working)
        worker.say(op="work", service="large")
        broker.wait_for("large")
        with connect(
            broker.url.replace("tcp", "ws") + "/v1/ws", compression=None, max_size=None, open_timeout=60
        ) as calling:
            client = Socket(calling)
            client.say(op="call", id=1, service="large", frames=[text, "short"])
            pieces = list(working.recv_streaming())
            job = json.loads("".join(map(str, pieces)))
            assert len(pieces) > 2 and job["frames"] == [text, "short"]
            worker.say(op="reply", token=job["token"], frames=["short", text])
            pieces = list(calling.recv_streaming())
            assert len(pieces) > 2 and json.loads("".join(map(str, pieces)))["frames"] == ["short", text]


def test_calls_over_a_websocket(broker: testing.Broker) -> None:
    worker = polydomo.Worker(broker.url)

    @worker.service("count")
    def count(call: polydomo.Call) -> Iterator[str]:
        yield from map(str, range(int(call.text)))

    with worker, opened(broker) as socket:
        socket.say(op="call", id=1, service="count", frames=["2"])
        assert [socket.hear() for _ in range(2)] == [
            {"op": "partial", "id": 1, "frames": [str(number)]} for number in range(2)
        ]
        final = socket.hear()
        assert (final["op"], final["frames"]) == ("final", []) and final["request"]
        socket.say(op="call", id="a", service="nobody", body="x")
        failure = socket.hear()
        assert (
            failure["op"] == "failure"
            and failure["id"] == "a"
            and failure["problem"]["type"] == "urn:polydomo:no-worker"
        )
        socket.say(op="call", id=2, service="polydomo.services")
        assert json.loads(socket.hear()["frames"][0])[0]["name"] == "count"


def test_a_call_is_cancelled(broker: testing.Broker, http: httpx.Client) -> None:
    with opened(broker) as socket:
        socket.say(op="call", id=1, service="later", wait=60)
        until(lambda: http.get("/v1/requests").json())
        socket.say(op="cancel", id=1)
        until(lambda: not http.get("/v1/requests").json())
        socket.say(op="call", id=1, service="later", wait=60, timeout=0.05)
        assert socket.hear()["problem"]["status"] == 504


def test_a_worker_over_a_websocket(broker: testing.Broker, http: httpx.Client) -> None:
    with opened(broker) as socket:
        socket.say(op="work", service="upper", credit=2)
        until(lambda: http.get("/v1/workers").json())
        calls = [Calling(broker, "upper", text) for text in ("a", "b")]
        jobs = [socket.hear() for _ in range(2)]
        assert sorted(job["frames"][0] for job in jobs) == ["a", "b"]
        for job in jobs:
            socket.say(op="reply", token=job["token"], frames=["part"], final=False)
            socket.say(op="reply", token=job["token"], frames=[job["frames"][0].upper()])
        assert sorted(call.result()[1] for call in calls) == ["A", "B"]
        third = Calling(broker, "upper", "c")
        socket.say(op="fail", token=socket.hear()["token"], code="no", text="never")
        with pytest.raises(polydomo.CallFailed, match="never"):
            third.result()
        fourth = Calling(broker, "upper", "d")
        assert socket.hear()["frames"] == ["d"]
        socket.say(op="leave")
        with opened(broker) as other:
            other.say(op="work", service="upper")
            other.say(op="reply", token=other.hear()["token"], frames=["saved"])
            assert fourth.result() == ["saved"]
        socket.say(op="reply", token="x", frames=[])
        assert socket.hear()["op"] == "error"


def test_a_websocket_worker_that_asks_for_it_is_told_of_a_cancellation(broker: testing.Broker) -> None:
    with opened(broker) as told, opened(broker) as untold, polydomo.Client(broker.url, timeout=WAIT) as client:
        told.say(op="work", service="told", cancel=True)
        untold.say(op="work", service="untold")
        broker.wait_for("told")
        broker.wait_for("untold")
        calls = {service: client.submit(service, "x") for service in ("told", "untold")}
        jobs = {"told": told.hear(), "untold": untold.hear()}
        assert 0 < jobs["told"]["timeout"] <= WAIT
        for call in calls.values():
            assert call.cancel()
        assert told.hear() == {"op": "cancel", "token": jobs["told"]["token"]}
        for name, socket in (("told", told), ("untold", untold)):
            socket.say(op="fail", token=jobs[name]["token"], code="stopped")  # dropped, and the worker is free
            again = client.submit(name, "again")
            job = socket.hear()
            assert (job["op"], job["frames"]) == ("job", ["again"])
            socket.say(op="reply", token=job["token"], frames=["done"])
            assert again.result().text == "done"


def test_subscriptions_get_last_values_first(broker: testing.Broker) -> None:
    with opened(broker) as one, opened(broker) as two:
        one.say(op="publish", topic="weather.oslo", frames=["-3"])
        one.say(op="ping")
        assert one.hear() == {"op": "pong"}
        two.say(op="subscribe", topic="weather.")
        assert two.hear() == {"op": "message", "topic": "weather.oslo", "frames": ["-3"]}
        one.say(op="publish", topic="weather.bergen", frames=["4", {"base64": "/w=="}])
        assert two.hear() == {"op": "message", "topic": "weather.bergen", "frames": ["4", {"base64": "/w=="}]}
        two.say(op="unsubscribe", topic="weather.")
        two.say(op="subscribe", topic="monitor.figures")
        assert "services" in json.loads(two.hear()["frames"][0])


@pytest.mark.parametrize(
    "message",
    [
        "nonsense", "[]", "{}", '{"op": "call"}', '{"op": "call", "id": true, "service": "x"}', '{"op": "call", "id": 1, "service": ""}',
        '{"op": "call", "id": 1, "service": "x", "frames": 1}', '{"op": "call", "id": 1, "service": "x", "timeout": "1"}',
        '{"op": "subscribe"}', '{"op": "work", "service": "x", "credit": 0}', '{"op": "work", "service": "mmi.x"}',
        '{"op": "reply", "token": "x"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_message_that_is_none_is_answered_with_an_error(broker: testing.Broker, message: str) -> None:
    with opened(broker) as socket:
        socket.connection.send(message)
        assert socket.hear()["op"] == "error"
        socket.say(op="ping")
        assert socket.hear() == {"op": "pong"}


def test_frame_abuse_closes_the_websocket_and_nothing_else(broker: testing.Broker, http: httpx.Client) -> None:
    with opened(broker) as socket:
        socket.connection.send(b"binary")
        with pytest.raises(ConnectionClosed) as caught:
            socket.hear()
    assert caught.value.rcvd is not None and caught.value.rcvd.code == 1003
    assert http.get("/v1/ws").status_code == 426
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "A" * 22 + "==",
    }
    assert http.get("/v1/ws", headers=headers | {"origin": "http://evil.example"}).status_code == 403


def test_the_javascript_module_is_served(http: httpx.Client) -> None:
    response = http.get("/v1/polydomo.js")
    assert (
        response.headers["content-type"].startswith("text/javascript")
        and "export async function connect" in response.text
    )
    assert "default-src 'none'" in response.headers["content-security-policy"]
    cached = http.get("/v1/polydomo.js", headers={"if-none-match": response.headers["etag"]})
    assert (cached.status_code, cached.content) == (304, b"")
    assert "connect(url?" in http.get("/v1/polydomo.d.ts").text
