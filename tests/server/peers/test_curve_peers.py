"""Unmodified pyzmq with CURVE: every protocol, client and worker, REQ, DEALER, PUB and SUB; and keys that are rejected."""

import json
import logging
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

import polydomo
import polydomo.testing
from polydomo.client import discovery
from polydomo.errors import AccessDenied, CallFailed, NotConnected, PolydomoError
from polydomo.protocols.ends import Failure
from polydomo.wire.frames import join
from tests.server.harness import wait_for as until
from tests.server.impostor import Impostor
from tests.server.nearby import LOOPBACK, OFTEN, free_port
from tests.server.raw_curve import RawCurve
from tests.server.secured import PATIENCE, ZMTP, Caller, Place, Server, refusal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("curve"))


@pytest.fixture(scope="module")
def broker(place: Place) -> Iterator[polydomo.testing.Broker]:
    with polydomo.testing.broker(settings={"access": str(place.access)}) as broker:
        yield broker


@pytest.fixture
def worker(place: Place, broker: polydomo.testing.Broker) -> Iterator[None]:
    """Our library's, with its key."""
    made = polydomo.Worker(broker.url, **place.keys("pool"))
    made.add("echo", lambda call: call.text.upper())
    with made:
        broker.wait_for("echo")
        yield
    broker.wait_for("echo", 0)


@pytest.mark.parametrize("protocol", ZMTP)
def test_client_and_worker_of_each_protocol(place: Place, broker: polydomo.testing.Broker, protocol: str) -> None:
    server = Server(place.socket(zmq.DEALER, broker.url, "pool"), protocol, b"echo")
    client = Caller(place.socket(zmq.DEALER, broker.url, "alice"), protocol)
    try:
        broker.wait_for("echo")
        for size in (0, 5, 300, 100_000):
            assert client.call(b"echo", b"x" * size) == [b"X" * size]
    finally:
        client.close()
        server.close()
    broker.wait_for("echo", 0)


def test_a_req_socket(place: Place, broker: polydomo.testing.Broker, worker: None) -> None:
    socket = place.socket(zmq.REQ, broker.url, "alice")
    for text in (b"hello", b"again"):
        socket.send_multipart([b"MDPC01", b"echo", text])
        assert socket.recv_multipart() == [b"MDPC01", b"echo", text.upper()]
    socket.close()


@pytest.mark.real_time
def test_zmtp_heartbeats_inside_curve(place: Place, broker: polydomo.testing.Broker, worker: None) -> None:
    """libzmq sends PING as a command inside CURVE. It leaves without PONG, but only after a time that a slow machine may need for it:
    see ``test_both_minor_versions_of_zmtp_3``."""
    socket = place.socket(zmq.REQ, broker.url, "alice", heartbeat_ivl=50, heartbeat_timeout=20_000)
    ends = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    socket.send_multipart([b"MDPC01", b"echo", b"alive"])
    assert socket.recv_multipart()[-1] == b"ALIVE"
    assert not ends.poll(3000), "the connection has ended, although the broker lives"
    socket.disable_monitor()
    socket.close()


def test_publish_and_subscribe(place: Place, broker: polydomo.testing.Broker) -> None:
    publisher = place.socket(zmq.PUB, broker.url, "pool")
    subscriber = place.socket(zmq.SUB, broker.url, "alice")
    for topic in (b"weather.", b"secret."):
        subscriber.subscribe(topic)
    subscriber.rcvtimeo = 50
    number = 0
    while True:  # until the subscription has come through
        number += 1
        assert number < 600
        publisher.send_multipart([b"secret.plan", b"%d" % number])  # pool may not publish it
        publisher.send_multipart([b"weather.oslo", b"%d" % number])
        try:
            assert subscriber.recv_multipart()[0] == b"weather.oslo"
            break
        except zmq.Again:
            continue
    assert broker._server is not None
    denied = broker._server.broker.counters.denied

    def refused() -> bool:
        """A PUB drops what it sends before it knows the subscription, maybe just before the message that came through."""
        publisher.send_multipart([b"secret.plan", b"again"])
        return "publish" in denied

    until(refused, "a denial")
    publisher.close()
    subscriber.close()
    assert not [value for value in values(broker) if value.startswith(b"secret")]


def values(broker: polydomo.testing.Broker) -> list[bytes]:
    assert broker._server is not None
    return [value.topic for value in broker._server.broker.publishing.last_values.under(b"", 100)]


def test_the_catalog(place: Place, broker: polydomo.testing.Broker) -> None:
    import asyncio

    from polydomo.client.catalog import AsyncCatalog

    async def talk() -> None:
        async with AsyncCatalog(broker.url, **place.keys("pool")) as catalog:
            await catalog.register({"name": "printer", "ip": "127.0.0.1", "port": 1})
        async with AsyncCatalog(broker.url, **place.keys("pool")) as catalog:
            with pytest.raises(CallFailed, match="pool may not register 'scanner'"):
                await catalog.register({"name": "scanner", "ip": "127.0.0.1", "port": 1})
            with pytest.raises(CallFailed, match="may not inspect"):
                await catalog.look("printer")
        async with AsyncCatalog(broker.url, **place.keys("alice")) as catalog:
            await catalog.look()

    asyncio.run(talk())


def test_the_catalog_by_plain_pyzmq(place: Place, broker: polydomo.testing.Broker) -> None:
    """DBP, frame by frame: a service registers, beats and leaves, a client looks it up, and denials name the reason."""

    def say(socket: "zmq.Socket[bytes]", command: bytes, body: bytes = b"") -> list[bytes]:
        socket.send_multipart([b"", command, struct.pack("=f", 1e9), body])
        while True:
            answer = socket.recv_multipart()
            if answer[1] != b"<3":  # the broker's own heartbeat
                return [answer[1], *answer[3:]]

    service = place.socket(zmq.DEALER, broker.url, "pool")
    client = place.socket(zmq.DEALER, broker.url, "alice")
    stranger = place.socket(zmq.DEALER, broker.url, "pool")
    try:
        assert say(service, b"UwU", b'{"name": "printer", "ip": "127.0.0.1", "port": 1}')[0] == b"OwO"
        assert say(service, b"<3", b"printer")[0] == b"u.u"
        command, body = say(client, b"u_U", b"printer")
        assert command == b"o_O" and json.loads(body)["printer"]["port"] == 1
        command, body = say(stranger, b"UwU", b'{"name": "scanner", "ip": "127.0.0.1", "port": 1}')
        assert command == b"(O_O)" and b"pool may not register 'scanner'" in body
        service.send_multipart([b"", b"</3", struct.pack("=f", 1e9), b"printer"])
    finally:
        for socket in (service, client, stranger):
            socket.close()


@pytest.mark.parametrize(
    ("name", "server", "event", "value"),
    [
        ("mallory", "server", zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400),  # a key that nobody has
        ("", "", zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400),  # no key
    ],
)
def test_a_rejected_peer_gets_an_error(
    place: Place, broker: polydomo.testing.Broker, name: str, server: str, event: int, value: int
) -> None:
    socket = place.socket(zmq.DEALER, "inproc://nowhere", name)
    assert refusal(socket, broker.url) == (event, value)
    socket.close()


@pytest.mark.parametrize("minor", [0, 1])
def test_both_minor_versions_of_zmtp_3(place: Place, broker: polydomo.testing.Broker, worker: None, minor: int) -> None:
    with RawCurve(broker.url, place, minor=minor) as peer:
        peer.shake()
        request = join([b"", b"MDPC01", b"echo", b"hello"])
        peer.send(b"".join(bytes(piece) for piece in peer.mechanism.encode([request])))
        assert b"HELLO" in peer.mechanism.decode(peer.socket.recv(65536))
        ping = b"\x04\x0b\x04PING\x00\x0aabcd"
        peer.send(b"".join(bytes(piece) for piece in peer.mechanism.encode([ping])))
        assert b"\x04PONGabcd" in peer.mechanism.decode(peer.socket.recv(65536))


def test_a_discovered_broker_with_another_key_is_not_used(place: Place, tmp_path: Path) -> None:
    """Any program can send a beacon. Here, one broker has no keys, one has other keys, and the right one comes last."""
    port = free_port()
    beacon = {"dbp.beacon": f"{LOOPBACK}:{port}"}
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    with ExitStack() as stack:
        stack.enter_context(polydomo.testing.broker(settings=beacon, tuning=OFTEN))
        stack.enter_context(polydomo.testing.broker(settings={**beacon, "access": str(other.access)}, tuning=OFTEN))
        discover = f"discover://{LOOPBACK}:{port}"
        client = stack.enter_context(
            polydomo.Client(discover, **place.keys("alice"), timeout=PATIENCE, connect_timeout=PATIENCE)
        )
        answer = client.submit("polydomo.status")
        honest = stack.enter_context(
            polydomo.testing.broker(settings={**beacon, "access": str(place.access)}, tuning=OFTEN)
        )
        assert answer.result(PATIENCE).json()["address"] == honest.url


def test_an_impostor_does_not_stop_the_search_for_the_broker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """ERROR is not authenticated, so it proves nothing; nor does silence. Both impostors are tried before the broker starts."""
    monkeypatch.setattr(discovery, "DISCOVERY_PATIENCE", 0.05)
    port = free_port()
    beacon = {"dbp.beacon": f"{LOOPBACK}:{port}", "access": str(place.access)}
    with ExitStack() as stack:
        impostors = [stack.enter_context(Impostor(port, denies)) for denies in (True, False)]
        client = polydomo.Client(
            f"discover://{LOOPBACK}:{port}", **place.keys("alice"), timeout=PATIENCE, connect_timeout=PATIENCE
        )
        stack.enter_context(client)
        answer = client.submit("polydomo.status")
        until(lambda: all(impostor.connections for impostor in impostors), "both impostors to be tried")
        honest = stack.enter_context(polydomo.testing.broker(settings=beacon, tuning=OFTEN))
        assert answer.result(PATIENCE).json()["address"] == honest.url


@pytest.mark.parametrize(("denies", "kind"), [(True, AccessDenied), (False, NotConnected)])
def test_the_answer_of_an_impostor_is_reported_if_there_is_no_other(
    place: Place, denies: bool, kind: type[PolydomoError]
) -> None:
    port = free_port()
    with Impostor(port, denies) as impostor:
        for seconds in (0.3, 3.0, PATIENCE):  # longer if the machine stood still, so that no beacon arrived in time
            url = f"discover://{LOOPBACK}:{port}"
            with polydomo.Client(url, **place.keys("alice"), connect_timeout=seconds) as client:
                with pytest.raises(PolydomoError) as error:
                    client.call("echo", "x", timeout=2 * PATIENCE)
            if impostor.connections and error.type is kind:
                break
        assert error.type is kind and "no broker with this server key accepted the connection" in str(error.value)


def test_the_wrong_server_key(place: Place, broker: polydomo.testing.Broker) -> None:
    socket = place.socket(zmq.DEALER, "inproc://nowhere", "alice", server="mallory")
    event, _ = refusal(socket, broker.url)
    assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
    socket.close()


def test_the_library_reports_why_it_was_rejected(place: Place, broker: polydomo.testing.Broker) -> None:
    with polydomo.Client(broker.url, **place.keys("mallory")) as client, pytest.raises(AccessDenied, match="400"):
        client.call("echo", "x", timeout=PATIENCE)
    with polydomo.Client(broker.url) as client, pytest.raises(AccessDenied, match="400"):
        client.call("echo", "x", timeout=PATIENCE)
    with polydomo.Client(broker.url, **place.keys("alice", "mallory")) as client, pytest.raises(PolydomoError):
        client.call("echo", "x", timeout=PATIENCE)


def test_calls_without_a_rule_are_denied(place: Place, broker: polydomo.testing.Broker, worker: None) -> None:
    with polydomo.Client(broker.url, **place.keys("alice")) as client:
        assert client.call("echo", "hello").text == "HELLO"
        for service in ("other", "echo2", "lint"):
            with pytest.raises(CallFailed, match=f"alice may not call '{service}'") as error:
                client.call(service, "x")
            assert error.value.code == "denied"
        assert client.call("polydomo.status").json()["workers"] == 1
        for order in ("polydomo.drain", "polydomo.pause", "polydomo.withdraw", "polydomo.drop", "polydomo.schedule"):
            with pytest.raises(CallFailed, match="needs the right admin"):  # to look is not to change
                client.call(order, '{"service": "echo"}')
        answer = client.call("polydomo.schema", '{"service": "echo", "schema": {}}').json()
        assert answer == {"registered": False, "reason": "alice may not offer 'echo'", "denied": True}
    with polydomo.Client(broker.url, **place.keys("pool")) as client:
        with pytest.raises(CallFailed, match="pool may not call 'echo'"):
            client.call("echo", "x")
        with pytest.raises(CallFailed, match=r"pool may not inspect 'polydomo\.status'"):
            client.call("polydomo.status")


@pytest.mark.parametrize("protocol", ZMTP)
def test_a_worker_without_the_right_is_denied_once(
    place: Place, broker: polydomo.testing.Broker, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A denial is no violation of the protocol: it is one line in the log, and counted once."""
    assert broker._server is not None
    core = broker._server.broker
    before = core.counters.violations
    core.counters.denied.pop("offer", None)
    name = f"no-{protocol}".encode()
    with caplog.at_level(logging.WARNING, "polydomo"):
        server = Server(place.socket(zmq.DEALER, broker.url, "alice"), protocol, name)
        try:
            broker.wait_until(lambda server: server.broker.counters.denied.get("offer", 0) > 0)
            assert name not in {service.name for service in core.services.values() if service.workers}
        finally:
            server.close()
    assert core.counters.denied.pop("offer", None) == 1
    lines = [record.__dict__["fields"] for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line["why"] for line in lines] == [f"alice may not offer 'no-{protocol}'"]
    assert core.counters.violations == before


@pytest.mark.parametrize("protocol", ["mdx", "mdp1"])
def test_a_denied_typed_worker_that_registers_again_is_one_line(
    place: Place, broker: polydomo.testing.Broker, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its READY and its schema are denied, again and again: each is counted, and the log has one line a minute."""
    assert broker._server is not None
    core = broker._server.broker
    core.counters.denied.pop("offer", None)

    def add(a: int, b: int) -> int:
        return a + b

    worker = polydomo.Worker(broker.url, protocol=protocol, **place.keys("alice"))
    worker.add(f"add-{protocol}", add)
    with caplog.at_level(logging.WARNING, "polydomo"), worker:
        broker.wait_until(lambda server: server.broker.counters.denied.get("offer", 0) >= 4)
    core.counters.denied.pop("offer", None)
    lines = [record.__dict__["fields"] for record in caplog.records if record.name == "polydomo.broker"]
    assert [line["why"] for line in lines] == [f"alice may not offer 'add-{protocol}'"]
    rejected = [record for record in caplog.records if "rejected the schema" in record.getMessage()]
    assert len(rejected) == 1


def test_a_denied_call_fails_over_mdx_and_gets_no_answer_over_mdp(
    place: Place, broker: polydomo.testing.Broker
) -> None:
    client = Caller(place.socket(zmq.DEALER, broker.url, "alice"), "mdx")
    failure = client.call(b"other", b"x")
    assert isinstance(failure, Failure) and failure.code == "denied"
    client.close()
    quiet = Caller(place.socket(zmq.DEALER, broker.url, "alice", rcvtimeo=300), "mdp1")
    with pytest.raises(zmq.Again):
        quiet.call(b"other", b"x")
    quiet.close()


def test_a_bridge_needs_the_right(place: Place, broker: polydomo.testing.Broker, tmp_path: Path) -> None:
    settings = {
        "bridge.to": [broker.url],
        "bridge.key": place.keys("alice")["key"],
        "bridge.server_key": place.file("server.key"),
    }
    with polydomo.testing.broker(settings=settings):
        broker.wait_until(lambda server: server.broker.counters.denied.get("bridge", 0) > 0)


def test_a_libzmq_program_in_c(place: Place, broker: polydomo.testing.Broker, worker: None, tmp_path: Path) -> None:
    import shutil
    import subprocess

    compiler = shutil.which("cc")
    program = tmp_path / "client"
    source = Path(__file__).parent / "curve_client.c"
    if (
        compiler is None
        or subprocess.run([compiler, "-o", str(program), str(source), "-lzmq"], capture_output=True).returncode
    ):
        pytest.skip("no C compiler, or no headers of libzmq")
    import zmq.auth

    public, secret = zmq.auth.load_certificate(place.file("alice.key_secret"))
    server, _ = zmq.auth.load_certificate(place.file("server.key"))
    assert secret is not None
    done = subprocess.run(
        [str(program), broker.url, public, secret, server, "echo", "hello"], capture_output=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (0, b"HELLO\n")
