"""eMQP as its document prints it, in raw frames of libzmq, in both directions."""

from collections.abc import Iterator

import pytest
import zmq

from polydomo import testing
from polydomo.server.settings.settings import Settings

HEAD = [b"", b"eMQP/1.0"]
PATIENCE = 60_000  # milliseconds


class Socket:
    def __init__(self, url: str) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
        self.socket.connect(url)

    def say(self, *rest: bytes) -> None:
        self.socket.send_multipart([*HEAD, *rest])

    def hear(self, command: bytes) -> list[bytes]:
        """The next message; HEARTBEATs before it are skipped, unless one is asked for."""
        while True:
            message = self.socket.recv_multipart()
            assert message[:2] == HEAD
            if message[2] == command:
                return message
            assert message[2] == b"HEARTBEAT", message


@pytest.fixture
def sockets() -> Iterator[list[Socket]]:
    opened: list[Socket] = []
    yield opened
    for one in opened:
        one.socket.close()


def meet(url: str, sockets: list[Socket]) -> tuple[Socket, Socket]:
    """A client, and a worker that is ready for one job."""
    client, worker = Socket(url), Socket(url)
    sockets += [client, worker]
    worker.say(b"INFORM", b"i1", b"echo,other")
    assert worker.hear(b"ACK")[4:] == [b"i1"]
    assert len(worker.hear(b"HEARTBEAT")) == 4
    worker.say(b"READY", b"r1")
    return client, worker


def test_the_document_s_request_and_reply(sockets: list[Socket]) -> None:
    with testing.broker() as broker:
        client, worker = meet(broker.url, sockets)
        client.say(b"READY", b"7", b"echo", b"", b"hello")
        job = worker.hear(b"REQUEST")
        assert len(job) == 7 and job[4] == b"echo" and job[6] == b"hello"
        worker.say(b"REPLY", job[3], b"olleh")
        assert client.hear(b"REPLY") == [*HEAD, b"REPLY", b"7", b"olleh"]


@pytest.mark.parametrize("reply", ["requested", "always"])
def test_the_header_decides_for_eventmq_s_request_unless_the_setting_does(reply: str, sockets: list[Socket]) -> None:
    settings = Settings()
    settings.emqp.reply = reply
    with testing.broker(settings=settings) as broker:
        client, worker = meet(broker.url, sockets)
        for msgid, headers in ((b"a", b""), (b"b", b"reply-requested")):
            client.say(b"REQUEST", msgid, b"echo", headers, b"hello")
            job = worker.hear(b"REQUEST")
            worker.say(b"REPLY", job[3], msgid)
            worker.say(b"READY", b"r")
        answers = [client.hear(b"REPLY")[4:] for _ in range(1 if reply == "requested" else 2)]
        assert answers == ([[b"a", b"a"]] if reply == "always" else []) + [[b"b", b"b"]]
