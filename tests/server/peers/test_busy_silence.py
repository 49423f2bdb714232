"""A worker that freezes while it works, in raw frames of libzmq as the documents print them: another worker gets its request."""

from collections.abc import Iterator

import pytest
import zmq

import polydomo
from polydomo import testing
from polydomo.server.settings.settings import Settings

PATIENCE = 60.0  # seconds
DCP = [b"", b"DGBX\x01"]
EMQP = [b"", b"eMQP/1.0"]

# For each protocol: the messages that register a worker that is ready for one request, and its heartbeat.
REGISTER = {
    "mdx": [[b"MDXW01", b"\x01", b"work"]],
    "dcp": [[*DCP, b"\x01", b"work"]],
    "emqp": [[*EMQP, b"INFORM", b"i", b"work"], [*EMQP, b"READY", b"r"]],
}
BEAT = {"mdx": [b"MDXW01", b"PING"], "dcp": [*DCP, b"\x02"], "emqp": [*EMQP, b"HEARTBEAT", b"h"]}
REQUEST = {"mdx": (1, b"\x02"), "dcp": (2, b"\x04"), "emqp": (2, b"REQUEST")}  # where a REQUEST has which command


def answer(protocol: str, request: list[bytes], body: bytes) -> list[bytes]:
    if protocol == "mdx":
        return [b"MDXW01", b"\x04", request[2], b"", request[4], body]
    if protocol == "dcp":
        return [*DCP, b"\x05", request[4], b"", b"", body]
    return [*EMQP, b"REPLY", request[3], body]


class RawWorker:
    def __init__(self, protocol: str, url: str) -> None:
        self.protocol = protocol
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(url)
        for message in REGISTER[protocol]:
            self.socket.send_multipart(message)

    def request(self, seconds: float) -> list[bytes] | None:
        """The next REQUEST within this time; None if there is none. It sends a heartbeat while it waits."""
        place, command = REQUEST[self.protocol]
        for _ in range(int(seconds * 20)):
            while self.socket.poll(50):
                message = self.socket.recv_multipart()
                if message[place] == command:
                    return message
            self.socket.send_multipart(BEAT[self.protocol])
        return None


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    settings = Settings()
    settings.beat = 0.2
    settings.beats_missed = 10  # two seconds for idle and for busy workers; the busy timeout is 15 minutes
    with testing.broker(settings=settings) as broker:
        yield broker


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_frozen_worker_loses_its_request_as_if_it_were_idle(protocol: str, broker: testing.Broker) -> None:
    first, second = None, None
    try:
        with polydomo.Client(broker.url) as client:
            pending = client.submit("work", "precious", timeout=PATIENCE)
            broker.wait_until(lambda server: server.broker.open_requests == 1)
            first = RawWorker(protocol, broker.url)
            assert first.request(PATIENCE) is not None
            # it freezes: no heartbeat, and its connection stays open
            broker.wait_until(lambda server: not server.broker.workers)
            second = RawWorker(protocol, broker.url)
            request = second.request(PATIENCE)
            assert request is not None
            second.socket.send_multipart(answer(protocol, request, b"saved"))
            assert pending.result().text == "saved"
    finally:
        for worker in (first, second):
            if worker is not None:
                worker.socket.close()
