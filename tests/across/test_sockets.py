"""One call of every pair over real sockets: libzmq and NNG carry what the peers say, to a broker on a port of its own."""

import json
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pynng
import pytest
import zmq

from polydomo import testing
from polydomo.protocols.ends import ClientEnd, Delivery, Event, Frames, Reply, WorkerEnd
from polydomo.wire.link import Hub, LinkHandler
from sim.http_ends import HttpClientEnd, HttpPeerLink
from tests.across.kinds import CLIENTS, PAIRS, WORKERS

WAIT = 60.0
TYPES = {b"DEALER": zmq.DEALER, b"REQ": zmq.REQ}

End = ClientEnd | WorkerEnd


class Zmq:
    """An end on a socket of libzmq. A REQ socket writes and takes the empty frame itself."""

    def __init__(self, end: End, url: str) -> None:
        self.end = end
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(TYPES[end.socket_type])
        self.socket.setsockopt(zmq.LINGER, 0)
        if end.identity:
            self.socket.setsockopt(zmq.IDENTITY, end.identity)
        self.socket.connect(url)
        self.lead = 1 if end.socket_type == b"REQ" else 0

    def exchange(self) -> list[Event]:
        for message in self.end.out:
            assert message[: self.lead] == [b""][: self.lead]
            self.socket.send_multipart(message[self.lead :])
        self.end.out.clear()
        events: list[Event] = []
        while self.socket.poll(1):
            events += self.end.receive([b""][: self.lead] + self.socket.recv_multipart())
        return events

    def close(self) -> None:
        self.socket.close()


class Nng:
    """An end on a REQ socket of NNG, which keeps the request ids to itself: one request at a time. Its receive is waited for in a thread:
    NNG forgets a request whose receive was given up."""

    def __init__(self, end: End, url: str) -> None:
        self.end = end
        self.socket = pynng.Req0(dial=url, recv_timeout=int(WAIT * 1000))
        self.pool = ThreadPoolExecutor(1)
        self.open: tuple[bytes, Future[bytes]] | None = None

    def exchange(self) -> list[Event]:
        for rid, payload in self.end.out:
            assert self.open is None
            self.socket.send(payload)
            self.open = rid, self.pool.submit(self.socket.recv)
        self.end.out.clear()
        if self.open is None or not wait([self.open[1]], 0.001).done:
            return []
        (rid, received), self.open = self.open, None
        return self.end.receive([rid, received.result()])

    def close(self) -> None:
        self.socket.close()
        self.pool.shutdown()


class Http(LinkHandler):
    """An end on a TCP connection that speaks HTTP."""

    def __init__(self, end: End, url: str) -> None:
        self.end = end
        self.events: list[Event] = []
        self.link = HttpPeerLink(Hub(), self, url)
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)))

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.events += self.end.receive([part.encode("latin-1") for part in json.loads(data[start:end])])

    def exchange(self) -> list[Event]:
        for (data,) in self.end.out:
            self.socket.sendall(data)
        self.end.out.clear()
        if select.select([self.socket], [], [], 0.001)[0]:
            self.link.receive(self.socket.recv(65536))
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self.socket.close()


def attach(end: End, url: str) -> Zmq | Nng | Http:
    if end.wire == "http":
        return Http(end, url)
    return Nng(end, url) if end.wire == "sp" else Zmq(end, url)


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        yield broker


def converse(client: Zmq | Nng | Http, worker: Zmq | Nng | Http) -> Frames:
    """Runs both peers until the client has its reply; the worker answers with the reversed request."""
    assert isinstance(worker.end, WorkerEnd)
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for event in worker.exchange():
            assert isinstance(event, Delivery)
            worker.end.final(event, [frame[::-1] for frame in event.body])
            worker.end.beat()  # libmdp's first reply counts once its next message shows that it is not majortomo's
        for event in client.exchange():
            assert isinstance(event, Reply) and event.final
            return event.body
    raise AssertionError("no reply")


@pytest.mark.parametrize(("client", "worker"), PAIRS)
def test_a_call_over_real_sockets(broker: testing.Broker, client: str, worker: str) -> None:
    service = f"{client} to {worker}".encode()
    worker_end = WORKERS[worker].end()
    client_end = CLIENTS[client].end()
    if isinstance(client_end, HttpClientEnd):
        client_end.prefer = f"wait={WAIT:.0f}"
    hand = attach(worker_end, broker.url)
    asking = attach(client_end, broker.url)
    try:
        worker_end.open([service])
        hand.exchange()
        client_end.request(1, service, [b"stressed"], WAIT)
        assert converse(asking, hand) == [b"desserts"]
    finally:
        asking.close()
        hand.close()
