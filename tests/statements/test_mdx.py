"""Statements of the MDX draft, with the frames that it prints."""

from polydomo import testing
from tests.statements.raw import RawPeer

C, W = b"MDXC01", b"MDXW01"
READY, REQUEST, PARTIAL, FINAL = b"\x01", b"\x02", b"\x03", b"\x04"
EMPTY = b""


def worker_of(broker: testing.Broker, service: bytes) -> RawPeer:
    worker = RawPeer(broker.url)
    worker.say(W, READY, service)
    worker.say(W, b"PING")
    assert worker.hear() == [W, b"PONG"]
    return worker


def test_every_command_is_framed_as_printed(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as client, RawPeer(broker.url) as worker:
        worker.say(W, b"\x01", b"frames")  # READY: 3 frames
        worker.say(W, b"PING")  # PING, PONG: 2 frames
        assert worker.hear() == [W, b"PONG"]
        client.say(C, b"\x01", b"frames", b"id-1", b"one", b"two")  # REQUEST: 5 or more frames
        header, command, address, empty, request_id, *body = worker.hear()
        assert (header, command, empty, request_id, body) == (W, b"\x02", b"", b"id-1", [b"one", b"two"])
        assert address
        worker.say(W, b"\x03", address, b"", b"id-1", b"part", b"1")
        worker.say(W, b"\x03", address, b"", b"id-1", b"part", b"2")
        worker.say(W, b"\x04", address, b"", b"id-1", b"end")
        assert client.hear() == [C, b"\x02", b"frames", b"id-1", b"part", b"1"]
        assert client.hear() == [C, b"\x02", b"frames", b"id-1", b"part", b"2"]
        assert client.hear() == [C, b"\x03", b"frames", b"id-1", b"end"]


def test_disconnect_is_framed_as_printed(broker: testing.Broker) -> None:
    with worker_of(broker, b"twice") as worker:
        worker.say(W, READY, b"twice")  # "The worker MUST NOT send a further READY."
        assert worker.hear() == [b"MDPW02", b"\x06"]


def test_there_is_no_response_to_a_ready(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as worker:
        worker.say(W, READY, b"quiet")
        worker.say(W, b"PING")
        assert worker.hear() == [W, b"PONG"]
        worker.say(W, READY, b"quiet")
        assert worker.hear() == [b"MDPW02", b"\x06"]  # so there was one PONG, for the PING


def test_requests_are_sent_without_waiting_and_answered_under_their_ids(broker: testing.Broker) -> None:
    with worker_of(broker, b"many") as one, worker_of(broker, b"many") as two, RawPeer(broker.url) as client:
        for number in b"123":
            client.say(C, READY, b"many", b"%c" % number, b"body")
        first, second = one.hear(), two.hear()
        assert {first[4], second[4]} == {b"1", b"2"}
        two.say(W, FINAL, second[2], EMPTY, second[4], b"b")
        assert client.hear() == [C, b"\x03", b"many", second[4], b"b"]
        # "after a FINAL command, the broker can continue to send messages to the client"
        third = two.hear()
        assert third[4] == b"3"
        two.say(W, PARTIAL, third[2], EMPTY, b"3", b"c")
        assert client.hear() == [C, b"\x02", b"many", b"3", b"c"]
        one.say(W, FINAL, first[2], EMPTY, first[4], b"a")
        assert client.hear() == [C, b"\x03", b"many", first[4], b"a"]
        two.say(W, FINAL, third[2], EMPTY, b"3", b"d")
        assert client.hear() == [C, b"\x03", b"many", b"3", b"d"]


def test_requests_are_routed_by_service_name(broker: testing.Broker) -> None:
    with worker_of(broker, b"left") as left, worker_of(broker, b"right") as right, RawPeer(broker.url) as client:
        client.say(C, READY, b"right", b"r", b"to the right")
        client.say(C, READY, b"left", b"l", b"to the left")
        assert right.hear()[4:] == [b"r", b"to the right"]
        assert left.hear()[4:] == [b"l", b"to the left"]


def test_the_least_recently_used_worker_is_next(broker: testing.Broker) -> None:
    with worker_of(broker, b"turn") as one, worker_of(broker, b"turn") as two, RawPeer(broker.url) as client:
        for number, worker in enumerate([one, two, one, two]):
            client.say(C, READY, b"turn", b"%d" % number, b"body")
            request = worker.hear()
            worker.say(W, FINAL, *request[2:])
            assert client.hear() == [C, b"\x03", b"turn", b"%d" % number, b"body"]


def test_the_request_of_a_worker_that_dies_goes_to_another(broker: testing.Broker) -> None:
    with RawPeer(broker.url) as client:
        with worker_of(broker, b"fragile") as first:
            client.say(C, READY, b"fragile", b"id", b"body")
            lost = first.hear()
        with worker_of_busy(broker, b"fragile") as second:
            again = second.hear()
            assert again[3:] == lost[3:] and again[2] != lost[2]
            second.say(W, FINAL, *again[2:])
            assert client.hear() == [C, b"\x03", b"fragile", b"id", b"body"]


def worker_of_busy(broker: testing.Broker, service: bytes) -> RawPeer:
    """A worker that gets a request at once."""
    worker = RawPeer(broker.url)
    worker.say(W, READY, service)
    return worker


def test_clients_and_workers_do_not_see_each_other_and_come_and_go(broker: testing.Broker) -> None:
    seen = set()
    for number in range(3):
        with worker_of(broker, b"visited") as worker, RawPeer(broker.url, identity=b"a client") as client:
            client.say(C, READY, b"visited", b"id", b"%d" % number)
            request = worker.hear()
            seen.add(request[2])
            worker.say(W, FINAL, *request[2:])
            assert client.hear() == [C, b"\x03", b"visited", b"id", b"%d" % number]
        broker.wait_for("visited", workers=0)
    assert len(seen) == 3 and b"a client" not in seen


def test_a_message_of_mdp_0_2_is_another_protocol(broker: testing.Broker) -> None:
    """A client of MDP/0.2 has no request id: it is served, and told apart by frame 0."""
    with worker_of(broker, b"both") as worker, RawPeer(broker.url) as client:
        client.say(b"MDPC02", b"\x01", b"both", b"body")
        request = worker.hear()
        assert request[4] == request[2] and request[5:] == [b"body"]
        worker.say(W, FINAL, *request[2:])
        assert client.hear() == [b"MDPC02", b"\x03", b"both", b"body"]
