"""``catalog`` and ``register`` as a shell runs them, with our broker and with other people's."""

import json
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from polydomo.cli.calls.catalog import cells
from tests.cli.shell import PATIENCE, Broker, Running, complaint, run


def listed(broker: Broker, *names: str) -> dict[str, dict[str, object]]:
    result = run("catalog", *names, "--to", broker.url, "--json")
    assert result.returncode == 0, result.stderr
    found: dict[str, dict[str, object]] = json.loads(result.stdout)
    return found


def test_the_services_of_other_protocols_are_listed(served: Broker) -> None:
    found = listed(served)
    assert set(found) == {"echo", "upper", "broken", "seq"}
    assert found["seq"]["protocol"] == "mdp2"
    result = run("catalog", "seq", "--to", served.url)
    assert result.stdout.decode().split() == [
        *("SERVICE", "PROTOCOL", "ADDRESS", "FUNCTION", "HEARTBEAT"),
        *("seq", "mdp2", served.url, "-", "-"),
    ]


def test_address_and_heartbeat_in_the_document_s_words() -> None:
    entry = {"name": "camera", "ip address": "10.0.0.7", "port": 4001, "heartbeat timing": 5}
    assert cells("camera", entry) == ["camera", "dbp", "10.0.0.7:4001", "", "5", ""]


def test_a_name_that_is_not_there(served: Broker) -> None:
    result = run("catalog", "nobody", "--to", served.url)
    assert result.returncode == 4
    assert complaint(result) == "No Registered Service With the Name nobody"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that waits ten seconds for a beat of those below: a machine that pauses is not what these tests are about."""
    with Broker(tmp_path / "data", "--beats-missed=100") as broker:
        yield broker


def test_register_keeps_a_service_in_the_catalog_until_it_is_stopped(broker: Broker) -> None:
    words = ["register", "weather", "--port", "8080", "--function", "tells it", "--beat", "0.1", "--to", broker.url]
    with Running(*words) as service:
        assert service.line() == b"registered weather; a heartbeat every 0.1 s\n"
        entry = listed(broker, "weather")["weather"]
        wanted = {"name": "weather", "ip": "127.0.0.1", "port": 8080, "function": "tells it", "heartbeat": 0.1}
        assert {key: entry.get(key) for key in wanted} == wanted
        service.send(signal.SIGTERM)
        assert service.status() == 0
    assert listed(broker) == {}


def test_register_beats_again_after_the_broker_was_killed(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", "--beats-missed=100") as first:
        url = first.url
        service = Running("register", "weather", "--port", "8080", "--beat", "0.1", "--to", url)
        with service:
            assert service.line().startswith(b"registered weather")
            first.send(signal.SIGKILL)
            first.status()
            service.wait_until(lambda: bool(service.said), "complaint")
            with Broker(tmp_path / "data", "--beats-missed=100", listen=url) as second:
                assert service.line().startswith(b"registered weather")
                assert "weather" in listed(second)


def test_register_waits_for_a_broker(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        url = broker.url
    with Running("register", "weather", "--port", "8080", "--to", url) as service:
        service.wait_until(lambda: bool(service.said), "complaint")
        assert service.said[0].startswith(f"polydomo: no broker answers at {url}")
        assert service.said[0].endswith("waiting for the broker")
        service.send(signal.SIGINT)
        assert service.status() == 0


def test_a_denied_registration_is_reported(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", "--dbp-names", "others") as broker:
        result = run("register", "weather", "--port", "8080", "--to", broker.url)
    assert result.returncode == 1
    assert complaint(result).startswith("denied: ")


# --- with a broker that is not ours ------------------------------------------------------------------------------------


class Plain:
    """A ROUTER that answers as the published catalog service does: 4-byte times, a body frame in every answer."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.heard: list[list[bytes]] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        answers = {
            b"u_U": (b"o_O", json.dumps({"weather": {"name": "weather", "interfaces": {}}}).encode()),
            b"UwU": (b"OwO", b""),
            b"<3": (b"u.u", b""),
        }
        with self.socket, suppress(zmq.ContextTerminated):  # an open socket would let close() wait for ever
            self.socket.linger = 0
            while True:
                peer, empty, command, time, *body = self.socket.recv_multipart()
                assert empty == b"" and len(time) == 4
                self.heard.append([command, *body])
                if command in answers:
                    answer, observed = answers[command]
                    self.socket.send_multipart([peer, b"", answer, struct.pack("=f", 1.0), observed])

    def close(self) -> None:
        self.context.term()
        self.thread.join(PATIENCE)


@pytest.fixture
def plain() -> Iterator[Plain]:
    broker = Plain()
    yield broker
    broker.close()


def test_the_catalog_of_another_broker(plain: Plain) -> None:
    url = f"tcp://127.0.0.1:{plain.port}"
    result = run("catalog", "--to", url, "--json")
    assert json.loads(result.stdout) == {"weather": {"name": "weather", "interfaces": {}}}
    assert plain.heard == [[b"u_U", b""]]
    with Running("register", "weather", "--port", "1", "--beat", "0.05", "--to", url) as service:
        assert service.line() == b"registered weather; a heartbeat every 0.05 s\n"
        while [b"<3", b"weather"] not in plain.heard:
            assert service.process.poll() is None
            threading.Event().wait(0.01)
        service.send(signal.SIGTERM)
        assert service.status() == 0
    assert [command for command, *_ in plain.heard[1:3]] == [b"UwU", b"<3"]


def test_a_broker_that_does_not_speak_dbp() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as silent:
        port = silent.bind_to_random_port("tcp://127.0.0.1")
        result = run("catalog", "--to", f"tcp://127.0.0.1:{port}", "--timeout", "0.2")
    assert result.returncode == 3
    assert "does it speak DBP?" in complaint(result)


def test_update_changes_an_entry(broker: Broker) -> None:
    words = ["register", "weather", "--port", "8080", "--function", "tells it", "--beat", "0.1", "--to", broker.url]
    with Running(*words) as service:
        service.line()
        result = run("update", "weather", "--function", "tells more", "--port", "8081", "--to", broker.url)
        assert (result.returncode, result.stdout) == (0, b"updated weather; a heartbeat every 0.1 s\n"), result.stderr
        entry = listed(broker, "weather")["weather"]
        assert (entry["function"], entry["port"], entry["heartbeat"]) == ("tells more", 8081, 0.1)
        assert list(json.loads(run("catalog", "--function", "tells*", "--to", broker.url, "--json").stdout)) == [
            "weather"
        ]
        missing = run("catalog", "--function", "tells it", "--to", broker.url)
        assert missing.returncode == 4 and "has the function 'tells it'" in complaint(missing)


def test_an_update_that_is_rejected(broker: Broker) -> None:
    result = run("update", "nobody", "--port", "1", "--to", broker.url)
    assert result.returncode == 1 and "nobody is not registered" in complaint(result)
    result = run("update", "nobody", "--to", broker.url)
    assert result.returncode == 2 and "at least one value" in complaint(result)


def test_register_names_a_publisher_and_update_changes_its_topics(broker: Broker) -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as station:
        station.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        port = str(station.bind_to_random_port("tcp://127.0.0.1"))
        words = ["register", "weather", "--port", "8080", "--pub-port", port, "--topic", "weather.", "--topic", "sea."]
        with Running(*words, "--beat", "0.1", "--to", broker.url):
            assert {station.recv(), station.recv()} == {b"\x01weather.", b"\x01sea."}
            assert run("update", "weather", "--topic", "air.", "--to", broker.url).returncode == 0
            assert {station.recv() for _ in range(3)} == {b"\x00weather.", b"\x00sea.", b"\x01air."}
    result = run("register", "weather", "--port", "8080", "--topic", "weather.", "--to", broker.url)
    assert result.returncode == 2 and "--pub-port" in complaint(result)
