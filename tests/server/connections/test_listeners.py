"""Listeners besides the shared port: MDX's two sockets, EventMQ's four ports, a port for DBP. Real peers on real sockets."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import polydomo
from polydomo import testing
from polydomo.errors import SettingError
from polydomo.model.listener_roles import ROLES, SHARED
from polydomo.server.settings.settings import Settings, load
from polydomo.wire.address import parse_url
from tests.server.patience import PATIENCE, patient

ANYWHERE = "tcp://127.0.0.1:0"


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    """Every listener there is, each on a port of its own."""
    settings = Settings()
    for key, role in ROLES.items():
        if role is not SHARED:
            section, _, name = key.rpartition(".")
            setattr(settings.get(section), name, ANYWHERE)
    with testing.broker(settings=settings) as broker:
        yield broker


@pytest.mark.parametrize("protocol", ["mdx", "emqp"])
def test_clients_at_the_front_and_workers_at_the_back(broker: testing.Broker, protocol: str) -> None:
    worker = polydomo.Worker(broker.place(f"{protocol}.back"), protocol=protocol)
    worker.add("shout", lambda call: call.text.upper())
    with worker, polydomo.Client(broker.place(f"{protocol}.front"), protocol=protocol) as client:
        broker.wait_for("shout")
        assert client.call("shout", "hello", timeout=PATIENCE).text == "HELLO"
        # and both are at the shared port, too
        with polydomo.Client(broker.url, protocol="memo") as other:
            assert other.call("shout", "you", timeout=PATIENCE).text == "YOU"


def test_a_request_at_the_back_end_is_refused(broker: testing.Broker) -> None:
    with (
        polydomo.Client(broker.place("mdx.back"), protocol="mdx") as client,
        pytest.raises(polydomo.CallFailed) as observed,
    ):
        client.call("shout", "hello", timeout=PATIENCE)
    assert (observed.value.code, observed.value.text) == ("refused", "the listener mdx.back does not accept requests")


def test_a_worker_at_the_front_end_is_disconnected(broker: testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as worker, caplog.at_level(logging.WARNING):
        patient(worker)
        worker.connect(broker.place("mdx.front"))
        worker.send_multipart([b"MDXW01", b"\x01", b"shout"])
        assert worker.recv_multipart() == [b"MDPW02", b"\x06"]
    (line,) = [record for record in caplog.records if record.getMessage() == "protocol violated"]
    assert line.__dict__["fields"]["what"] == "READY refused: the listener mdx.front does not accept workers"


def test_another_protocol_is_closed_with_one_clear_line(
    broker: testing.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer, caplog.at_level(logging.WARNING):
        patient(peer)
        gone = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        patient(gone)
        peer.connect(broker.place("emqp.back"))
        peer.send_multipart([b"", b"MDPW01", b"\x01", b"shout"])
        gone.recv_multipart()
        peer.disable_monitor()
    lines = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "connection closed"]
    assert lines[0]["why"] == "protocol violation: the listener emqp.back does not accept mdp1"


def test_a_publication_at_one_listener_reaches_subscribers_at_another(broker: testing.Broker) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        patient(subscriber)
        subscriber.connect(broker.place("emqp.publish_out"))
        subscriber.setsockopt(zmq.SUBSCRIBE, b"news.")
        broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 1)
        with context.socket(zmq.DEALER) as client:
            patient(client)
            client.connect(broker.place("emqp.publish_in"))
            client.send_multipart([b"", b"eMQP/1.0", b"PUBLISH", b"1", b"news.a", b"from EventMQ's client"])
            assert subscriber.recv_multipart() == [b"news.a", b"from EventMQ's client"]
        with context.socket(zmq.XPUB) as publisher:  # it sees that the broker has subscribed
            patient(publisher)
            publisher.connect(broker.place("emqp.publish_in"))
            assert publisher.recv() == b"\x01"
            publisher.send_multipart([b"news.b", b"from a PUB socket"])
            assert subscriber.recv_multipart() == [b"news.b", b"from a PUB socket"]


def test_a_port_for_dbp(broker: testing.Broker) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as client:
        patient(client)
        client.connect(broker.place("dbp.listen"))
        client.send_multipart([b"u_U", b"1.5", b""])
        command, _, body = client.recv_multipart()
        assert (command, json.loads(body)) == (b"o_O", {})


@pytest.mark.parametrize("hello", [b"GET /metrics HTTP/1.1\r\n\r\n", b"\x00SP\x00\x00\x30\x00\x00"])
def test_no_other_wire_is_taken(broker: testing.Broker, hello: bytes) -> None:
    address = parse_url(broker.place("mdx.front"))
    with socket.create_connection((address.host, address.port), PATIENCE) as peer:
        peer.sendall(hello)
        heard = b""
        while piece := peer.recv(4096):
            heard += piece
    assert not heard.startswith(b"HTTP")


def test_the_log_names_each(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings = Settings()
    settings.mdx.front = f"ipc://{tmp_path}/front"
    with caplog.at_level(logging.INFO), testing.broker(settings=settings) as broker:
        fields = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "listening"]
    assert fields == [{"address": broker.url}, {"address": f"ipc://{tmp_path}/front", "role": "mdx.front"}]


def test_an_address_can_be_had_once() -> None:
    with pytest.raises(SettingError) as caught:
        load(flags={"listen": "tcp://127.0.0.1:5000", "mdx.front": "tcp://127.0.0.1:5000"})
    assert str(caught.value) == "mdx.front (flag --mdx-front): tcp://127.0.0.1:5000 is already used by listen"


def test_public_addresses_must_be_allowed() -> None:
    with pytest.raises(SettingError) as caught:
        load(flags={"emqp.front": "tcp://0.0.0.0:47291"})
    assert str(caught.value).startswith(
        "emqp.front (flag --emqp-front): tcp://0.0.0.0:47291 can be reached from other machines"
    )
    assert load(flags={"emqp.front": "tcp://0.0.0.0:47291", "insecure": True}).emqp.front == "tcp://0.0.0.0:47291"


@pytest.mark.parametrize(("value", "says"), [(5, "must be an address"), ("nowhere", "it has no scheme")])
def test_invalid_addresses(value: object, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        load(flags={"dbp.listen": value})


def test_an_empty_text_is_none() -> None:
    assert len(load(flags={"mdx.front": " "}).listeners()) == 1
