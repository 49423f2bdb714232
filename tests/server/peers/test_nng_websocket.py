"""memo01 with real NNG peers over `ws://` and `wss://`, on the port of everything else, and in frames as the mapping of SP has them."""

import threading
from pathlib import Path

import pynng
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

import polydomo
import polydomo.testing
from tests.server.peers.test_nng_peers import (
    DISCONNECT,
    HEARTBEAT,
    JOB,
    PATIENCE,
    QUEUED,
    READY,
    RESULT,
    Nng,
    dump,
    load,
)
from tests.server.secured import Place

REP = "rep.sp.nanomsg.org"


def ws(broker: polydomo.testing.Broker, path: str = "/") -> str:
    return broker.url.replace("tcp://", "ws://") + path


def dial(broker: polydomo.testing.Broker, name: str = REP, path: str = "/") -> ClientConnection:
    return connect(ws(broker, path), subprotocols=[Subprotocol(name)], compression=None, max_size=None, open_timeout=60)


# --- NNG


@pytest.mark.parametrize("path", ["", "/", "/any/path"])
def test_many_clients_and_workers_share_one_socket(broker: polydomo.testing.Broker, path: str) -> None:
    with Nng(ws(broker, path)) as peer:
        for _ in range(20):
            peer.work(["up", "shout"], bytes.upper)
        broker.wait_for("up", 20)
        contexts = [peer.context() for _ in range(100)]
        for number, context in enumerate(contexts):
            context.send(dump(JOB, b"", "up", 600_000, payload=b"job %d" % number))
        for number, context in reversed(list(enumerate(contexts))):
            assert load(context.recv()) == ([RESULT, b""], b"JOB %d" % number)


def test_payloads_from_none_to_many_megabytes(broker: polydomo.testing.Broker) -> None:
    """NNG accepts frames of up to 1 MiB, so large messages have several."""
    with Nng(ws(broker)) as work, Nng(ws(broker)) as client:
        work.work(["echo"], bytes)
        for size in (0, 1, 125, 126, 1000, 70_000, 256 << 10, (256 << 10) + 1, 8 << 20):
            payload = (b"0123456789abcdef" * (size // 16 + 1))[:size]
            assert client.call("echo", payload) == payload


@pytest.mark.parametrize(("client", "worker"), [("ws", "tcp"), ("tcp", "ws")])
def test_peers_of_both_transports_meet(broker: polydomo.testing.Broker, client: str, worker: str) -> None:
    urls = {"ws": ws(broker), "tcp": broker.url}
    with Nng(urls[worker]) as work, Nng(urls[client]) as asking:
        work.work(["up"], bytes.upper)
        assert asking.call("up", b"hello") == b"HELLO"
        with polydomo.Client(broker.url, protocol="mdp1") as other:
            assert other.call("up", "other").text == "OTHER"


def test_a_client_reaches_a_worker_of_another_protocol(broker: polydomo.testing.Broker) -> None:
    function = polydomo.Worker(broker.url, protocol="dcp")
    function.add("up", lambda call: call.text.upper())
    with function, Nng(ws(broker)) as client:
        broker.wait_for("up")
        assert client.call("up", b"hello") == b"HELLO"


def test_a_request_that_nng_repeats_is_run_once(broker: polydomo.testing.Broker) -> None:
    runs: list[bytes] = []
    repeated = threading.Event()

    def slow(payload: bytes) -> bytes:
        runs.append(payload)
        repeated.wait(PATIENCE / 1000)
        return b"done"

    with Nng(ws(broker)) as work, Nng(ws(broker), resend_time=20) as client:
        work.work(["slow"], slow)
        broker.wait_for("slow")
        job = dump(JOB, b"", "slow", 600_000, payload=b"x")
        context = client.context()
        before: list[int] = []
        broker.wait_until(lambda server: not before.append(server.hub.received))  # type: ignore[func-returns-value]
        context.send(job)
        broker.wait_until(lambda server: server.hub.received > before[0] + 5 * len(job))
        repeated.set()
        assert load(context.recv()) == ([RESULT, b""], b"done")
    assert runs == [b"x"]


def test_a_worker_that_dies_with_its_socket_gives_its_job_to_another(broker: polydomo.testing.Broker) -> None:
    with Nng(ws(broker)) as client, Nng(ws(broker)) as other:
        with Nng(ws(broker)) as doomed:
            context = doomed.context()
            context.send(dump(READY, b"", ["echo"]))
            broker.wait_for("echo")
            waiting = client.context()
            waiting.send(dump(JOB, b"", "echo", 600_000, payload=b"x"))
            header, payload = load(context.recv())
            assert header[0] == JOB and payload == b"x"
            other.work(["echo"], bytes.upper)
            broker.wait_for("echo", 2)
        assert load(waiting.recv()) == ([RESULT, b""], b"X")


def test_workers_register_again_with_a_broker_that_was_restarted(broker: polydomo.testing.Broker) -> None:
    with Nng(ws(broker), reconnect_time_min=10, reconnect_time_max=50) as peer:
        heard = [peer.work(["echo"], bytes) for _ in range(3)]
        broker.wait_for("echo", 3)
        assert peer.call("echo", b"before") == b"before"
        broker.kill()
        broker.start()
        broker.wait_for("echo", 3)
        assert peer.call("echo", b"after") == b"after"
    assert sum(DISCONNECT in kinds for kinds in heard) == 1


def test_a_connection_at_its_limit_is_not_read(broker: polydomo.testing.Broker) -> None:
    """Backpressure: the requests beyond the limit wait in the client's own buffers, and none is lost."""
    with polydomo.testing.broker(settings={"limits.max_outstanding": 5, **QUEUED}) as small, Nng(ws(small)) as client:
        contexts = [client.context() for _ in range(50)]
        for number, context in enumerate(contexts):
            context.send(dump(JOB, b"", "up", 600_000, payload=b"%d" % number))
        small.wait_until(lambda server: server.broker.open_requests == 5)
        with Nng(ws(small)) as work:
            work.work(["up"], bytes.upper)
            assert [load(context.recv())[1] for context in contexts] == [b"%d" % number for number in range(50)]


# --- frames


def test_the_frames_of_the_mapping(broker: polydomo.testing.Broker) -> None:
    """One binary message is one SP message: request id, header, payload, without a length. Both directions, also in fragments."""
    with dial(broker) as worker, dial(broker, "req.sp.nanomsg.org", "/memo") as client:
        assert worker.subprotocol == REP
        worker.send(b"\x80\x00\x00\x01" + dump(READY, b"", ["upper"]))
        broker.wait_for("upper")
        job = b"\x80\x00\x00\x07" + dump(JOB, b"", "upper", 60_000, payload=b"hello")
        client.send([job[:3], job[3:9], job[9:]])
        delivered = worker.recv(timeout=PATIENCE / 1000)
        assert isinstance(delivered, bytes) and delivered[:4] == b"\x80\x00\x00\x01"
        (kind, worker_id, *rest), payload = load(delivered[4:])
        assert (kind, rest, payload) == (JOB, ["upper", 60_000], b"hello")
        worker.send(b"\x80\x00\x00\x02" + dump(RESULT, worker_id, payload=b"HELLO"))
        assert client.recv(timeout=PATIENCE / 1000) == b"\x80\x00\x00\x07" + dump(RESULT, b"", payload=b"HELLO")
        worker.send(b"\x80\x00\x00\x03" + dump(HEARTBEAT, b"\x00" * 16))
        assert worker.recv(timeout=PATIENCE / 1000) == b"\x80\x00\x00\x03" + dump(DISCONNECT, b"\x00" * 16)


@pytest.mark.parametrize("name", ["pub.sp.nanomsg.org", "pair.sp.nanomsg.org"])
def test_another_protocol_of_sp_is_refused(broker: polydomo.testing.Broker, name: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(broker, name)
    assert refused.value.response.status_code == 400 and b"REP talks to REQ only" in refused.value.response.body


@pytest.mark.parametrize("message", ["text", b"\x80\x00", b"\x00\x00\x00\x01"])
def test_what_is_no_message_of_sp_ends_the_connection(broker: polydomo.testing.Broker, message: str | bytes) -> None:
    with dial(broker) as peer:
        peer.send(message)
        with pytest.raises(ConnectionClosed):
            peer.recv(timeout=PATIENCE / 1000)


def test_a_page_of_another_origin_is_refused(broker: polydomo.testing.Broker) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(ws(broker), subprotocols=[Subprotocol(REP)], origin=Origin("http://evil.example"), open_timeout=60)
    assert refused.value.response.status_code == 403


def test_the_json_messages_of_v1_ws_are_still_there(broker: polydomo.testing.Broker) -> None:
    with connect(ws(broker, "/v1/ws"), subprotocols=[Subprotocol("own")], open_timeout=60) as socket:
        assert '"hello"' in str(socket.recv(timeout=PATIENCE / 1000))


# --- TLS and access control


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("wss"), tls=True)


def secured(place: Place, url: str, name: str) -> pynng.Req0:
    pem = Path(place.file(f"{name}.pem")).read_text()
    config = pynng.TLSConfig(
        pynng.TLSConfig.MODE_CLIENT,
        server_name="localhost",
        ca_string=Path(place.file("ca.pem")).read_text(),
        own_cert_string=pem[: pem.index("-----BEGIN PRIVATE KEY")],
        own_key_string=pem[pem.index("-----BEGIN PRIVATE KEY") :],
        auth_mode=pynng.TLSConfig.AUTH_MODE_REQUIRED,
    )
    return pynng.Req0(dial=url, tls_config=config, recv_timeout=PATIENCE, send_timeout=PATIENCE)


def test_wss_with_certificates_and_rights(place: Place) -> None:
    with polydomo.testing.broker(settings={"access": str(place.access), **QUEUED}) as broker:
        url = ws(broker).replace("ws://", "wss://")
        with secured(place, url, "pool") as worker, secured(place, url, "alice") as client:
            worker.send(dump(READY, b"", ["echo"]))
            broker.wait_for("echo")
            client.send(dump(JOB, b"", "echo", 600_000, payload=b"hello"))
            header, payload = load(worker.recv())
            assert header[0] == JOB and payload == b"hello"
            worker.send(dump(RESULT, header[1], payload=b"HELLO"))
            assert load(client.recv()) == ([RESULT, b""], b"HELLO")
            client.send(dump(READY, b"", ["mine"]))  # alice may not offer
            broker.wait_until(lambda server: server.broker.counters.denied.get("offer", 0) > 0)
        with pytest.raises(InvalidStatus) as refused:
            dial(broker)
        assert refused.value.response.status_code == 401
