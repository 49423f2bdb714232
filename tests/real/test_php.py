"""A PHP worker over php-zmq that sends the frames of the ZeroMQ Guide's PHP worker: REPLY without the empty frame."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import polydomo
from tests.server.harness import Broker, Socket, wait_for

WORKER = Path(__file__).parent / "programs" / "mdp_worker.php"


def missing() -> str:
    """Why the worker cannot run here; "" if it can."""
    php = shutil.which("php")
    if php is None:
        return "php is not installed (Debian: php-cli)"
    modules = subprocess.run([php, "-m"], capture_output=True, text=True, check=False).stdout.split()
    return "" if "zmq" in modules else "php has no ZeroMQ extension (Debian: php-zmq)"


pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"real peers: {missing()}"),
    pytest.mark.real_time,
]


class Worker:
    def __init__(self, broker: Broker, service: str) -> None:
        self.process = subprocess.Popen(
            ["php", str(WORKER), broker.url, service], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline().strip()) == "heartbeat":
            pass
        return line

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, "--beat=2500ms") as broker:
        yield broker


@pytest.fixture
def worker(broker: Broker) -> Iterator[Worker]:
    worker = Worker(broker, "reverse")
    try:
        assert worker.line() == "ready"
        wait_for(lambda: broker.workers("reverse") == 1, "its registration")
        yield worker
    finally:
        worker.stop()


def test_clients_of_every_kind_are_answered_and_the_worker_stays(broker: Broker, worker: Worker) -> None:
    with Socket("REQ", broker.url) as guide, polydomo.Client(broker.url) as client:
        guide.send(b"MDPC01", b"reverse", b"hello")
        assert guide.receive() == [b"MDPC01", b"reverse", b"olleh"]
        for number in range(20):
            assert client.call("reverse", f"{number:02d}").text == f"{number:02d}"[::-1]
        assert list(client.call("reverse", "ab", "", "cd")) == [b"ba", b"", b"dc"]
        assert list(client.call("reverse", "", "ab")) == [b"", b"ba"], (
            "the dialect is known: an empty first frame is body"
        )
    assert [worker.line() for _ in range(3)] == ["job hello", "job 00", "job 01"]
    (row,) = broker.ask("workers")
    assert (row["protocol"], row["dialect"], row["done"], row["failed"]) == ("mdp1", "guide-php", 23, 0)
    assert not broker.complained(), "no violation, no lost worker, no request requeued"


@pytest.mark.long
def test_its_slow_heartbeats_do_not_make_it_late(broker: Broker, worker: Worker) -> None:
    """It beats only when the broker's heartbeats wake it: every 2.5 to 5 seconds."""
    end = time.monotonic() + 25
    while time.monotonic() < end:
        (row,) = broker.ask("workers")
        assert row["state"] == "ready" and row["worker"] == "w1"
        time.sleep(0.2)
    assert not broker.complained()
