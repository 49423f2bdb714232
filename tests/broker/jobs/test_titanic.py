"""Titanic (ZeroMQ RFC 9): titanic.request, titanic.reply and titanic.close, over plain pyzmq and through a crash of the broker."""

import time
import uuid
from collections.abc import Iterator

import pytest
import zmq

import polydomo.testing
from polydomo import Worker
from polydomo.model.jobs.messages import read_id
from polydomo.testing import Broker

PATIENCE = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with polydomo.testing.broker(jobs=True) as broker:
        yield broker


def call(url: str, service: bytes, *body: bytes) -> list[bytes]:
    """One call of a plain MDP/0.1 client."""
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.connect(url)
        socket.send_multipart([b"MDPC01", service, *body])
        assert socket.poll(int(PATIENCE * 1000)), "no reply"
        reply = socket.recv_multipart()
    assert reply[:2] == [b"MDPC01", service]
    return reply[2:]


def fetch(url: str, job: bytes) -> list[bytes]:
    """Asks until the reply is there."""
    deadline = time.monotonic() + PATIENCE
    while (reply := call(url, b"titanic.reply", job))[0] == b"300":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return reply


def test_request_reply_and_close(broker: Broker) -> None:
    status, job = call(broker.url, b"titanic.request", b"echo", b"Hello", b"world")
    assert status == b"200"
    assert call(broker.url, b"titanic.reply", job) == [b"300"]
    worker = Worker(broker.url, "mdp1")
    worker.add("echo", lambda call: list(call))
    with worker:
        assert fetch(broker.url, job) == [b"200", b"Hello", b"world"]
    assert call(broker.url, b"titanic.close", job) == [b"200"]
    assert call(broker.url, b"titanic.reply", job) == [b"400"]
    assert call(broker.url, b"titanic.close", job) == [b"200"]  # a client that lost the first answer repeats it
    assert call(broker.url, b"titanic.close", b"no id") == [b"400"]


def test_the_id_is_a_uuid_and_every_form_of_it_is_accepted(broker: Broker) -> None:
    """The Guide's C# client parses the id as a UUID, and sends it in a form of its own."""
    _, job = call(broker.url, b"titanic.request", b"echo", b"Hello")
    known = uuid.UUID(job.decode())
    assert job.decode() == known.hex.upper()
    worker = Worker(broker.url, "mdp1")
    worker.add("echo", lambda call: list(call))
    with worker:
        fetch(broker.url, job)
    base32 = read_id(known.hex)
    assert len(base32) == 26, "as the broker shows it, and stored by earlier versions"
    for form in (known.hex, str(known), str(known).upper(), f"{{{known}}}", base32, base32.lower()):
        assert call(broker.url, b"titanic.reply", form.encode()) == [b"200", b"Hello"]
    with polydomo.Client(broker.url) as client:
        assert client.job(str(known))["job"] == base32
    for wrong in (known.hex[:-1], known.hex + "0", "g" + known.hex[1:]):
        assert call(broker.url, b"titanic.reply", wrong.encode()) == [b"400"]


def test_a_request_survives_a_crash(broker: Broker) -> None:
    _, job = call(broker.url, b"titanic.request", b"upper", b"kept")
    broker.kill()
    broker.start()
    worker = Worker(broker.url)
    worker.add("upper", lambda call: call.text.upper())
    with worker:
        assert fetch(broker.url, job) == [b"200", b"KEPT"]


def test_unknown_and_invalid_requests(broker: Broker) -> None:
    assert call(broker.url, b"titanic.reply", b"4b1ec2b6") == [b"400"]
    assert call(broker.url, b"titanic.reply", b"01KDVDNA000000000000000000") == [b"400"]
    assert call(broker.url, b"titanic.request", b"polydomo.status", b"x") == [b"400"]
    assert call(broker.url, b"mmi.service", b"titanic.request") == [b"200"]


def test_a_job_that_fails_for_good(broker: Broker) -> None:
    broker.close()
    with polydomo.testing.broker(settings={"durable.attempts": 1}, jobs=True) as strict:
        worker = Worker(strict.url)
        worker.add("broken", lambda call: 1 / 0)
        with worker:
            _, job = call(strict.url, b"titanic.request", b"broken", b"x")
            status, reason = fetch(strict.url, job)
            assert status == b"500" and b"division by zero" in reason


def test_an_open_request_is_closed_by_cancelling_it(broker: Broker) -> None:
    _, job = call(broker.url, b"titanic.request", b"nobody", b"x")
    assert call(broker.url, b"titanic.close", job) == [b"200"]
    assert call(broker.url, b"titanic.reply", job) == [b"400"]
    assert call(broker.url, b"titanic.close", job) == [b"200"]


def test_a_worker_may_offer_titanic_itself(broker: Broker) -> None:
    """The Guide's own Titanic is a worker: where one registers, it is served instead."""
    worker = Worker(broker.url, "mdp1")
    worker.add("titanic.request", lambda call: [b"200", b"its own"])
    with worker:
        broker.wait_for("titanic.request", timeout=PATIENCE)
        assert call(broker.url, b"titanic.request", b"echo", b"x") == [b"200", b"its own"]
