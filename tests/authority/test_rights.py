"""Every way into the broker, tried as a principal without rights, as one that may call one service, and as one whose right was just
taken away. The table is ``rights.py``."""

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cbor2
import pytest
import zmq
from websockets.sync.client import connect

from polydomo.broker.builtin.service import ITSELF, PROCESSES
from polydomo.broker.guard.rules import RIGHTS
from polydomo.cli import loading
from polydomo.model.broker_api import BrokerApi
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.memo import messages
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings
from tests.authority import rights
from tests.authority.place import Place, Worker, denied_since, emqp, token, wait_for
from tests.cli.shell import COMMAND, POLYDOMO, environment

WHO = (
    "mallory",
    "bob",
    "loser",
)  # no right at all; `call` for one service; the right to everything here, until it was taken away
FLOW_ORDERS = (b"show", b"steps", b"result", b"cancel", b"retry", b"remove")
HEADERS = {"content-type": "application/octet-stream"}


class Tried(Place):
    """A broker with one worker that nobody here may call, and a job of alice."""

    secret: Worker
    job: str
    flow: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """``loser`` was an operator a moment ago. ``bob`` may call `open`."""
    with Tried(tmp_path_factory.mktemp("place"), 1, tls=True) as made:
        secret = Worker(made, "secret")
        wait_for(lambda: any(row["name"] == "secret" for row in made.ask("services")), "the worker")
        made.secret = secret
        made.job = (
            made.http("alice")
            .post("/v1/call/secret", content=b"of alice", headers={"prefer": "respond-async"})
            .json()["job"]
        )
        given = {"name": "of alice", "node": [{"service": "secret"}]}
        made.flow = made.http("alice").post("/v1/flows", json=given).json()["flow"]
        wait_for(lambda: len(made.ask("jobs", {})["jobs"]) == 2, "the job of the flow's node")
        made.rules = made.rules.replace('call = ["open", "default", "titanic.*", "memodb"]', 'call = ["open"]')
        old = 'who = ["loser"]\ncall = ["open", "titanic.*", "memodb"]\ninspect = true'
        made.change(old, 'who = ["loser"]\nadmin = true')
        assert made.http("loser").post("/v1/call/secret", content=b"while it may").status_code == 200
        made.change('who = ["loser"]\nadmin = true', 'who = ["loser"]\ncall = ["nothing"]')
        yield made
        secret.close()


def snapshot(place: Tried) -> Any:
    """What a principal without the right must not change."""
    return (
        sorted((row["name"], row["workers"]) for row in place.ask("services") if row["workers"]),
        place.ask("schedules", {})["schedules"],
        sorted(row["job"] for row in place.ask("jobs", {})["jobs"]),
        [row["topic"] for row in place.ask("topics")],
        [row["name"] for row in place.ask("catalog")],
        [row["state"] for row in place.ask("services")],
        len(place.secret.heard),
    )


# --- the table is complete ---------------------------------------


@pytest.mark.parametrize("key", rights.COMMANDS, ids=lambda key: str(key[0]))
def test_every_command_of_a_protocol_has_a_row(key: tuple[str, ...]) -> None:
    found = rights.commands_in(*key)
    assert found, "no commands were found: the module compares them in another way"
    assert found - {"command", "REQ"} <= set(rights.COMMANDS[key]), found - set(rights.COMMANDS[key])


def test_every_method_of_the_broker_has_a_row() -> None:
    methods = {name for name, value in vars(BrokerApi).items() if callable(value) and not name.startswith("_")}
    assert methods == set(rights.API)


def test_every_built_in_service_has_a_right() -> None:
    for service in rights.BUILTIN.values():
        for one in (service, service.variant):
            assert one is None or one.right in (*RIGHTS, ITSELF, PROCESSES), service.name


def test_every_endpoint_has_a_row() -> None:
    site = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"])).site
    found = {"/" + "/".join(path) for path in site.endpoints}
    assert {path for path in found if not path.startswith("/ui/")} == set(rights.HTTP)
    assert set(site.upgrades) == set(rights.UPGRADES) and not any(one.public for one in site.upgrades.values())
    for path, endpoint in site.endpoints.items():
        public = {right for *_, right in rights.HTTP.get("/" + "/".join(path), [("", "", b"", rights.PUBLIC)])}
        assert endpoint.public <= (public <= {rights.PUBLIC, rights.OWN}), path


def test_every_command_of_the_shell_has_a_row() -> None:
    assert set(loading.names()) == set(rights.CLI)


# --- and each row is enforced ---------------------------------------


@pytest.mark.parametrize("who", WHO)
def test_built_in_services(place: Tried, who: str) -> None:
    before = snapshot(place)
    client = place.http(who)
    bodies = {
        b"polydomo.submit": b'{"service":"secret"}\nx',
        b"polydomo.submit.many": b'{"jobs":[{"service":"open","sizes":[1]},{"service":"secret","sizes":[1]}]}\nxy',
        **{
            b"polydomo." + name: json.dumps({"job": place.job}).encode()
            for name in (b"job", b"result", b"cancel", b"stream")
        },
        b"polydomo.flow.start": b'{"name":"n","total":1,"services":["secret"]}',
        **{b"polydomo.flow." + name: json.dumps({"flow": place.flow}).encode() for name in FLOW_ORDERS},
        b"polydomo.schedule": b'{"name":"n","service":"secret","when":"every 1s"}\nx',
    }
    for name, service in rights.BUILTIN.items():
        right = service.right
        body = bodies.get(name, place.job.encode() if right == rights.CALL else b'{"service":"secret"}')
        answer = client.post(f"/v1/call/{name.decode()}", content=body, headers=HEADERS)
        if name == b"polydomo.schema":  # a worker describes its service
            assert answer.json()["denied"], answer.text
            assert client.post("/v1/call/polydomo.schema", headers=HEADERS).status_code == 403
        elif right != ITSELF:
            assert answer.status_code == 403, (name, right, answer.text)
        elif name == b"polydomo.abandon":
            assert answer.content == b"404"
        elif name == b"polydomo.flow.list":  # its own flows, of which it has none
            assert json.loads(answer.text)["flows"] == [], answer.text
        else:
            assert json.loads(answer.text)["error"] == "denied", (name, answer.text)
    assert {ITSELF, PROCESSES, rights.CALL} < {service.right for service in rights.BUILTIN.values()}
    assert snapshot(place) == before


@pytest.mark.parametrize("who", WHO)
def test_endpoints(place: Tried, who: str) -> None:
    before = snapshot(place)
    client = place.http(who)
    cid = place.http("alice").post(
        "/cid", content=b'{"map":{"funcs":["secret"]}}', headers={"content-type": "application/json"}
    )
    assert cid.status_code == 201
    link = json.dumps({"cid": cid.headers["location"].rpartition("/")[2]}).encode()
    for tries in rights.HTTP.values():
        for method, path, body, right in tries:
            path = path.replace(rights.JOB, place.job).replace(rights.FLOW, place.flow)
            kind = "application/json" if body[:1] == b"{" else "application/octet-stream"
            content = link if body == rights.LINK else body
            answer = client.request(method, path, content=content, headers={"content-type": kind})
            what = (who, method, path, answer.status_code, answer.text[:200])
            if right in (rights.PUBLIC,):
                assert answer.status_code < 400, what
            elif right == rights.FILTERED:
                assert answer.status_code == 200 and "of alice" not in answer.text, what
                assert "unknown tool" in answer.text or '"/v1/call/secret"' not in answer.text, what
            elif right == rights.OWN:
                assert 400 <= answer.status_code < 500, what
            else:
                assert answer.status_code == 403 or (method == "GET" and answer.status_code == 405), what
    stranger = place.http(who)
    del stranger.headers["authorization"]
    for tries in rights.HTTP.values():
        for method, path, body, right in tries:
            if right not in (rights.PUBLIC, rights.OWN):
                assert stranger.request(method, path, content=body).status_code == 401, path
    assert snapshot(place) == before


def commands(place: Tried, who: str) -> Iterator[tuple[str, Any]]:
    """Each command that needs a right, as a function that sends it."""

    def sends(*frames: bytes, extended: bool = False) -> Any:
        def send() -> Any:
            socket = place.socket(who)
            if extended:
                socket.disconnect(place.url)
                socket.setsockopt_string(zmq.METADATA, "X-Polydomo-Extensions:credit=1 cancel deadline key options")
                socket.connect(place.url)
            socket.send_multipart(list(frames))
            return socket

        return send

    yield "mdp1 request", sends(b"", b"MDPC01", b"secret", b"attack")
    yield "mdp1 READY", sends(b"", b"MDPW01", b"\x01", b"secret")
    yield "mdp2 REQUEST", sends(b"", b"MDPC02", b"\x01", b"secret", b"attack")
    yield "mdp2 READY", sends(b"", b"MDPW02", b"\x01", b"secret")
    yield "mdx REQUEST", sends(b"MDXC01", b"\x01", b"secret", b"id", b"attack")
    yield "mdx READY", sends(b"MDXW01", b"\x01", b"secret")
    yield "mdx WITHIN", sends(b"MDXC01", b"WITHIN", b"9000", b"secret", b"id", b"attack", extended=True)
    named = (b"group", b"g", b"", b"secret", b"id", b"attack")
    yield "mdx WITH", sends(b"MDXC01", b"WITH", *named, extended=True)
    yield "mdx KEYED", sends(b"MDXC01", b"KEYED", b"0", b"key", b"secret", b"id", b"attack", extended=True)
    yield "dcp request", sends(b"", b"DGBX\x01", b"\x04", b"secret", b"", b"m", b"", b"attack")
    yield "dcp registration", sends(b"", b"DGBX\x01", b"\x01", b"secret")
    for command, rest in (
        ("REQUEST", (b"secret", b"guarantee", b"attack")),
        ("READY", (b"secret", b"guarantee", b"attack")),
        ("SCHEDULE", (b"secret", b"", b"1", b"attack", b"")),
        ("UNSCHEDULE", (b"secret", b"", b"1", b"attack", b"")),
        ("PUBLISH", (b"private.x", b"attack")),
        ("INFORM", (b"secret",)),
        ("INFORM", (b"", b"scheduler")),
    ):

        def send(command: str = command, rest: tuple[bytes, ...] = rest) -> Any:
            socket = place.socket(who)
            emqp(socket, command, *rest)
            return socket

        yield f"emqp {command}", send
    for kind, header, payload in (
        ("JOB", [messages.JOB, b"", "secret", 10_000], b"attack"),
        ("READY", [messages.READY, b"", ["secret"]], b""),
    ):

        def poll(header: list[Any] = header, payload: bytes = payload) -> Any:
            socket = place.memo(who)
            socket.send(cbor2.dumps(["memo01", *header], canonical=True) + payload)
            return socket

        yield f"memo01 {kind}", poll
    moment = dbp.write_time(1.7e9, dbp.DECIMAL)
    info = json.dumps({"name": "printer", "heartbeat": 5}).encode()
    yield "dbp REGISTRATION", sends(b"", dbp.REGISTRATION, moment, info)
    yield "dbp INFO_REQUEST", sends(b"", dbp.INFO_REQUEST, moment, b"")
    yield "bridge HELLO", sends(b"PDBR01", b"HELLO", b"0123456789abcdef", b"10", b"1000", b"")

    def subscribe() -> Any:
        socket = place.socket(who, zmq.SUB)
        socket.subscribe(b"private.")
        return socket

    def publish() -> Any:
        socket = place.socket(who, zmq.XPUB)
        assert socket.recv() == b"\x01"  # before the broker has subscribed, libzmq drops what it sends
        socket.send_multipart([b"private.x", b"attack"])
        return socket

    yield "SUB", subscribe
    yield "PUB", publish
    for message in (
        {"op": "call", "id": 1, "service": "secret", "body": "attack"},
        {"op": "subscribe", "topic": "private."},
        {"op": "publish", "topic": "private.x", "body": "attack"},
        {"op": "work", "service": "secret"},
    ):

        @contextlib.contextmanager
        def speak(message: dict[str, Any] = message) -> Iterator[None]:
            bearer = {"Authorization": f"Bearer {token(who, place.numbers[who])}"}
            with connect(
                place.url.replace("tcp", "ws") + "/v1/ws", additional_headers=bearer, open_timeout=60
            ) as socket:
                socket.send(json.dumps(message))
                yield

        yield f"websocket {message['op']}", speak


@pytest.mark.parametrize("who", WHO)
def test_commands(place: Tried, who: str) -> None:
    before = snapshot(place)
    for name, send in commands(place, who):
        count = place.denials()
        with send():
            wait_for(denied_since(place, count), f"{name}: a denial for {who}")
    assert snapshot(place) == before


def test_datagrams(place: Tried) -> None:
    """They carry no principal, so they act on nothing but the entry of a service at the sender's address, which they cannot remove."""
    host, _, port = place.url.rpartition("/")[2].rpartition(":")
    lamp = place.socket("boss")
    lamp.send_multipart(
        [
            b"",
            dbp.REGISTRATION,
            dbp.write_time(1.7e9, dbp.DECIMAL),
            json.dumps({"name": "lamp", "heartbeat": 3600}).encode(),
        ]
    )
    lamp.recv_multipart()
    before = snapshot(place)
    with contextlib.closing(lamp), udp_socket("127.0.0.2") as stranger, udp_socket(host) as neighbour:
        for command in (dbp.HEARTBEAT, dbp.DISCONNECT):
            for sender, name, kind in (
                (stranger, "lamp", "forged"),
                (neighbour, "printer", "forged"),
                (neighbour, "lamp", "beat" if command == dbp.HEARTBEAT else "goodbye"),
            ):
                count = place.status()["datagrams"][kind]
                sender.sendto(udp.write(command, name, 1.7e9), (host, int(port)))
                wait_for(lambda: place.status()["datagrams"][kind] > count, f"{kind} for {command!r}")  # noqa: B023
        for sender in (stranger, neighbour):
            with pytest.raises(BlockingIOError):  # nothing is sent to an address that may be forged
                sender.recv(2048)
        assert snapshot(place) == before
        frames = lamp.recv_multipart()  # the goodbye made the broker ask over the connection
        assert frames[1] == dbp.HEARTBEAT
        lamp.send_multipart([b"", dbp.DISCONNECT, dbp.write_time(1.7e9, dbp.DECIMAL)])
        wait_for(lambda: "lamp" not in [row["name"] for row in place.ask("catalog")], "its own goodbye")


def udp_socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host, 0))
    made.setblocking(False)
    return made


@pytest.mark.long  # it starts Python for each command
@pytest.mark.parametrize("who", WHO)
def test_the_shell(place: Tried, who: str) -> None:
    before = snapshot(place)
    # `work` and the like wait until they may; `test_commands` tries what they send
    tried = {
        name: [
            *(word.replace(rights.JOB, place.job).replace(rights.FLOW, place.flow) for word in words),
            "--to",
            place.url,
            "--user",
            who,
        ]
        for name, (words, right) in rights.CLI.items()
        if right in (rights.CALL, rights.INSPECT, rights.ADMIN)
    }
    variables = environment(POLYDOMO_TOKEN=token(who, place.numbers[who]))

    def run(words: list[str]) -> "tuple[int, str]":
        done = subprocess.run(
            [*POLYDOMO, *words], capture_output=True, timeout=COMMAND, env=variables, stdin=subprocess.DEVNULL
        )
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, tried.values()))
    for name, (status, output) in zip(tried, results, strict=True):
        assert status != 0, (name, output)
        assert re.search("may not|denied|403|admin|did not answer", output), (name, output)
        assert "of alice" not in output
    assert snapshot(place) == before
