"""DBP with real peers: raw frames of the document over pyzmq's DEALER, REQ and ROUTER sockets."""

import json
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import zmq

import polydomo.testing
from polydomo import Client, Result, Worker
from polydomo.errors import CallFailed, SettingError
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import KINDS
from polydomo.server.settings.sections import Dbp
from polydomo.server.settings.settings import Settings

PATIENCE = 60_000  # milliseconds; only a machine that has stopped would use it up
Socket = zmq.Socket[bytes]


class Peers:
    def __init__(self, context: "zmq.Context[Socket]", broker: polydomo.testing.Broker) -> None:
        self.context = context
        self.broker = broker

    def dial(self, kind: int = zmq.DEALER) -> Socket:
        socket = self.bare(kind)
        socket.connect(self.broker.url)
        return socket

    def bare(self, kind: int) -> Socket:
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
        return socket

    def register(self, *given: dict[str, object], kind: int = zmq.DEALER, **more: object) -> Socket:
        socket = self.dial(kind)
        assert ask(socket, b"UwU", {"name": "camera", **(given[0] if given else {}), **more})[0] == b"OwO"
        return socket


@pytest.fixture
def context() -> Iterator["zmq.Context[Socket]"]:
    with zmq.Context() as context:
        yield context
        context.destroy(linger=0)


@pytest.fixture
def peers(context: "zmq.Context[Socket]", broker: polydomo.testing.Broker) -> Peers:
    return Peers(context, broker)


def say(socket: Socket, command: bytes, *body: bytes) -> None:
    empty = [] if socket.type == zmq.REQ else [b""]
    socket.send_multipart([*empty, command, struct.pack("=d", time.time()), *body])


def hear(socket: Socket) -> list[bytes]:
    """The next message that is not a heartbeat, without its empty frame and its time, which is now."""
    while True:
        message = socket.recv_multipart()
        if socket.type != zmq.REQ:
            assert message.pop(0) == b""
        assert abs(struct.unpack("=d", message[1])[0] - time.time()) < 3600
        if message[0] == b"<3":
            say(socket, b"u.u")
            continue
        return [message[0], *message[2:]]


def ask(socket: Socket, command: bytes, info: object) -> list[bytes]:
    say(socket, command, json.dumps(info).encode())
    return hear(socket)


def look(peers: Peers, name: str) -> dict[str, object]:
    with peers.dial(zmq.REQ) as socket:
        say(socket, b"u_U", name.encode())
        command, body = hear(socket)
        assert command == b"o_O"
        found: dict[str, object] = json.loads(body)
        return found


TAKES: dict[str, object] = {"interfaces": {"requests": True}}


def test_request_and_reply_over_the_connection_that_registered(peers: Peers) -> None:
    """ "S: READY, Repeat: B: REQUEST, S: REPLY": the client speaks another protocol."""
    service = peers.register(TAKES, heartbeat=30)
    with Client(peers.broker.url) as client:
        for number in range(3):
            pending = client.submit("camera", b"take", b"%d" % number)
            assert hear(service) == [b"u_U", b"take", b"%d" % number]
            say(service, b"o_O", b"picture", b"%d" % number)
            assert pending.result().frames == [b"picture", b"%d" % number]
        pending = client.submit("camera", b"again")
        assert hear(service) == [b"u_U", b"again"]
        say(service, b"(O_O)", b"no film")
        with pytest.raises(CallFailed, match="no film"):
            pending.result()
        # its own info requests are answered between two requests
        say(service, b"u_U", b"camera")
        command, body = hear(service)
        assert command == b"o_O" and json.loads(body)["camera"]["interfaces"] == {"requests": True}
        say(service, b"</3")
        peers.broker.wait_until(lambda server: not server.broker.workers)


@pytest.mark.parametrize("kind", [zmq.DEALER, zmq.REQ])
@pytest.mark.parametrize(
    "interfaces",
    [
        lambda port: {"requests": {"port": port}},
        lambda port: {"requests": {"ip": "127.0.0.1", "port": str(port)}},
        lambda port: {"requests": True, "router": {"ip": "127.0.0.1", "port": port}},
    ],
)
def test_request_and_reply_at_the_address_that_was_registered(
    peers: Peers, kind: int, interfaces: Callable[[int], dict[str, object]]
) -> None:
    wanted = interfaces(1)
    if kind == zmq.DEALER and wanted["requests"] is True:
        return  # it is called over its connection
    router = peers.bare(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    peers.register(kind=kind, interfaces=interfaces(port), heartbeat=30).close()
    with Client(peers.broker.url) as client:
        pending = client.submit("camera", b"take")
        broker, empty, command, _, body = router.recv_multipart()
        assert (empty, command, body) == (b"", b"u_U", b"take")
        # "Frame 0: Message Reply Address (from request message header)"
        router.send_multipart([broker, b"", b"o_O", struct.pack("=f", 1.0), b"picture"])
        assert pending.result().frames == [b"picture"]
        with peers.dial() as leaving:
            say(leaving, b"</3", b"camera")
            peers.broker.wait_until(lambda server: not server.broker.workers)


def give_to_a_short_lived(peers: Peers, client: Client) -> tuple[Future[Result], Socket]:
    """A request, and a service that holds it and is lost soon. The request is there first, or the service could be lost without it."""
    pending = client.submit("camera", b"take")
    peers.broker.wait_until(lambda server: server.broker.open_requests == 1)
    lost = peers.register(TAKES, heartbeat=0.1)
    while lost.recv_multipart()[1] != b"u_U":
        pass
    return pending, lost


def test_a_service_that_is_lost_returns_its_request(peers: Peers) -> None:
    """Its heartbeats stop while it holds a request. The next one that registers gets it, and a late reply is stale."""
    with Client(peers.broker.url) as client:
        pending, lost = give_to_a_short_lived(peers, client)
        peers.broker.wait_until(lambda server: not server.broker.catalog.active_entries())
        peers.broker.wait_until(lambda server: not server.broker.workers)
        other = peers.register(TAKES, heartbeat=30)
        assert hear(other) == [b"u_U", b"take"]
        say(lost, b"o_O", b"too late")
        peers.broker.wait_until(lambda server: server.broker.counters.stale == 1)
        say(other, b"o_O", b"picture")
        assert pending.result().frames == [b"picture"]


def test_the_journal_of_a_lost_service_passes_the_audit(context: "zmq.Context[Socket]", tmp_path: Path) -> None:
    with polydomo.testing.broker(settings={"journal.level": "messages", "data": str(tmp_path)}) as broker:
        peers = Peers(context, broker)
        with Client(broker.url) as client:
            pending, _ = give_to_a_short_lived(peers, client)
            broker.wait_until(lambda server: not server.broker.catalog.active_entries())
            other = peers.register(TAKES, heartbeat=30)
            assert hear(other) == [b"u_U", b"take"]
            say(other, b"o_O", b"picture")
            assert pending.result().frames == [b"picture"]
    reader = Reader([tmp_path / "journal"])
    rows = [row for kind in KINDS for row in reader.rows(kind)]
    assert audit(rows) == []
    ended = [row for row in rows if row.get("service") == "camera" and row.get("attempts") == 2]
    assert [row["outcome"] for row in ended] == ["ok"]


def test_a_lost_service_that_registers_again_on_its_old_connection_is_disconnected(
    context: "zmq.Context[Socket]",
) -> None:
    """Its reply to the request that it was lost with could be taken for the reply to the next one."""
    with polydomo.testing.broker() as broker:
        peers = Peers(context, broker)
        with Client(broker.url) as client:
            _, lost = give_to_a_short_lived(peers, client)
            broker.wait_until(lambda server: not server.broker.catalog.active_entries())
            say(lost, b"UwU", json.dumps({"name": "camera", **TAKES}).encode())
            while (answer := lost.recv_multipart()[1]) == b"<3":
                pass
            assert answer == b"</3"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"interfaces": {"requests": "yes"}}, "must be true, or an object with a port"),
        ({"interfaces": {"requests": {"ip": "192.0.2.1", "port": 7}}}, "another ip"),
        ({"interfaces": {"requests": {"ip": "127.0.0.1"}}}, "no port"),
        ({"name": "mmi.service", **TAKES}, "reserved"),
    ],
)
def test_requests_that_are_refused(peers: Peers, info: dict[str, object], why: str) -> None:
    answer = ask(peers.dial(), b"UwU", {"name": "camera", **info})
    assert answer[0] == b"(O_O)" and why in answer[1].decode()
    assert ask(peers.dial(zmq.REQ), b"UwU", {"name": "camera", **TAKES})[0] == b"(O_O)"
    peers.broker.wait_until(lambda server: not server.broker.workers and not server.broker.catalog.active_entries())


def test_an_update_begins_and_ends_requests(peers: Peers) -> None:
    service = peers.register(heartbeat=30)
    with Client(peers.broker.url) as client:
        pending = client.submit("camera", b"take")
        assert json.loads(ask(service, b"UoU", TAKES)[1]) == {"heartbeat": 30.0}
        assert hear(service) == [b"u_U", b"take"]
        say(service, b"o_O", b"picture")
        assert pending.result().frames == [b"picture"]
        assert ask(service, b"UoU", {"interfaces": {}})[0] == b"u.u"
        peers.broker.wait_until(lambda server: not server.broker.workers)
        assert "camera" in look(peers, "camera")


# --- the rest of the registration dialog


def test_a_registration_gets_an_address_and_an_update_the_agreed_timing(context: "zmq.Context[Socket]") -> None:
    with polydomo.testing.broker(settings={"beats_missed": 1000}) as broker:
        peers = Peers(context, broker)
        service = peers.dial()
        assert json.loads(ask(service, b"UwU", {"name": "camera", "heartbeat": 0.001})[1]) == {"heartbeat": 0.1}
        assert look(peers, "camera") == {"camera": {"name": "camera", "heartbeat": 0.001, "ip": "127.0.0.1"}}
        assert json.loads(ask(service, b"UoU", {"heartbeat": 60})[1]) == {"heartbeat": 60.0}
        assert ask(peers.dial(), b"UoU", {"name": "lamp"})[0] == b"(O_O)"


def test_services_get_disconnect_when_the_broker_stops(context: "zmq.Context[Socket]") -> None:
    with polydomo.testing.broker() as broker:
        peers = Peers(context, broker)
        plain = peers.register(name="lamp")
        taking = peers.register(TAKES, heartbeat=30)
    assert hear(plain) == [b"</3", b""] and hear(taking) == [b"</3", b""]


def test_required_fields(context: "zmq.Context[Socket]") -> None:
    with polydomo.testing.broker(settings=Settings(dbp=Dbp(require=["function", "heartbeat"]))) as broker:
        service = Peers(context, broker).dial()
        answer = ask(service, b"UwU", {"name": "camera", "heartbeat": 5})
        assert answer[0] == b"(O_O)" and b"function" in answer[1]
        assert ask(service, b"UwU", {"name": "camera", "heartbeat": 5, "function": "images"})[0] == b"OwO"


def test_only_registered_nodes_offer_services(context: "zmq.Context[Socket]") -> None:
    with polydomo.testing.broker(settings=Settings(dbp=Dbp(registered_only=True))) as broker:
        peers = Peers(context, broker)
        worker = peers.dial()
        worker.send_multipart([b"", b"MDPW01", b"\x01", b"echo"])
        assert worker.recv_multipart()[:3] == [b"", b"MDPW01", b"\x05"]
        service = peers.register(TAKES, heartbeat=30)
        worker = peers.dial()
        worker.send_multipart([b"", b"MDPW01", b"\x01", b"echo"])
        broker.wait_until(lambda server: len(server.broker.workers) == 2)
        say(service, b"</3")
        assert worker.recv_multipart()[:3] == [b"", b"MDPW01", b"\x05"]
        broker.wait_until(lambda server: not server.broker.workers)


# --- the library


def test_a_python_function_as_a_service_of_the_catalog(peers: Peers) -> None:
    worker = Worker(peers.broker.url, protocol="dbp", information={"function": "shouts", "port": 9})
    worker.add("shout", lambda call: call.text.upper())
    worker.add("fail", lambda call: 1 / 0)
    with worker, Client(peers.broker.url) as client:
        assert client.call("shout", "hello").text == "HELLO"
        with pytest.raises(CallFailed, match="division"):
            client.call("fail")
        found = look(peers, "shout")["shout"]
        assert isinstance(found, dict)
        assert (found["function"], found["port"], found["ip"]) == ("shouts", 9, "127.0.0.1")
    peers.broker.wait_until(lambda server: not server.broker.catalog.active_entries())


def test_a_service_of_the_catalog_runs_one_call_at_a_time() -> None:
    with pytest.raises(SettingError, match="one call at a time"):
        Worker(protocol="dbp", concurrency=2)
