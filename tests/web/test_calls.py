"""HTTP on the broker's port, over real sockets: calls, failures, streams, limits, slow senders and smuggled requests."""

import base64
import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import polydomo
from polydomo import limits, testing
from polydomo.web import session as http_session
from polydomo.web.content import FRAMES_JSON, request_body
from polydomo.wire.frames import split
from sim.replacing import set_limit
from tests.forms import replaces_core
from tests.plain_http import http_client

WAIT = 60.0


class Site:
    """A broker with a few services, and where it is."""

    def __init__(self, broker: testing.Broker) -> None:
        self.broker = broker
        self.url = broker.url.replace("tcp", "http")
        self.port = int(self.url.rpartition(":")[2])
        self.release = threading.Event()
        self.started = threading.Event()

    def raw(self, data: bytes) -> bytes:
        """Sends bytes and reads until the broker closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT) as sock:
            sock.sendall(data)
            return drain(sock)


def drain(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            found += data
    return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with testing.broker() as broker:
        site = Site(broker)
        worker = polydomo.Worker(broker.url, concurrency=2)
        old = polydomo.Worker(broker.url, "mdp1")

        @old.service("upper")
        def upper(call: polydomo.Call) -> str:
            return call.text.upper()

        @old.service("frames")
        def frames(call: polydomo.Call) -> list[bytes]:
            return [b"%d" % len(call), *call]

        @worker.service("count")
        def count(call: polydomo.Call) -> Iterator[str]:
            for number in range(int(call.text)):
                yield str(number)

        @worker.service("halfway")
        def halfway(call: polydomo.Call) -> Iterator[str]:
            yield "one"
            raise polydomo.CallFailed("broken", "it broke")

        @worker.service("broken")
        def broken(call: polydomo.Call) -> str:
            raise polydomo.CallFailed("no-luck", "not today")

        @worker.service("slow")
        def slow(call: polydomo.Call) -> str:
            site.started.set()
            site.release.wait(WAIT)
            return "done"

        with worker, old:
            yield site


@pytest.fixture
def http(site: Site) -> Iterator[httpx.Client]:
    with http_client(site.url, timeout=WAIT) as client:
        yield client


# --- calls ------------------------------------------------------------------------------------------------------------------


def test_a_call_with_curl_reaches_an_mdp_worker(site: Site) -> None:
    found = subprocess.run(
        ["curl", "-sS", "-d", "hello", f"{site.url}/v1/call/upper"], capture_output=True, timeout=WAIT
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"HELLO", b"")


def test_a_call_keeps_the_connection(http: httpx.Client) -> None:
    for _ in range(3):
        response = http.post("/v1/call/upper", content=b"x")
        assert (response.status_code, response.content) == (200, b"X")
        assert response.headers["content-type"] == "application/octet-stream" and response.headers["polydomo-request"]
        assert "connection" not in response.headers and "GMT" in response.headers["date"]


def test_bodies_are_chunked_or_large_or_empty(http: httpx.Client) -> None:
    body = b"abc" * 1_000_000
    assert http.post("/v1/call/upper", content=iter([body[:7], body[7:]])).content == body.upper()
    assert http.post("/v1/call/upper").content == b""


def test_frames_are_kept_apart_where_asked(http: httpx.Client) -> None:
    body = {"frames": ["a", {"base64": "/w=="}, ""]}
    headers = {"content-type": FRAMES_JSON, "accept": "application/json"}
    response = http.post("/v1/call/frames", content=json.dumps(body), headers=headers)
    assert response.json() == {"frames": ["3", "a", {"base64": "/w=="}, ""]}
    sent = b"--B\r\n\r\none\r\n--B\r\n\r\ntwo\r\n--B--"
    response = http.post(
        "/v1/call/frames",
        content=sent,
        headers={"content-type": "multipart/mixed; boundary=B", "accept": "multipart/mixed"},
    )
    assert split(request_body(response.headers["content-type"], response.content)) == [b"2", b"one", b"two"]


def test_each_field_of_a_form_is_a_frame(site: Site, tmp_path: Path) -> None:
    """``curl -F`` and HTML forms send multipart/form-data."""
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x00")
    fields = ["-F", "note=two words", "-F", f"photo=@{tmp_path / 'photo.png'}", "-H", "Accept: application/json"]
    found = subprocess.run(
        ["curl", "-sS", *fields, f"{site.url}/v1/call/frames"], capture_output=True, timeout=WAIT, check=True
    )
    image = {"base64": base64.b64encode(b"\x89PNG\r\n\x00").decode()}
    assert json.loads(found.stdout) == {"frames": ["2", "two words", image]}


def test_partials_are_joined_unless_asked_for(http: httpx.Client) -> None:
    assert http.post("/v1/call/count", content="3").content == b"012"
    events = http.post("/v1/call/count", content="2", headers={"accept": "text/event-stream"}).text
    assert events == (
        'event: partial\ndata: {"frames":["0"]}\n\nevent: partial\ndata: {"frames":["1"]}\n\nevent: final\ndata: {"frames":[]}\n\n'
    )
    lines = http.post("/v1/call/count", content="1", headers={"accept": "application/x-ndjson"}).text.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"event": "partial", "frames": ["0"]},
        {"event": "final", "frames": []},
    ]
    with http.stream("POST", "/v1/call/count", content="3", headers={"polydomo-stream": "chunked"}) as response:
        assert response.headers["transfer-encoding"] == "chunked" and b"".join(response.iter_raw()) == b"012"


def test_a_stream_that_fails_halfway(http: httpx.Client) -> None:
    events = http.post("/v1/call/halfway", headers={"accept": "application/x-ndjson"}).text.splitlines()
    assert json.loads(events[0])["event"] == "partial"
    last = json.loads(events[1])
    assert (last["event"], last["type"], last["code"]) == ("failure", "urn:polydomo:failed", "broken")
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("/v1/call/halfway", headers={"polydomo-stream": "chunked"})


# --- failures -----------------------------------------------------------------------------------------------------------------


def problem(response: httpx.Response, status: int, type_: str) -> dict[str, object]:
    assert response.status_code == status and response.headers["content-type"] == "application/problem+json"
    found: dict[str, object] = response.json()
    assert (found["type"], found["status"]) == (f"urn:polydomo:{type_}", status)
    return found


def test_failures_are_problems(http: httpx.Client, site: Site) -> None:
    found = problem(http.post("/v1/call/nobody"), 404, "no-worker")
    assert found["service"] == "nobody" and found["request"]
    assert problem(http.post("/v1/call/broken"), 502, "failed")["code"] == "no-luck"
    site.release.clear()
    problem(http.post("/v1/call/slow", headers={"polydomo-timeout": "50ms"}), 504, "timeout")
    site.release.set()
    problem(http.post("/v1/call/"), 404, "not-found")
    problem(http.post("/v1/call/" + "x" * 256), 404, "not-found")
    problem(http.post("/v1/call/upper", headers={"polydomo-timeout": "soon"}), 400, "bad-request")
    problem(http.post("/v1/call/upper", content="{", headers={"content-type": FRAMES_JSON}), 400, "bad-request")
    not_allowed = http.get("/v1/call/upper")
    problem(not_allowed, 405, "method-not-allowed")
    assert not_allowed.headers["allow"] == "POST, OPTIONS"
    problem(http.get("/nothing"), 404, "not-found")
    problem(http.get("/v1/call/%zz"), 400, "bad-request")


@pytest.mark.parametrize("key", [{}, {"idempotency-key": "k1"}], ids=["plain", "keyed"])
def test_a_timeout_says_that_the_service_is_paused(key: dict[str, str]) -> None:
    with testing.broker() as broker, http_client(broker.url, timeout=WAIT) as http:
        worker = polydomo.Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with worker:
            assert http.post("/v1/call/polydomo.pause", json={"service": "upper"}).json()["paused"]
            found = problem(http.post("/v1/call/upper", headers={"polydomo-timeout": "50ms", **key}), 504, "timeout")
            assert found["detail"] == "the deadline passed: the service is paused"
            assert not http.post("/v1/call/polydomo.resume", json={"service": "upper"}).json()["paused"]
            assert http.post("/v1/call/upper", content="hello").text == "HELLO"


def test_a_call_waits_for_a_worker_where_asked(http: httpx.Client, site: Site) -> None:
    late = polydomo.Worker(site.broker.url)
    late.add("late", lambda call: "there")

    def start() -> None:
        time.sleep(0.2)
        late.start()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        assert http.post("/v1/call/late", headers={"prefer": "wait=60"}).text == "there"
    finally:
        thread.join()
        late.stop()


def test_a_limit_is_503_with_retry_after() -> None:
    with testing.broker(settings={"limits.max_queue": 1}) as broker:
        site = Site(broker)
        with (
            http_client(site.url, timeout=WAIT) as http,
            socket.create_connection(("127.0.0.1", site.port)) as first,
        ):
            first.sendall(
                b"POST /v1/call/full HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\nContent-Length: 0\r\n\r\n"
            )
            deadline = time.monotonic() + WAIT
            while not http.get("/v1/requests").json():
                assert time.monotonic() < deadline
            response = http.post("/v1/call/full", headers={"prefer": "wait=60"})
            problem(response, 503, "refused")
            assert response.headers["retry-after"] == str(limits.HTTP_RETRY_AFTER)


def test_a_client_that_disconnects_cancels_its_request(site: Site, http: httpx.Client) -> None:
    site.release.clear()
    site.started.clear()
    with socket.create_connection(("127.0.0.1", site.port), WAIT) as sock:
        sock.sendall(b"POST /v1/call/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert site.started.wait(WAIT)
    deadline = time.monotonic() + WAIT
    while http.get("/v1/status").json()["open_requests"]:
        assert time.monotonic() < deadline
    site.release.set()


# --- inspection -----------------------------------------------------------------------------------------------------------------


def test_inspection_mirrors_the_reserved_services(http: httpx.Client, site: Site) -> None:
    with polydomo.Client(site.broker.url) as client:
        names = {row["name"] for row in client.call("polydomo.services").json()}
    assert {row["name"] for row in http.get("/v1/services").json()} == names >= {"upper", "count"}
    assert {row["protocol"] for row in http.get("/v1/workers").json()} == {"mdp1", "mdx"}
    assert any(row["protocol"] == "http" for row in http.get("/v1/clients").json())
    for page in ("status", "gone", "figures", "requests", "logs?count=1"):
        assert http.get(f"/v1/{page}").status_code == 200
    assert http.get("/v1/workers/x").status_code == 404


def test_metrics_and_health(http: httpx.Client) -> None:
    response = http.get("/metrics")
    assert (
        response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        and "polydomo_connections" in response.text
    )
    head = http.head("/metrics")
    assert head.content == b"" and int(head.headers["content-length"]) > 1000
    assert http.get("/healthz?full").text == "ok\n"
    options = http.options("/v1/call/upper")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, POST, OPTIONS")
    assert http.options("/healthz").headers["allow"] == "GET, HEAD, OPTIONS"


def test_expect_continue(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port), WAIT) as sock:
        sock.sendall(
            b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ab")
        assert drain(sock).endswith(b"AB")
    refused = site.raw(
        b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    )
    assert refused.startswith(b"HTTP/1.1 404") and b"100 Continue" not in refused


def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    one = b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n"
    last = one.replace(b"Content", b"Connection: close\r\nContent")
    found = site.raw(b"".join(one + b"a%02d" % number for number in range(50)) + last + b"end")
    bodies = [piece.partition(b"\r\n\r\n")[2] for piece in found.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [*(b"A%02d" % number for number in range(50)), b"END"]


def test_http_1_0(site: Site) -> None:
    found = site.raw(b"POST /v1/call/count HTTP/1.0\r\nContent-Length: 1\r\nAccept: text/event-stream\r\n\r\n1")
    assert (
        b"Connection: close" in found
        and b"chunked" not in found
        and found.endswith(b'event: final\ndata: {"frames":[]}\n\n')
    )


# --- attacks ---------------------------------------------------------------------------------------------------------------------


@replaces_core
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (
            b"POST /v1/call/upper HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled",
            400,
        ),
        (
            b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nxGET /smug",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (limits.MAX_HTTP_HEAD + 1), 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"GET nothing at all\r\n\r\n", 400),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (b"GET /healthz HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 0\r\n\r\n", 403),
    ],
)
def test_a_bad_request_is_answered_once_and_its_connection_closed(
    site: Site, http: httpx.Client, data: bytes, status: int, stack: contextlib.ExitStack
) -> None:
    set_limit(stack, "HTTP_LINGER", 0.1, http_session)
    found = site.raw(data)
    assert found.startswith(b"HTTP/1.1 %d " % status) and found.count(b"HTTP/1.1 %d " % status) == 1
    assert b"Connection: close" in found and b"application/problem+json" in found
    assert http.get("/healthz").status_code == 200


def test_pages_of_the_same_origin_and_of_listed_ones_are_served() -> None:
    settings = {"http.origins": ["https://lab.example"], "http.hosts": ["broker.example"]}
    with testing.broker(settings=settings) as broker, http_client(broker.url) as http:
        own = str(http.base_url).rstrip("/")
        assert http.get("/healthz", headers={"origin": own}).status_code == 200
        assert http.get("/healthz", headers={"host": "broker.example"}).status_code == 200
        response = http.get("/healthz", headers={"origin": "https://lab.example"})
        assert response.headers["access-control-allow-origin"] == "https://lab.example"
        preflight = {"origin": "https://lab.example", "access-control-request-method": "POST"}
        response = http.options("/v1/call/x", headers=preflight)
        assert response.status_code == 204 and "POST" in response.headers["access-control-allow-methods"]
        assert http.options("/v1/call/x", headers=preflight | {"origin": "https://evil.example"}).status_code == 403


@replaces_core
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: ",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
        b"POST /v1/call/upper HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_slow_senders_and_idle_connections_are_closed(sent: bytes, stack: contextlib.ExitStack) -> None:
    set_limit(stack, "HTTP_HEAD_TIME", 0.1, http_session)
    set_limit(stack, "HTTP_BODY_TIME", 0.1, http_session)
    set_limit(stack, "HTTP_IDLE_TIME", 0.1, http_session)
    with testing.broker() as broker:
        site = Site(broker)
        with socket.create_connection(("127.0.0.1", site.port), WAIT) as sock:
            sock.sendall(sent)
            found = drain(sock)
            if b"\r\n\r\nGET" in sent or b"abc" in sent:
                assert b"HTTP/1.1 408" in found
        stack.close()  # the usual times, of which a slow machine has need
        assert httpx.get(f"{site.url}/healthz", timeout=WAIT).status_code == 200
