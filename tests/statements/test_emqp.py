"""Statements of the eMQP document, with the frames that it prints."""

from polydomo import testing
from tests.statements.raw import RawPeer

HEAD = (b"", b"eMQP/1.0")


def worker_of(broker: testing.Broker, queues: bytes) -> RawPeer:
    """A worker of the document's form, with one free resource."""
    worker = RawPeer(broker.url)
    worker.say(*HEAD, b"INFORM", b"i1", queues)
    ack = worker.hear()
    assert ack[:3] == [*HEAD, b"ACK"] and ack[4:] == [b"i1"]  # EventMQ's router acknowledges an INFORM, and so do we
    beat = worker.hear()
    assert beat[:3] == [*HEAD, b"HEARTBEAT"] and len(beat) == 4
    worker.say(*HEAD, b"READY", b"r1")
    return worker


def test_every_command_is_framed_as_printed(broker: testing.Broker) -> None:
    with worker_of(broker, b"frames") as worker, RawPeer(broker.url) as client:
        worker.say(*HEAD, b"HEARTBEAT", b"h1")  # 4 frames
        # "REQUEST", which the document prints as READY: 7 frames
        client.say(*HEAD, b"READY", b"m1", b"frames", b"", b"hello")
        request = worker.hear()
        assert request[:3] == [*HEAD, b"REQUEST"] and len(request) == 7
        assert request[4] == b"frames" and request[6] == b"hello"
        worker.say(*HEAD, b"REPLY", request[3], b"olleh")  # 5 frames
        assert client.hear() == [*HEAD, b"REPLY", b"m1", b"olleh"]
        worker.say(*HEAD, b"READY", b"r2")  # 4 frames
        client.say(*HEAD, b"REQUEST", b"m2", b"frames", b'{"reply-requested": true}', b"again")
        request = worker.hear()
        worker.say(*HEAD, b"REPLY", request[3], b"niaga")
        reply = client.hear()
        assert reply[:3] == [*HEAD, b"REPLY"] and reply[4:] == [b"niaga", b"m2"]


def test_disconnect_is_framed_as_printed(broker: testing.Broker) -> None:
    with worker_of(broker, b"twice") as worker:
        worker.say(*HEAD, b"INFORM", b"i2", b"twice")
        disconnect = worker.hear()
        assert disconnect[:3] == [*HEAD, b"DISCONNECT"] and len(disconnect) == 4
    with worker_of(broker, b"leaving") as worker:
        worker.say(*HEAD, b"DISCONNECT", b"d1")
        broker.wait_for("leaving", workers=0)


def test_requests_are_routed_by_queue(broker: testing.Broker) -> None:
    with worker_of(broker, b"left") as left, worker_of(broker, b"right") as right, RawPeer(broker.url) as client:
        client.say(*HEAD, b"READY", b"m1", b"right", b"", b"to the right")
        client.say(*HEAD, b"READY", b"m2", b"left", b"", b"to the left")
        assert right.hear()[4::2] == [b"right", b"to the right"]
        assert left.hear()[4::2] == [b"left", b"to the left"]


def test_a_worker_belongs_to_several_queues(broker: testing.Broker) -> None:
    with worker_of(broker, b"one,two") as worker, RawPeer(broker.url) as client:
        for queue in (b"one", b"two"):
            client.say(*HEAD, b"READY", b"m", queue, b"reply-requested", b"body")
            request = worker.hear()
            assert request[4] == queue
            worker.say(*HEAD, b"REPLY", request[3], b"done")
            assert client.hear() == [*HEAD, b"REPLY", b"m", b"done"]
            worker.say(*HEAD, b"READY", b"r")


def test_the_broker_beats() -> None:
    with testing.broker(settings={"beat": 0.1, "beats_missed": 1000}) as broker, worker_of(broker, b"idle") as worker:
        for _ in range(2):
            assert worker.hear()[:3] == [*HEAD, b"HEARTBEAT"]
            worker.say(*HEAD, b"HEARTBEAT", b"h")
