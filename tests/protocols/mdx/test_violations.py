"""MDX, the broker's side: DISCONNECT, unexpected messages, invalid messages."""

import random

import pytest

from polydomo import limits
from polydomo.protocols.mdx.session import MdxSession
from tests.protocols.mdx.peers import DISCONNECT, C, W, client_of, failure, job_of, worker_of, worker_of_busy
from tests.protocols.mdx_dcp_rig import Frames, Rig, long_form


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- DISCONNECT


@pytest.mark.parametrize("header", [b"MDPW02", W])
def test_nothing_is_sent_to_a_worker_after_its_disconnect(rig: Rig, header: bytes) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job = job_of(worker)
    other = worker_of(rig)
    worker.say(header, b"\x06")
    assert job_of(other)[4:] == [b"id", b"body"]
    worker.say(W, b"\x04", *job[2:5], b"late")
    worker.say(W, b"PING")
    worker.say(W, b"\x01", b"echo")
    assert worker.heard() == []
    assert client.heard() == []
    rig.wait(limits.ZOMBIE_TIME + 1)
    assert worker.link.closing


def test_disconnect_before_ready(rig: Rig) -> None:
    worker = rig.peer(MdxSession)
    worker.say(b"MDPW02", b"\x06")
    worker.say(W, b"\x01", b"echo")
    assert worker.heard() == []
    assert not rig.broker.has_worker(b"echo")
    assert rig.notes.violations == []


UNEXPECTED = {
    "second READY": [b"\x01", b"echo"],
    "READY for another service": [b"\x01", b"other"],
    "REQUEST": [b"\x02", b"client", b"", b"id", b"body"],
    "PONG": [b"PONG"],
}


@pytest.mark.parametrize("command", UNEXPECTED.values(), ids=UNEXPECTED.keys())
def test_valid_but_unexpected_command_gets_disconnect_and_nothing_more(rig: Rig, command: Frames) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job = job_of(worker)
    worker.say(W, *command)
    assert worker.heard() == DISCONNECT
    assert not rig.broker.has_worker(b"echo")
    assert rig.notes.requeues == 1 and len(rig.notes.violations) == 1
    for ignored in ([b"PING"], [b"\x01", b"echo"], [b"\x04", *job[2:5]], command):
        worker.say(W, *ignored)
    assert worker.heard() == []
    assert not worker.link.closing
    rig.wait(limits.ZOMBIE_TIME + 1)
    assert worker.link.closing
    assert worker_of_busy(rig)  # and the request is served by another


@pytest.mark.parametrize(
    "command", [[b"PING"], [b"PONG"], [b"\x03", b"t", b"", b"id"], [b"\x04", b"t", b"", b"id", b"b"]]
)
def test_command_before_ready_gets_disconnect(rig: Rig, command: Frames) -> None:
    worker = rig.peer(MdxSession)
    worker.say(W, *command)
    assert worker.heard() == DISCONNECT
    worker.say(W, b"\x01", b"echo")
    assert worker.heard() == []
    assert not rig.broker.has_worker(b"echo")


@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.echo", b"polydomo.anything", b"n" * 300, b""])
def test_name_that_may_not_be_registered_gets_disconnect(rig: Rig, name: bytes) -> None:
    worker = rig.peer(MdxSession)
    worker.say(W, b"\x01", name)
    assert worker.heard() == DISCONNECT
    assert len(rig.notes.violations) == 1


def test_own_requests_of_a_dismissed_connection_end(rig: Rig) -> None:
    both, other = worker_of(rig), worker_of(rig, b"other")
    both.say(C, b"\x01", b"other", b"id", b"body")
    job = job_of(other)
    both.say(W, b"PONG")
    assert both.heard() == DISCONNECT
    assert rig.notes.outcomes == ["cancelled"]
    other.say(W, b"\x04", *job[2:5], b"done")
    both.say(C, b"\x01", b"other", b"id2", b"body")
    assert both.heard() == []  # "Nothing is sent to a peer after DISCONNECT"
    assert other.heard() == []


def test_broker_sends_disconnect_once_at_shutdown(rig: Rig) -> None:
    worker, gone, client = worker_of(rig), worker_of(rig), client_of(rig)
    gone.say(b"MDPW02", b"\x06")
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job_of(worker)
    rig.broker.shutdown()
    assert worker.heard() == DISCONNECT
    assert gone.heard() == []
    assert failure(client) == "shutdown"


# --- invalid messages

INVALID: dict[str, Frames] = {
    "empty message": [b""],
    "header alone": [W],
    "client header alone": [C],
    "another header": [b"MDPC02", b"\x01", b"echo", b"id", b"body"],
    "READY with another header": [b"MDPW02", b"\x01", b"echo"],
    "PING with another header": [b"MDPW02", b"PING"],
    "leading empty frame": [b"", C, b"\x01", b"echo", b"id", b"body"],
    "DISCONNECT with more": [b"MDPW02", b"\x06", b""],
    "client DISCONNECT": [C, b"\x06"],
    "no service": [C, b"\x01"],
    "no id": [C, b"\x01", b"echo"],
    "no body": [C, b"\x01", b"echo", b"id"],
    "empty id": [C, b"\x01", b"echo", b"", b"body"],
    "long id": [C, b"\x01", b"echo", b"x" * 256, b"body"],
    "empty service": [C, b"\x01", b"", b"id", b"body"],
    "long service": [C, b"\x01", b"x" * 256, b"id", b"body"],
    "client PARTIAL": [C, b"\x02", b"echo", b"id", b"body"],
    "client FINAL": [C, b"\x03", b"echo", b"id", b"body"],
    "unknown client command": [C, b"\x07", b"echo", b"id", b"body"],
    "command of two bytes": [C, b"\x01\x00", b"echo", b"id", b"body"],
    "READY without service": [W, b"\x01"],
    "READY with more": [W, b"\x01", b"echo", b"more"],
    "MDP HEARTBEAT": [W, b"\x05"],
    "unknown worker command": [W, b"\x00"],
    "empty command": [W, b""],
    "PING with more": [W, b"PING", b""],
    "PONG with more": [W, b"PONG", b"1"],
    "ping in small letters": [W, b"ping"],
    "REQUEST to the broker, cut short": [W, b"\x02", b"client", b""],
    "FINAL alone": [W, b"\x04"],
    "FINAL without delimiter": [W, b"\x04", b"token", b"id", b"body"],
    "FINAL without id": [W, b"\x04", b"token", b""],
    "FINAL with empty id": [W, b"\x04", b"token", b"", b"", b"body"],
    "FINAL with long id": [W, b"\x04", b"token", b"", b"x" * 256, b"body"],
    "FINAL with empty address": [W, b"\x04", b"", b"", b"id", b"body"],
    "FINAL with address alone": [W, b"\x04", b"token"],
    "PARTIAL with two addresses": [W, b"\x03", b"token", b"token", b"", b"id", b"body"],
    "PARTIAL with long address": [W, b"\x03", b"x" * 256, b"", b"id", b"body"],
}


@pytest.mark.parametrize("message", INVALID.values(), ids=INVALID.keys())
def test_invalid_message_of_a_client_is_dropped(rig: Rig, message: Frames) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(*message)
    assert client.heard() == []
    assert len(rig.notes.violations) == 1 and rig.notes.violations[0]
    client.say(C, b"\x01", b"echo", b"id", b"body")  # it is still served
    worker.say(W, b"\x04", *job_of(worker)[2:5], b"done")
    assert client.heard() == [[C, b"\x03", b"echo", b"id", b"done"]]


@pytest.mark.parametrize("message", INVALID.values(), ids=INVALID.keys())
def test_invalid_message_of_a_worker_ends_its_registration(rig: Rig, message: Frames) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job_of(worker)
    worker.say(*message)
    assert worker.heard() == DISCONNECT
    assert len(rig.notes.violations) == 1
    assert worker_of_busy(rig)  # what it held goes to another
    assert not client.link.closing


def test_random_frames_never_raise_and_affect_no_other_peer() -> None:
    draw = random.Random(1)
    words = [
        b"",
        C,
        W,
        b"MDPW02",
        b"\x01",
        b"\x02",
        b"\x03",
        b"\x04",
        b"\x06",
        b"PING",
        b"PONG",
        b"echo",
        b"id",
        b"x" * 300,
    ]
    rig = Rig()
    worker, client = worker_of(rig), client_of(rig)
    for round_ in range(4000):
        peer = rig.peer(MdxSession)
        for _ in range(3):
            frames = [
                draw.choice(words) if draw.random() < 0.9 else draw.randbytes(3) for _ in range(draw.randint(1, 7))
            ]
            if draw.random() < 0.8:
                frames[0] = draw.choice((C, W))
            peer.say_raw(long_form(frames)) if draw.random() < 0.1 else peer.say(*frames)
        peer.heard()
        peer.close()
        worker.say(W, b"PING")
        for message in worker.heard():
            if message[1] == b"\x02":
                worker.say(W, b"\x04", *message[2:5], b"ok")
        identity = b"%d" % round_
        if round_ % 100 == 0:
            client.say(C, b"\x01", b"echo", identity, b"body")
            while not (replies := client.heard()):
                for message in worker.heard():
                    if message[1] == b"\x02":
                        worker.say(W, b"\x04", *message[2:5], b"ok")
            assert replies == [[C, b"\x03", b"echo", identity, b"ok"]]
