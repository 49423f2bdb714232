"""The ZeroMQ Guide's Lua worker of MDP/0.1, as its code reads: it sends a heartbeat only when its poll of 2,500 s ends, and each heartbeat
of the broker starts that poll again."""

import threading
from collections.abc import Iterator

import pytest
import zmq

import polydomo
from polydomo import testing
from tests.server.harness import wait_for

READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes((command,)) for command in range(1, 6))


class LuaWorker(threading.Thread):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.registrations = 0
        self.over = threading.Event()

    def run(self) -> None:
        with zmq.Context() as context:
            socket = self._connect(context)
            while not self.over.is_set():
                if not socket.poll(100):
                    continue
                message = socket.recv_multipart()
                if message[2] == REQUEST:
                    socket.send_multipart([b"", b"MDPW01", REPLY, message[3], b"", *message[5:]])
                elif message[2] == DISCONNECT:
                    socket.close()
                    socket = self._connect(context)
            socket.close()

    def _connect(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(self.url)
        socket.send_multipart([b"", b"MDPW01", READY, b"echo"])
        self.registrations += 1
        return socket


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings={"beat": "100ms"}) as broker:
        yield broker


def test_it_registers_again_whenever_it_has_expired(broker: testing.Broker) -> None:
    worker = LuaWorker(broker.url)
    worker.start()
    try:
        with polydomo.Client(broker.url) as client:
            for times in (1, 2, 4):
                wait_for(lambda times=times: worker.registrations >= times, f"{times} registrations")  # type: ignore[misc]
                assert client.call("echo", "x", timeout=60).text == "x"
    finally:
        worker.over.set()
        worker.join()
