"""Statements of the DBP document, with the frames that it prints."""

import json
import struct
import time

import zmq

from polydomo import limits, testing
from polydomo.server.settings.settings import Settings
from tests.statements.raw import RawPeer

CAMERA: dict[str, object] = {"name": "camera", "ip": "127.0.0.1", "port": 4001, "function": "pictures", "heartbeat": 60}


def now() -> bytes:
    """The document names no format: an 8-byte double in native byte order."""
    return struct.pack("=d", time.time())


def about(name: str) -> bytes:
    return json.dumps({**CAMERA, "name": name}).encode()


def is_now(frame: bytes) -> bool:
    (seconds,) = struct.unpack("=d", frame)
    return bool(abs(seconds - time.time()) < 600)


def test_the_default_port_is_the_document_s() -> None:
    assert Settings().listen == [f"tcp://127.0.0.1:{limits.DEFAULT_PORT}"] == ["tcp://127.0.0.1:5246"]


def test_every_command_is_framed_as_printed(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as service, RawPeer(broker.url) as client:
        service.say(b"", b"UwU", now(), about("framed"))  # REGISTRATION: 4 frames
        empty, command, at, changes = service.hear()  # APPROVED
        assert (empty, command, json.loads(changes)) == (b"", b"OwO", {"heartbeat": 60}) and is_now(at)
        service.say(b"", b"UoU", now(), b'{"name": "framed", "port": 4002}')  # UPDATE: 4 frames
        assert service.hear()[:2] == [b"", b"u.u"]  # AWK
        service.say(b"", b"<3", now(), b"framed")  # HEARTBEAT
        empty, command, at, *rest = service.hear()
        assert (empty, command, rest) == (b"", b"u.u", [b""]) and is_now(at)
        client.say(b"", b"u_U", now(), b"framed")  # REQUEST: 4 frames
        empty, command, at, found = client.hear()  # REPLY
        assert (empty, command) == (b"", b"o_O") and is_now(at)
        assert json.loads(found)["framed"]["port"] == 4002
        service.say(b"", b"</3", now())  # DISCONNECT: 3 frames


def test_a_registered_connection_needs_no_name(broker: testing.Broker) -> None:
    """HEARTBEAT and AWK "of 3 frames", and an UPDATE that has nothing but "Updated values"."""
    with RawPeer(broker.url) as service, RawPeer(broker.url) as client:
        service.say(b"", b"UwU", now(), about("nameless"))
        assert service.hear()[1] == b"OwO"
        service.say(b"", b"<3", now())
        assert service.hear()[1] == b"u.u"
        service.say(b"", b"u.u", now())
        service.say(b"", b"UoU", now(), b'{"port": 4003}')
        assert service.hear()[1] == b"u.u"
        client.say(b"", b"u_U", now(), b"nameless")
        assert json.loads(client.hear()[3])["nameless"]["port"] == 4003


def test_a_req_socket_asks_again_and_again(broker: testing.Broker) -> None:
    with RawPeer(broker.url, zmq.REQ) as client:
        for name in (b"", b"nothing", b"polydomo"):
            client.say(b"u_U", now(), name)  # the socket adds and removes the empty frame
            assert client.hear()[0] == b"o_O"


def test_a_registered_node_is_found_with_its_address_and_port(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as service, RawPeer(broker.url) as client:
        service.say(b"", b"UwU", now(), about("camera"))
        assert service.hear()[1] == b"OwO"
        for asked in (b"camera", b""):  # one service; all active services
            client.say(b"", b"u_U", now(), asked)
            found = json.loads(client.hear()[3])["camera"]
            assert {key: found[key] for key in ("ip", "port", "function")} == {
                "ip": "127.0.0.1",
                "port": 4001,
                "function": "pictures",
            }


def test_a_name_that_is_not_registered_gets_a_warning(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as client:
        client.say(b"", b"u_U", now(), b"absent")
        assert "absent" in json.loads(client.hear()[3])["Error"]


def test_denied_is_framed_as_printed(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as service:
        service.say(b"", b"UoU", now(), b'{"name": "unregistered"}')
        empty, command, at, *reasons = service.hear()
        assert (empty, command) == (b"", b"(O_O)") and is_now(at) and reasons != [b""]


def test_both_sides_beat_until_one_disconnects() -> None:
    # no service is lost, however late its answer is
    with (
        testing.broker(settings={"beats_missed": 1000}) as broker,
        RawPeer(broker.url) as one,
        RawPeer(broker.url) as two,
    ):
        for service, name in ((one, "one"), (two, "two")):
            service.say(b"", b"UwU", now(), json.dumps({"name": name, "heartbeat": 0.1}).encode())
            assert service.hear()[1] == b"OwO"
        for _ in range(2):
            empty, command, at, name_ = one.hear()  # the broker beats, the service answers
            assert (empty, command, name_) == (b"", b"<3", b"one") and is_now(at)
            one.say(b"", b"<3", now(), b"one")
            while (command := one.hear()[1]) == b"<3":
                pass
            assert command == b"u.u"
        one.say(b"", b"</3", now())
        broker.wait_until(lambda server: server.broker.catalog.lookup("one") is None)
        two.say(b"", b"UwU", now(), b'{"name": "two", "heartbeat": 3600}')  # quiet until the end
        while two.hear()[1] != b"OwO":
            pass
        broker.stop()
        assert two.hear()[:2] == [b"", b"</3"]
