"""Statements of the DCP document, with the parts that it prints."""

import zmq

from polydomo import testing
from tests.statements.raw import RawPeer

H = (b"", b"DGBX\x01")  # address delimiter, protocol; a DEALER socket sends no address
REGISTRATION, PING, PONG, REQUEST, REPLY, RECONNECT = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"


def worker_of(broker: testing.Broker, service: bytes) -> RawPeer:
    worker = RawPeer(broker.url)
    worker.say(*H, REGISTRATION, service)
    assert worker.hear() == [*H, REGISTRATION, service]
    return worker


def reply(worker: RawPeer, request: list[bytes], *data: bytes) -> None:
    """Answers a request that has one metadata part."""
    _, _, _, _, address, empty, metadata, *_ = request
    assert empty == b""
    worker.say(*H, REPLY, address, b"", metadata, b"", *data)


def test_a_client_may_put_its_own_identity_in_front(broker: testing.Broker) -> None:
    with (
        RawPeer(broker.url, identity=b"me") as client,
        RawPeer(broker.url, identity=b"other") as other,
        worker_of(broker, b"own") as worker,
    ):
        other.say(*H, REQUEST, b"own", b"me", b"", b"m-1", b"", b"forged")  # another's: refused
        for address in ([b"me"], []):  # "inserted if missing"
            client.say(*H, REQUEST, b"own", *address, b"", b"m-2", b"", b"hello")
            request = worker.hear()
            assert request[:4] == [*H, REQUEST, b"own"] and request[5:] == [b"", b"m-2", b"", b"hello"]
            worker.say(*H, REPLY, request[4], b"", b"m-2", b"", b"olleh")
            assert client.hear() == [*H, REPLY, b"me", b"", b"m-2", b"", b"olleh"]


def test_every_message_is_framed_as_printed(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as client, RawPeer(broker.url) as worker:
        worker.say(b"", b"DGBX\x01", b"\x01", b"frames")
        assert worker.hear() == [b"", b"DGBX\x01", b"\x01", b"frames"]
        worker.say(b"", b"DGBX\x01", b"\x02")
        assert worker.hear() == [b"", b"DGBX\x01", b"\x03"]
        client.say(b"", b"DGBX\x01", b"\x04", b"frames", b"", b"meta", b"data", b"", b"one", b"", b"two")
        request = worker.hear()
        address = request[4]
        assert address
        assert request == [
            *(b"", b"DGBX\x01", b"\x04", b"frames", address, b""),
            *(b"meta", b"data", b"", b"one", b"", b"two"),
        ]
        worker.say(b"", b"DGBX\x01", b"\x05", address, b"", b"meta", b"data", b"", b"done")
        assert client.hear() == [b"", b"DGBX\x01", b"\x05", address, b"", b"meta", b"data", b"", b"done"]


def test_the_broker_answers_as_a_router(broker: testing.Broker) -> None:
    """libzmq lets a DEALER and a DEALER exchange messages, too; a REQ socket only talks to a ROUTER or REP socket."""
    with RawPeer(broker.url, zmq.REQ) as peer:
        peer.say(b"DGBX\x01", PING)  # the socket adds and removes the empty part
        assert peer.hear() == [b"DGBX\x01", RECONNECT]


def test_requests_are_routed_by_service_name(broker: testing.Broker) -> None:
    with worker_of(broker, b"left") as left, worker_of(broker, b"right") as right, RawPeer(broker.url) as client:
        client.say(*H, REQUEST, b"right", b"", b"", b"to the right")
        client.say(*H, REQUEST, b"left", b"", b"", b"to the left")
        assert right.hear()[-1] == b"to the right"
        assert left.hear()[-1] == b"to the left"


def test_work_is_distributed_over_the_workers_of_a_service(broker: testing.Broker) -> None:
    with worker_of(broker, b"pool") as one, worker_of(broker, b"pool") as two, RawPeer(broker.url) as client:
        for number in b"12":
            client.say(*H, REQUEST, b"pool", b"", b"%c" % number, b"", b"work")
        for worker in (one, two):
            reply(worker, worker.hear(), b"done")
        assert {client.hear()[5] for _ in range(2)} == {b"1", b"2"}


def test_requests_are_sent_without_waiting_and_tracked_by_metadata(broker: testing.Broker) -> None:
    with worker_of(broker, b"many") as one, worker_of(broker, b"many") as two, RawPeer(broker.url) as client:
        client.say(*H, REQUEST, b"many", b"", b"first", b"", b"a")
        client.say(*H, REQUEST, b"many", b"", b"second", b"", b"b")
        held = {request[6]: (worker, request) for worker in (one, two) for request in [worker.hear()]}
        for metadata in (b"second", b"first"):
            worker, request = held[metadata]
            reply(worker, request, b"answer to " + metadata)
            answer = client.hear()
            assert answer[:3] == [*H, REPLY] and answer[4:] == [b"", metadata, b"", b"answer to " + metadata]


def test_a_client_may_become_a_worker_and_still_ask(broker: testing.Broker) -> None:
    with worker_of(broker, b"other") as other, RawPeer(broker.url) as both, RawPeer(broker.url) as client:
        both.say(*H, REQUEST, b"other", b"", b"own", b"", b"a request")  # a client: no message was needed before
        request = other.hear()
        both.say(*H, REGISTRATION, b"new")
        assert both.hear() == [*H, REGISTRATION, b"new"]
        client.say(*H, REQUEST, b"new", b"", b"m", b"", b"work")
        reply(both, both.hear(), b"done")
        assert client.hear()[4:] == [b"", b"m", b"", b"done"]
        reply(other, request, b"answer")
        assert both.hear()[4:] == [b"", b"own", b"", b"answer"]
        both.say(*H, REQUEST, b"other", b"", b"again", b"", b"a request")  # also as a worker
        reply(other, other.hear(), b"answer")
        assert both.hear()[4:] == [b"", b"again", b"", b"answer"]


def test_requests_are_queued_until_a_worker_is_free(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as client:
        for number in b"12":
            client.say(*H, REQUEST, b"later", b"", b"%c" % number, b"", b"work")
        with worker_of(broker, b"later") as worker:
            for number in b"12":
                request = worker.hear()
                assert request[6] == b"%c" % number
                worker.say(*H, REGISTRATION, b"later")  # asks for nothing: only its answer comes
                assert worker.hear() == [*H, REGISTRATION, b"later"]
                reply(worker, request, b"done")
                assert client.hear()[5] == b"%c" % number


def test_a_worker_passes_a_request_on(broker: testing.Broker) -> None:
    with worker_of(broker, b"first") as first, worker_of(broker, b"second") as second, RawPeer(broker.url) as client:
        client.say(*H, REQUEST, b"first", b"", b"m", b"", b"raw")
        _, _, _, _, address, *_ = first.hear()
        first.say(*H, REQUEST, b"second", address, b"", b"m", b"", b"half done")
        request = second.hear()
        assert request[3] == b"second" and request[5:] == [b"", b"m", b"", b"half done"]
        reply(second, request, b"done")
        assert client.hear()[4:] == [b"", b"m", b"", b"done"]


def test_a_heartbeat_asks_for_more_work(broker: testing.Broker) -> None:
    with worker_of(broker, b"eager") as worker, RawPeer(broker.url) as client:
        for number in b"12":
            client.say(*H, REQUEST, b"eager", b"", b"%c" % number, b"", b"work")
        assert worker.hear()[6] == b"1"
        worker.say(*H, PING)
        assert sorted(message[2] for message in (worker.hear(), worker.hear())) == [PONG, REQUEST]


def test_a_worker_that_is_not_registered_gets_reconnect(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as worker:
        worker.say(*H, PING)
        assert worker.hear() == [*H, RECONNECT]
        worker.say(*H, REGISTRATION, b"again")
        assert worker.hear() == [*H, REGISTRATION, b"again"]


def test_a_request_is_lost_with_the_broker() -> None:
    with testing.broker() as broker, RawPeer(broker.url) as client:
        client.say(*H, REQUEST, b"volatile", b"", b"m", b"", b"work")
        broker.wait_until(lambda server: b"volatile" in server.broker.services)
        broker.kill()
        broker.start()
        with worker_of(broker, b"volatile") as worker:
            worker.say(*H, PING)
            assert worker.hear() == [*H, PONG]
