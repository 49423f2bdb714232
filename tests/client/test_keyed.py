"""Calls with a key, over every protocol that can carry one: a call that is repeated while the first one runs joins it."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.sync.client import connect

from polydomo import Call, CallFailed, CallTimeout, Client, SettingError, Worker, testing
from polydomo.server.server import BrokerServer

WAIT = 60.0  # seconds: far more than anything here takes


class Gate:
    """A worker whose calls wait until they are let through."""

    def __init__(self, broker: testing.Broker) -> None:
        self.broker = broker
        self.open = threading.Event()
        self.began = threading.Event()
        self.runs = 0
        self.calls: list[Call] = []
        self.worker = Worker(broker.url, concurrency=4)
        self.worker.add("gated", self.serve)

    def serve(self, call: Call) -> "Iterator[str] | str":
        self.runs += 1
        self.calls.append(call)
        self.began.set()
        yield "part."
        assert self.open.wait(WAIT)
        return f"{call.text} {self.runs}"

    def joined(self, count: int) -> None:
        """Waits until that many requests have joined others."""
        self.broker.wait_until(
            lambda server: server.broker.keyed is not None and server.broker.keyed.joined >= count, WAIT
        )


@pytest.fixture
def gate(broker: testing.Broker) -> Iterator[Gate]:
    gate = Gate(broker)
    with gate.worker:
        yield gate
        gate.open.set()


def waiting_is_one(server: BrokerServer) -> bool:
    """Whether one request waits for the one run under a key."""
    keyed = server.broker.keyed
    return keyed is not None and [len(run.waiting) for run in keyed.runs.open.values()] == [1]


def web(broker: testing.Broker, key: str) -> str:
    address = broker.url.replace("tcp", "http")
    headers = {"idempotency-key": key}
    return httpx.post(f"{address}/v1/call/gated", content="x", headers=headers, timeout=WAIT).text


def web_stream(broker: testing.Broker, key: str) -> str:
    address = broker.url.replace("tcp", "http")
    headers = {"idempotency-key": key, "accept": "application/x-ndjson"}
    lines = httpx.post(f"{address}/v1/call/gated", content="x", headers=headers, timeout=WAIT).text.splitlines()
    return "".join(frame for line in lines for frame in json.loads(line)["frames"])


def socket(broker: testing.Broker, key: str) -> str:
    with connect(broker.url.replace("tcp", "ws") + "/v1/ws", open_timeout=60) as ws:
        ws.recv(WAIT)
        ws.send(json.dumps({"op": "call", "id": 1, "service": "gated", "body": "x", "key": key}))
        text = ""
        while True:
            message = json.loads(ws.recv(WAIT))
            text += "".join(message["frames"])
            if message["op"] == "final":
                return text


def library(broker: testing.Broker, protocol: str, key: str) -> str:
    with Client(broker.url, protocol, timeout=WAIT) as client:
        return client.call("gated", "x", key=key).text


def streamed(broker: testing.Broker, key: str) -> str:
    with Client(broker.url, timeout=WAIT) as client:
        return "".join(part.text for part in client.stream("gated", "x", key=key))


def test_calls_of_all_protocols_under_one_key_run_once(broker: testing.Broker, gate: Gate) -> None:
    with ThreadPoolExecutor(max_workers=7) as threads:
        ways = [
            lambda: library(broker, "mdx", "k"),
            lambda: library(broker, "emqp", "k"),
            lambda: streamed(broker, "k"),
            lambda: web(broker, "k"),
            lambda: web(broker, "k"),
            lambda: web_stream(broker, "k"),
            lambda: socket(broker, "k"),
        ]
        calls = [threads.submit(way) for way in ways]
        gate.joined(len(ways) - 1)
        gate.open.set()
        assert [call.result(WAIT) for call in calls] == ["part.x 1"] * len(ways)
    assert gate.runs == 1
    assert web(broker, "k") == "part.x 1" and gate.runs == 1  # HTTP stores the reply for a while
    assert library(broker, "mdx", "k") == "part.x 2"  # the key is free again


def test_the_first_client_may_leave(broker: testing.Broker, gate: Gate) -> None:
    with Client(broker.url, timeout=WAIT) as first, Client(broker.url, timeout=WAIT) as second:
        leaving = first.submit("gated", "x", key="k")
        assert gate.began.wait(WAIT)
        staying = second.submit("gated", "x", key="k")
        gate.joined(1)
        assert leaving.cancel()
        broker.wait_until(waiting_is_one, WAIT)
        assert not gate.calls[0].cancelled
        first.close()
        gate.open.set()
        assert staying.result(WAIT).text == "part.x 1"


def test_the_worker_is_told_when_the_last_one_gives_up(broker: testing.Broker, gate: Gate) -> None:
    with Client(broker.url, timeout=WAIT) as client:
        calls = [client.submit("gated", "x", key="k") for _ in range(2)]
        gate.joined(1)
        assert gate.began.wait(WAIT)
        for call in calls:
            assert call.cancel()
        deadline = threading.Event()
        for _ in range(int(WAIT * 100)):
            if gate.calls[0].cancelled:
                break
            deadline.wait(0.01)
        assert gate.calls[0].cancelled


def test_a_client_that_lost_its_connection_finds_its_run(broker: testing.Broker, gate: Gate) -> None:
    first = Client(broker.url, timeout=WAIT)
    first.submit("gated", "x", key="k")
    assert gate.began.wait(WAIT)
    first.close()
    with Client(broker.url, timeout=WAIT) as again:
        call = again.submit("gated", "x", key="k")
        gate.joined(1)
        gate.open.set()
        assert call.result(WAIT).text == "part.x 1"


def test_another_body_is_refused(broker: testing.Broker, gate: Gate) -> None:
    with Client(broker.url, timeout=WAIT) as client, Client(broker.url, "emqp", timeout=WAIT) as other:
        open_call = client.submit("gated", "x", key="k")
        assert gate.began.wait(WAIT)
        with pytest.raises(CallFailed, match="key-reused"):
            client.call("gated", "y", key="k")
        address = broker.url.replace("tcp", "http")
        response = httpx.post(f"{address}/v1/call/gated", content="y", headers={"idempotency-key": "k"}, timeout=WAIT)
        assert (response.status_code, response.json()["type"]) == (422, "urn:polydomo:key-reused")
        other.connect()
        with pytest.raises(CallTimeout):
            other.call("gated", "y", key="k", timeout=1.0)  # eMQP has no message for failures
        gate.open.set()
        assert open_call.result(WAIT).text == "part.x 1" and gate.runs == 1


@pytest.mark.parametrize("protocol", ["mdp1", "mdp2", "dcp", "memo"])
def test_protocols_that_cannot_carry_a_key_say_so(broker: testing.Broker, protocol: str) -> None:
    with Client(broker.url, protocol) as client, pytest.raises(SettingError, match="cannot carry a key"):
        client.call("echo", "x", key="k")


def test_keys_that_cannot_be_sent_are_refused(broker: testing.Broker) -> None:
    with Client(broker.url) as client, pytest.raises(SettingError, match="256 bytes"):
        client.call("echo", "x", key="k" * 256)
    with Client(broker.url, "emqp") as client, pytest.raises(SettingError, match="commas"):
        client.call("echo", "x", key="a,b")
