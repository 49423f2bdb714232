"""Durable jobs as programs outside see them: a load balancer, EventMQ's schedules over a real socket, and ``polydomo replay``."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

import polydomo.testing
from polydomo import Call, CallFailed, Client, Worker
from polydomo.testing import Broker
from tests.cli import shell
from tests.cli.shell import run
from tests.jobs.test_end_to_end import PATIENCE, wait_for
from tests.postgres import Postgres


def health(broker: Broker) -> int:
    """The status of ``/healthz?leader``."""
    url = broker.url.replace("tcp://", "http://")
    try:
        with urllib.request.urlopen(f"{url}/healthz?leader", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def leader_and_second(server: Postgres) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers with one store. The first keeps its lease also while the machine stands still."""
    first_settings = {"store": server.url, "durable.lease": "600s"}
    with polydomo.testing.broker(settings=first_settings, jobs=True) as first:
        wait_for(lambda: health(first) == 200)
        with polydomo.testing.broker(settings={"store": server.url, "durable.lease": "3s"}, jobs=True) as second:
            wait_for(lambda: (health(first), health(second)) == (200, 503))
            yield first, second


def test_a_broker_with_a_store_of_its_own_leads_and_one_without_does_not() -> None:
    with polydomo.testing.broker(jobs=True) as leader, polydomo.testing.broker() as other:
        wait_for(lambda: health(leader) == 200)
        assert health(other) == 503


@pytest.mark.xdist_group("postgres")
def test_a_load_balancer_finds_the_leader_after_a_failover() -> None:
    server = Postgres()
    try:
        server.start()
        with leader_and_second(server) as (first, second):
            first.kill()
            server.expire_lease()
            wait_for(lambda: health(second) == 200)
            with Client(second.url, timeout=PATIENCE) as client:
                assert client.submit_job("work", "accepted")
    finally:
        server.remove()


@pytest.fixture
def emqp(request: pytest.FixtureRequest) -> Iterator["tuple[Broker, zmq.Socket[bytes]]"]:
    with polydomo.testing.broker(jobs=True) as broker:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(broker.url)
        try:
            yield broker, socket
        finally:
            socket.close()
            context.term()


def test_emqp_schedules_without_a_scheduler(emqp: "tuple[Broker, zmq.Socket[bytes]]") -> None:
    broker, socket = emqp
    seen: list[Call] = []
    worker = Worker(broker.url, "emqp")

    def send(call: Call) -> bytes:
        seen.append(call)
        return b"sent"

    worker.add("mail", send)
    head = [b"", b"eMQP/1.0"]
    with worker, Client(broker.url, timeout=PATIENCE) as client:
        jobs, call = client._client.jobs, client._background.run
        socket.send_multipart([*head, b"SCHEDULE", b"m1", b"mail", b"x-order:17", b"1", b"weekly report", b""])
        wait_for(lambda: len(seen) >= 2)
        assert {one.text for one in seen} == {"weekly report"} and seen[0].headers["x-order"] == "17"
        assert all(one.job for one in seen)
        (row,) = call(jobs.ask("schedules", {}))[0]["schedules"]
        assert (row["service"], row["when"]) == ("mail", "every 1s")
        socket.send_multipart([*head, b"UNSCHEDULE", b"m2", b"mail", b"", b"-1", b"weekly report", b""])
        wait_for(lambda: call(jobs.ask("schedules", {}))[0]["schedules"] == [])


def test_failed_requests_are_replayed(tmp_path: Path) -> None:
    """Requests that failed while a service was broken are made again once it works."""
    works = threading.Event()
    seen: list[str] = []

    def paint(call: Call) -> str:
        if not works.is_set() and call.text != "white":
            raise CallFailed("broken", "out of paint")
        seen.append(call.text)
        return call.text

    with shell.Broker(tmp_path, "--journal", "messages", "--service", "paint.bodies") as broker:
        worker = Worker(broker.url)
        worker.add("paint", paint)
        with worker, Client(broker.url, timeout=PATIENCE) as client:
            assert client.call("paint", "white").text == "white"
            for colour in ("red", "blue"):
                with pytest.raises(CallFailed):
                    client.call("paint", colour)
            works.set()

            def flushed() -> "dict[str, Any]":
                status: dict[str, Any] = client.call("polydomo.journal", "flush").json()
                return status

            status = flushed()
            wait_for(lambda: flushed()["safe"] >= status["rows"])
            words = (
                "replay",
                status["directory"],
                "--outcome",
                "failed",
                "--speed",
                "max",
                "--json",
                "--to",
                broker.url,
            )
            result = run(*words)
    assert result.returncode == 0, result.stderr
    assert seen == ["white", "red", "blue"]
    found = json.loads(result.stdout)
    assert found["answered"] == 2 and found["failed"] == 0
