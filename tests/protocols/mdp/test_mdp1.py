"""MDP/0.1, the broker's end, through real ZMTP bytes."""

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.wire.frames import join, more
from tests.protocols.mdp.rig import Frames, Peer, Rig, long_form

C = (b"", b"MDPC01")
W = (b"", b"MDPW01")
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes((i,)) for i in range(1, 6))
GOODBYE = [[*W, DISCONNECT]]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def worker_of(rig: Rig, service: bytes = b"echo") -> Peer:
    peer = rig.peer()
    peer.say(*W, READY, service)
    return peer


def job_of(worker: Peer) -> Frames:
    job = worker.only()
    assert job[:3] == [*W, REQUEST] and len(job[3]) == 12 and job[4] == b""
    return job


def busy_of(rig: Rig) -> tuple[Peer, bytes, Peer]:
    """A worker that holds a request, the address in it, and the client."""
    worker, client = worker_of(rig), rig.peer(b"REQ")
    client.say(*C, b"echo", b"body")
    return worker, job_of(worker)[3], client


# --- requests and replies


def test_ready_has_no_response(rig: Rig) -> None:
    worker = worker_of(rig)
    assert worker.heard() == [] and worker.session.protocol == "mdp1"
    assert list(rig.broker.services) == [b"echo"]


@pytest.mark.parametrize("body", [[b""], [b"x"], [b"", b""], [b"a" * 255, b"b" * 256, b"c" * 40_000], [b"x"] * 100])
def test_bodies_pass_as_they_are(rig: Rig, body: Frames) -> None:
    worker, client = worker_of(rig), rig.peer(b"REQ")
    client.say(*C, b"echo", *body)
    job = job_of(worker)
    assert job[5:] == body
    worker.say(*W, REPLY, job[3], b"", *body)
    assert client.heard() == [[*C, b"echo", *body]]


def test_a_request_without_a_body_does_no_harm(rig: Rig) -> None:
    worker, client = worker_of(rig), rig.peer(b"REQ")
    client.say(*C, b"echo")
    job = job_of(worker)
    assert job[5:] == [b""], "a body of no frames becomes one empty frame"
    worker.say(*W, REPLY, job[3], b"")
    assert client.heard() == [[*C, b"echo", b""]], "and so does a reply"
    assert client.closed == "" and worker.closed == ""


def test_partials_are_joined_for_a_client_that_has_none(rig: Rig) -> None:
    worker, client = rig.peer(), rig.peer(b"REQ")
    worker.say(b"MDPW02", b"\x01", b"echo")
    client.say(*C, b"echo", b"x")
    address = worker.only()[2]
    worker.say(b"MDPW02", b"\x03", address, b"", b"one")
    worker.say(b"MDPW02", b"\x03", address, b"", b"two")
    assert client.heard() == []
    worker.say(b"MDPW02", b"\x04", address, b"", b"three")
    assert client.heard() == [[*C, b"echo", b"one", b"two", b"three"]]


def test_frames_in_long_form_are_taken(rig: Rig) -> None:
    worker, client = rig.peer(), rig.peer()
    worker.say_raw(long_form(*W, READY, b"echo"))
    client.say_raw(long_form(*C, b"echo", b"x", b""))
    job = job_of(worker)
    assert job[5:] == [b"x", b""]
    worker.say_raw(long_form(*W, HEARTBEAT))
    worker.say_raw(long_form(*W, REPLY, job[3], b"", b"y"))
    assert client.heard() == [[*C, b"echo", b"y"]]
    client.say_raw(more([*C]) + long_form(b"echo"))
    assert job_of(worker)[5:] == [b""]
    assert worker.closed == client.closed == ""


def test_one_connection_may_be_client_and_worker(rig: Rig) -> None:
    peer = worker_of(rig)
    peer.say(*C, b"echo", b"to myself")
    job = job_of(peer)
    peer.say(*W, REPLY, job[3], b"", b"mine")
    assert peer.heard() == [[*C, b"echo", b"mine"]]


# --- the dialect of the Guide's C# and Haskell workers: commands are two ASCII digits


def test_commands_as_two_digits(rig: Rig) -> None:
    worker, client = rig.peer(), rig.peer()
    worker.say(*W, b"01", b"echo")
    assert worker.session.dialect == "guide-digits"
    for body in ([b"1"], [b"", b"2"], [b""]):
        client.say(*C, b"echo", *body)
        (job,) = worker.heard()
        assert job[:3] == [*W, b"02"] and job[4:] == [b"", *body]
        worker.say(*W, b"03", job[3], b"", b"re", *body)
        assert client.heard() == [[*C, b"echo", b"re", *body]]
    worker.say(*W, b"04")
    rig.wait(rig.broker.tuning.mdp_beat * 1.1)
    assert worker.heard() == [[*W, b"04"]]
    worker.say(*W, b"03", b"unknown", b"", b"x")
    assert rig.notes.violations == [] and worker.closed == ""
    rig.broker.shutdown()
    rig.settle()
    assert worker.heard() == [[*W, b"05"]]


def test_other_commands_of_two_bytes_are_invalid(rig: Rig) -> None:
    for command in (b"00", b"06", b"1", b"001", b"0x"):
        peer = rig.peer()
        peer.say(*W, command, b"echo")
        assert peer.closed


def test_an_expired_worker_is_disconnected_so_that_it_registers_again(rig: Rig) -> None:
    """The Guide's Lua worker sends no heartbeats while it gets those of the broker."""
    worker = worker_of(rig)
    tuning = rig.broker.tuning
    rig.wait(tuning.mdp_beat * (tuning.beats_missed + 1.5))
    assert worker.heard()[-1] == [*W, DISCONNECT] and not rig.broker.workers
    again = worker_of(rig)
    client = rig.peer()
    client.say(*C, b"echo", b"x")
    assert job_of(again)[5:] == [b"x"]
    rig.wait(60.0)
    assert worker.heard() == [] and worker.closed


# --- the dialect of the Guide's PHP worker: no empty frame in REPLY


@pytest.mark.parametrize("body", [[b"x"], [b"x", b"", b"y"], [b"0"], [b"a" * 255, b"b" * 40_000], []])
def test_a_reply_without_the_empty_frame_reaches_the_client(rig: Rig, body: Frames) -> None:
    worker, address, client = busy_of(rig)
    worker.say(*W, REPLY, address, *body)
    assert client.heard() == [[*C, b"echo", *(body or [b""])]]
    assert worker.session.dialect == "guide-php"
    client.say(*C, b"echo", b"again")
    worker.say(*W, REPLY, job_of(worker)[3], b"done")
    assert client.heard() == [[*C, b"echo", b"done"]]
    assert worker.heard() == [] and worker.closed == "" and rig.notes.violations == rig.notes.lefts == []


@pytest.mark.parametrize("body", [[], [b"x"], [b"no delimiter", b"x"]])
def test_a_reply_without_the_empty_frame_from_a_peer_that_is_not_a_worker(rig: Rig, body: Frames) -> None:
    peer = rig.peer()
    peer.say(*W, REPLY, b"client", *body)
    assert peer.heard() == GOODBYE and rig.notes.violations == ["a reply from a worker that is not registered"]


@pytest.mark.parametrize("body", [[b"", b"x"], [b"", b"", b"x"], [b"", b""], [b""]])
def test_after_one_such_reply_a_body_may_begin_with_an_empty_frame(rig: Rig, body: Frames) -> None:
    worker, address, client = busy_of(rig)
    worker.say(*W, REPLY, address, b"x")
    client.heard()
    client.say(*C, b"echo", b"again")
    worker.say(*W, REPLY, job_of(worker)[3], *body)
    assert client.heard() == [[*C, b"echo", *body]]


def test_a_stale_reply_without_the_empty_frame_reaches_no_client(rig: Rig) -> None:
    worker, address, client = busy_of(rig)
    worker.say(*W, REPLY, b"0" * 12, b"x")
    assert client.heard() == [] and worker.closed == ""
    worker.say(*W, REPLY, address, b"right")
    assert client.heard() == [[*C, b"echo", b"right"]]


# --- heartbeats


def test_both_sides_beat(rig: Rig) -> None:
    worker = worker_of(rig)
    for _ in range(8):
        rig.wait(2.6)
        assert worker.heard() == [[*W, HEARTBEAT]]
        worker.say(*W, HEARTBEAT)
    rig.wait(7.6)
    worker.heard()
    assert rig.notes.lefts == ["no heartbeat for 7.5 s"]


def test_a_worker_lost_for_silence_is_disconnected_and_then_ignored(rig: Rig) -> None:
    worker = worker_of(rig)
    rig.wait(8)
    assert worker.heard()[-1:] == GOODBYE
    worker.say(*W, HEARTBEAT)
    assert worker.heard() == [] and rig.notes.violations == []
    rig.wait(20)
    assert worker.heard() == [] and worker.closed == "closed after DISCONNECT"


def test_heartbeat_before_ready(rig: Rig) -> None:
    peer = rig.peer()
    peer.say(*W, HEARTBEAT)
    assert peer.heard() == GOODBYE and len(rig.notes.violations) == 1


# --- what is valid and unexpected: DISCONNECT, and then nothing


def test_ready_twice(rig: Rig) -> None:
    worker, client = worker_of(rig), rig.peer()
    worker.say(*W, READY, b"echo")
    assert worker.heard() == GOODBYE and rig.notes.violations == ["READY twice"]
    assert rig.broker.services == {}
    client.say(*C, b"echo", b"x")
    rig.wait(4.9)
    worker.say(*W, HEARTBEAT)
    worker.say(*W, READY, b"echo")
    assert worker.heard() == [] and worker.closed == ""
    rig.wait(0.2)
    assert worker.closed == "closed after DISCONNECT"
    assert limits.ZOMBIE_TIME == 5.0


@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.anything", b"polydomo.status", b"n" * 256, b""])
def test_reserved_names_cannot_be_offered(rig: Rig, name: bytes) -> None:
    worker = worker_of(rig, name)
    assert worker.heard() == GOODBYE and rig.broker.workers == {}


def test_a_worker_that_sends_a_request_command(rig: Rig) -> None:
    worker, _, client = busy_of(rig)
    other = worker_of(rig)
    worker.say(*W, REQUEST, b"somebody", b"", b"do it")
    assert worker.heard() == GOODBYE
    job = job_of(other)
    other.say(*W, REPLY, job[3], b"", b"done")
    assert client.heard() == [[*C, b"echo", b"done"]]


def test_a_reply_without_ready(rig: Rig) -> None:
    peer = rig.peer()
    peer.say(*W, REPLY, b"0" * 12, b"", b"x")
    assert peer.heard() == GOODBYE and peer.closed == ""


# --- replies that are nobody's


def test_a_reply_to_another_workers_request_is_stale(rig: Rig) -> None:
    _, address, client = busy_of(rig)
    thief = worker_of(rig)
    for other in (address, b"undefined", b"", b"0" * 12, address + b"x", address[:-1]):
        thief.say(*W, REPLY, other, b"", b"stolen")
        assert thief.heard() == [] and client.heard() == []
    assert rig.notes.stales == ["final"] * 6 and thief.closed == ""
    client2 = rig.peer()
    client2.say(*C, b"echo", b"still here")
    assert job_of(thief)[5:] == [b"still here"]


def test_a_late_reply_is_not_delivered(rig: Rig) -> None:
    worker, address, client = busy_of(rig)
    rig.wait(1)
    worker.say(*W, HEARTBEAT)  # it beats while busy: normal liveness holds for it
    rig.wait(7.6)
    other = worker_of(rig)
    job = job_of(other)
    assert job[3] != address
    assert worker.heard()[-1:] == GOODBYE
    worker.say(*W, REPLY, address, b"", b"late")
    assert worker.heard() == [] and client.heard() == [] and rig.notes.stales == ["final"]
    other.say(*W, REPLY, job[3], b"", b"right")
    assert client.heard() == [[*C, b"echo", b"right"]]


def test_a_reply_to_a_client_that_is_not_there(rig: Rig) -> None:
    worker, address, client = busy_of(rig)
    client.lose()
    worker.say(*W, REPLY, address, b"", b"for nobody")
    assert worker.heard() == [] and worker.closed == "" and rig.notes.outcomes == ["cancelled"]
    other = rig.peer()
    other.say(*C, b"echo", b"next")
    assert job_of(worker)[5:] == [b"next"]


def test_an_address_that_only_begins_like_a_token_is_invalid(rig: Rig) -> None:
    """If the head of the address frame were not checked, the following bytes could be forwarded as invalid frames."""
    worker, address, client = busy_of(rig)
    forged = address + b"\x01\x00" + b"\x04\x05\x04PING"
    worker.say_raw(more([*W, REPLY, forged]) + join([b"", b"x"]))
    assert client.heard() == [] and rig.notes.stales == ["final"]


# --- leaving


def test_disconnect_while_busy(rig: Rig) -> None:
    worker, address, client = busy_of(rig)
    other = worker_of(rig)
    worker.say(*W, DISCONNECT)
    assert worker.heard() == [] and rig.notes.requeues == 1
    job = job_of(other)
    worker.say(*W, REPLY, address, b"", b"too late")
    assert worker.heard() == [] and client.heard() == []
    other.say(*W, REPLY, job[3], b"", b"done")
    assert client.heard() == [[*C, b"echo", b"done"]]
    rig.wait(5.1)
    assert worker.closed == "closed after DISCONNECT"


def test_a_worker_that_dies_while_busy(rig: Rig) -> None:
    worker, _, client = busy_of(rig)
    other = worker_of(rig)
    worker.lose()
    job = job_of(other)
    other.say(*W, REPLY, job[3], b"", b"done")
    assert client.heard() == [[*C, b"echo", b"done"]]


def test_a_broker_sends_disconnect_at_shutdown(rig: Rig) -> None:
    worker, _, client = busy_of(rig)
    rig.broker.shutdown()
    rig.settle()
    assert worker.heard() == GOODBYE
    assert client.heard() == [], "MDP has no word for failure"
    assert rig.notes.outcomes == ["shutdown"]
    worker.say(*W, HEARTBEAT)
    assert worker.heard() == []


def test_a_disconnected_worker_is_closed_after_its_own_requests_have_ended(rig: Rig) -> None:
    peer = worker_of(rig)
    peer.say(*C, b"other", b"x")
    peer.say(*W, DISCONNECT)
    rig.wait(6)
    assert peer.closed == ""
    rig.wait(61)  # the request has expired
    assert peer.closed == "closed after DISCONNECT"


# --- invalid messages


@pytest.mark.parametrize(
    "frames",
    [
        [b"", b"MDPC01"],
        [b"", b"MDPC01", b"n" * 256, b"x"],
        [b"", b"MDPC01", b"n" * 256],
        [b"", b"MDPC01", b"", b"x"],
        [b"", b"MDPC01", b""],
        [b"", b"MDPW01"],
        [b"", b"MDPW01", b"\x01"],
        [b"", b"MDPW01", b"\x01", b"echo", b"more"],
        [b"", b"MDPW01", b"\x03"],
        [b"", b"MDPW01", b"\x04", b"more"],
        [b"", b"MDPW01", b"\x05", b"more"],
        [b"", b"MDPW01", b"\x06"],
        [b"", b"MDPW01", b"\x00"],
        [b"", b"MDPW01", b""],
        [b"", b"MDPW01", b"\x01\x01", b"echo"],
        [b"", b"MDPC02", b"\x01", b"echo", b"x"],
        [b"", b"MDPX01", b"\x01", b"echo"],
        [b"MDPC01", b"echo", b"x"],
        [b"x", b"MDPC01", b"echo", b"x"],
        [b""],
        [b"", b""],
        [b"", b"", b"", b""],
    ],
)
def test_an_invalid_message_ends_the_connection_that_sent_it(rig: Rig, frames: Frames) -> None:
    worker, address, client = busy_of(rig)
    bad = rig.peer()
    bad.say(*C, b"mmi.service", b"echo")
    assert bad.only()[-1] == b"200"
    bad.say(*frames)
    assert bad.closed.startswith("protocol violation: ") and bad.heard() == []
    worker.say(*W, REPLY, address, b"", b"others are served on")
    assert client.heard() == [[*C, b"echo", b"others are served on"]]


def test_an_invalid_message_of_a_busy_worker_gives_its_request_back(rig: Rig) -> None:
    worker, _, client = busy_of(rig)
    other = worker_of(rig)
    worker.say(b"", b"MDPW09", b"\x01")
    assert "MDPW09" in worker.closed
    job = job_of(other)
    other.say(*W, REPLY, job[3], b"", b"done")
    assert client.heard() == [[*C, b"echo", b"done"]]


def test_lost_three_times_ends_in_silence(rig: Rig) -> None:
    client = rig.peer(b"REQ")
    client.say(*C, b"echo", b"poison")
    for _ in range(limits.ATTEMPTS):
        worker = worker_of(rig)
        job_of(worker)
        worker.lose()
    assert rig.notes.outcomes == ["gave-up"] and client.heard() == [] and client.closed == ""


def test_a_flood_is_throttled_and_nothing_is_lost() -> None:
    rig = Rig(policy=Policy(max_outstanding=4))
    client = rig.peer()
    for i in range(20):
        client.here.send(join([*C, b"echo", b"%d" % i]))
    rig.settle()
    assert client.there.pauses and rig.broker.open_requests == 4
    worker = worker_of(rig)
    for i in range(20):
        job = job_of(worker)
        assert job[5:] == [b"%d" % i]
        worker.say(*W, REPLY, job[3], b"", b"done")
        for link in list(rig.hub.resumed):
            rig.hub.resumed.remove(link)
            link.receive(b"")
        rig.settle()
    assert len(client.heard()) == 20 and not client.there.pauses
