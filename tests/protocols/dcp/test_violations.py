"""DCP v1, the broker's side: redirection, and invalid messages."""

import random

import pytest

from polydomo.protocols.dcp.session import DcpSession
from tests.protocols.dcp.peers import (
    PING,
    PONG,
    RECONNECT,
    REGISTER,
    REPLY,
    REQUEST,
    H,
    answer,
    ask,
    client_of,
    job_of,
    jobs_of,
    parts,
    worker_of,
)
from tests.protocols.mdx_dcp_rig import Frames, Rig, long_form


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- redirection


def test_client_address_from_a_client_is_refused(rig: Rig) -> None:
    victim, thief, worker = client_of(rig), client_of(rig), worker_of(rig)
    ask(victim, [b"body"], [b"m"])
    token = job_of(worker)[4]
    for address in (token, b"victim", b"\x00" * 9):
        thief.say(*H, REQUEST, b"echo", address, b"", b"m", b"", b"forged")
    assert len(rig.notes.violations) == 3
    assert worker.heard() == [] and thief.heard() == [] and victim.heard() == []
    assert rig.notes.outcomes == []


def test_client_address_that_another_worker_holds_is_refused(rig: Rig) -> None:
    victim, holder, thief = client_of(rig), worker_of(rig), worker_of(rig, b"other")
    evil = worker_of(rig, b"evil")
    ask(victim, [b"body"], [b"m"])
    job = job_of(holder)
    thief.say(*H, REQUEST, b"evil", job[4], b"", b"m", b"", b"forged")
    thief.say(*H, REPLY, job[4], b"", b"m", b"", b"forged")
    assert evil.heard() == [] and victim.heard() == []
    assert rig.notes.stales == ["forward", "final"] and len(rig.notes.violations) == 1
    answer(holder, job, b"true")
    assert parts(victim.heard()[0]) == ([b"m"], [b"true"])


def test_request_may_not_be_forwarded_twice(rig: Rig) -> None:
    client, first, second = client_of(rig), worker_of(rig, b"first"), worker_of(rig, b"second")
    ask(client, [b"raw"], [b"m"], b"first")
    job = job_of(first)
    for _ in range(2):
        first.say(*H, REQUEST, b"second", job[4], b"", b"m", b"", b"half")
    job_of(second)
    answer(first, job, b"and a reply")
    assert client.heard() == []
    assert rig.notes.stales == ["forward", "final"]
    first.say(*H, PING)
    assert first.heard() == [[*H, PONG]]  # it is kept: what it held may have been taken from it a moment before


# --- violations

INVALID: dict[str, Frames] = {
    "empty message": [b""],
    "no header": [b"hello"],
    "no empty frame": [b"DGBX\x01", PING],
    "header alone": H,
    "another version": [b"", b"DGBX\x02", PING],
    "another protocol": [b"", b"MDPC01", b"echo", b"body"],
    "empty type": [*H, b""],
    "type 0": [*H, b"\x00"],
    "type 7": [*H, b"\x07"],
    "type of two bytes": [*H, b"\x02\x00"],
    "type of four bytes, unknown": [*H, b"\x02\x00\x00\x01"],
    "big-endian type": [*H, b"\x00\x00\x00\x02"],
    "registration of another version": [b"", b"DGBX\x02", REGISTER, b"echo"],
    "registration without the empty frame": [b"address", b"DGBX\x01", REGISTER, b"echo"],
    "registration without a service": [*H, REGISTER],
    "registration with more": [*H, REGISTER, b"echo", b""],
    "ping with a part": [*H, PING, b""],
    "pong": [*H, PONG],
    "reconnect": [*H, RECONNECT],
    "request alone": [*H, REQUEST],
    "request with a service only": [*H, REQUEST, b"echo"],
    "request with one delimiter": [*H, REQUEST, b"echo", b""],
    "request without metadata delimiter": [*H, REQUEST, b"echo", b"", b"meta", b"data"],
    "request with two addresses": [*H, REQUEST, b"echo", b"a", b"b", b"", b"", b"data"],
    "request with an address only": [*H, REQUEST, b"echo", b"a"],
    "request with an address, one delimiter": [*H, REQUEST, b"echo", b"a", b""],
    "request with a long address": [*H, REQUEST, b"echo", b"a" * 256, b"", b"", b"data"],
    "request with a long service": [*H, REQUEST, b"s" * 256, b"", b"", b"data"],
    "reply alone": [*H, REPLY],
    "reply with an address only": [*H, REPLY, b"a"],
    "reply without an address": [*H, REPLY, b"", b"", b"data"],
    "reply with one delimiter": [*H, REPLY, b"a", b""],
    "reply without metadata delimiter": [*H, REPLY, b"a", b"", b"meta", b"data"],
    "reply with a long address": [*H, REPLY, b"a" * 256, b"", b"", b"data"],
}


@pytest.mark.parametrize("message", INVALID.values(), ids=INVALID.keys())
def test_invalid_message_of_a_client_is_dropped(rig: Rig, message: Frames) -> None:
    client, worker = client_of(rig), worker_of(rig)
    client.say(*message)
    assert client.heard() == [] and worker.heard() == []
    assert len(rig.notes.violations) == 1 and rig.notes.violations[0]
    ask(client, [b"body"], [b"m"])  # it is still served
    answer(worker, job_of(worker), b"done")
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])


@pytest.mark.parametrize("message", INVALID.values(), ids=INVALID.keys())
def test_invalid_message_of_a_worker_takes_it_out_until_it_registers_again(rig: Rig, message: Frames) -> None:
    client, worker = client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"m"])
    job_of(worker)
    worker.say(*message)
    assert worker.heard() == []
    assert len(rig.notes.violations) == 1 and rig.notes.requeues == 1
    worker.say(*H, PING)
    assert [len(heard) for heard in worker.heard()] == [3]  # reconnect, in whichever size
    worker.say(*H, REGISTER, b"echo")
    assert len(jobs_of(worker)) == 1
    assert not worker.link.closing


def test_reply_of_the_unregistered_is_refused(rig: Rig) -> None:
    client, thief, worker = client_of(rig), client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"m"])
    thief.say(*H, REPLY, job_of(worker)[4], b"", b"m", b"", b"forged")
    assert client.heard() == []
    assert rig.notes.violations == ["a reply from a peer that is not registered"]


def test_reply_to_an_unknown_attempt_is_stale_and_the_worker_is_kept(rig: Rig) -> None:
    worker = worker_of(rig)
    worker.say(*H, REPLY, b"nobody", b"", b"m", b"", b"data")
    assert rig.notes.stales == ["final"] and rig.notes.violations == []
    worker.say(*H, PING)
    assert worker.heard() == [[*H, PONG]]


def test_random_frames_never_raise_and_affect_no_other_peer() -> None:
    draw = random.Random(2)
    words = [b"", b"DGBX\x01", b"echo", b"m", b"x" * 300, b"\x04\x00\x00\x00", REGISTER, PING, REQUEST, REPLY]
    rig = Rig()
    client = client_of(rig)
    for round_ in range(4000):
        peer = rig.peer(DcpSession)
        for _ in range(3):
            frames = [
                draw.choice(words) if draw.random() < 0.9 else draw.randbytes(3) for _ in range(draw.randint(1, 6))
            ]
            if draw.random() < 0.8:
                kind = draw.randint(1, 6).to_bytes(draw.choice((1, 4)), "little")
                frames = [*H, kind, *frames]
            if draw.random() < 0.1:
                peer.say_raw(long_form(frames))
            else:
                peer.say(*frames)
        peer.heard()
        peer.close()
        if round_ % 100 == 0:
            worker = rig.peer(DcpSession)
            service = b"sane %d" % round_
            worker.say(*H, REGISTER, service)
            ask(client, [b"body"], [b"m"], service)
            (job,) = jobs_of(worker)
            answer(worker, job, b"ok")
            assert parts(client.heard()[-1]) == ([b"m"], [b"ok"])
            worker.close()
