"""DCP v1 as a client and a worker speak it, each end against the real broker without I/O."""

import pytest

from polydomo import limits
from polydomo.errors import CallFailed, ProtocolViolation
from polydomo.protocols.dcp.ends import DcpClientEnd, DcpWorkerEnd
from polydomo.protocols.ends import Delivery, Reply
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
from tests.protocols.mdx_dcp_rig import Frames, Peer, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- the other end: client


@pytest.mark.parametrize("size", [1, 4])
def test_client_end_matches_replies_by_metadata(rig: Rig, size: int) -> None:
    end, peer, worker = DcpClientEnd(size), client_of(rig), worker_of(rig)
    end.request(7, b"echo", [b"a", b""])
    end.request(8, b"echo", [])
    peer.exchange(end)
    worker.say(*H, PING)
    first, second = jobs_of(worker)
    answer(worker, second)
    answer(worker, first, b"", b"x")
    assert peer.exchange(end) == [Reply(8, []), Reply(7, [b"", b"x"])]
    assert end.keys == {} and end.ids == {}


def test_client_end_drops_late_replies() -> None:
    end = DcpClientEnd()
    end.request(1, b"echo", [b"a"])
    identity = end.out[0][5]
    with pytest.raises(ValueError):
        end.request(1, b"echo", [b"a"])
    end.forget(1)
    end.forget(1)
    end.request(1, b"echo", [b"a"])
    assert end.receive([*H, REPLY, b"x", b"", identity, b"", b"late"]) == []


def test_client_end_sends_no_heartbeat_and_no_address() -> None:
    end = DcpClientEnd()
    assert end.out == [] and not hasattr(end, "beat")
    end.request(1, b"echo", [b"a"])
    assert end.out[0][:5] == [*H, REQUEST, b"echo", b""]


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b"", b"DGBX\x02", REPLY, b"a", b"", b"m", b""],
        [*H, b"\x05\x00", b"a", b"", b"m", b""],
        [*H, REQUEST, b"a", b"", b"m", b""],
        [*H, REPLY],
        [*H, REPLY, b"a", b"", b"m"],
        [*H, REPLY, b"", b"", b"m", b""],
        [*H, REPLY, b"a", b"", b"", b"data"],
        [*H, REPLY, b"a", b"", b"m", b"n", b""],
    ],
)
def test_client_end_refuses_what_the_document_does_not_allow(message: Frames) -> None:
    with pytest.raises(ProtocolViolation):
        DcpClientEnd().receive(message)


# --- the other end: worker


def opened(
    rig: Rig, slots: int = 1, size: int = 1, services: "list[bytes] | None" = None
) -> "tuple[DcpWorkerEnd, Peer]":
    end, peer = DcpWorkerEnd(size), client_of(rig)
    end.open(services or [b"echo"], slots)
    peer.exchange(end)
    return end, peer


def taken(end: DcpWorkerEnd, peer: Peer) -> list[Delivery]:
    """Exchanges until neither side has anything to say."""
    jobs: list[Delivery] = []
    while True:
        events = peer.exchange(end)
        jobs.extend(event for event in events if isinstance(event, Delivery))
        if not end.out and not peer.link.out:
            return jobs


@pytest.mark.parametrize("size", [1, 4])
def test_worker_end_copies_address_and_metadata(rig: Rig, size: int) -> None:
    (end, peer), client = opened(rig, size=size), client_of(rig)
    ask(client, [b"body"], [b"m1", b"m2"])
    (job,) = taken(end, peer)
    assert job.service == b"echo" and job.body == [b"body"]
    end.partial(job, [b"1"])
    end.partial(job, [b"", b"2"])
    end.final(job, [b"3"])
    assert end.out[0][4:] == [b"", b"m1", b"m2", b"", b"1", b"", b"2", b"3"]
    peer.exchange(end)
    assert parts(client.heard()[0]) == ([b"m1", b"m2"], [b"1", b"", b"2", b"3"])


@pytest.mark.parametrize("slots", [1, 3, 8, 20])
def test_worker_end_asks_for_as_many_jobs_as_it_has_slots(rig: Rig, slots: int) -> None:
    (end, peer), client = opened(rig, slots), client_of(rig)
    for i in range(30):
        ask(client, [b"body"], [b"%d" % i])
    jobs = taken(end, peer)
    done = 0
    while jobs:
        assert len(jobs) <= min(slots, limits.DCP_MAX_HELD)
        if done == 0:
            assert len(jobs) == min(slots, limits.DCP_MAX_HELD)
        end.final(jobs.pop(), [b"done"])
        done += 1
        jobs += taken(end, peer)
    assert done == 30 and len(client.heard()) == 30


def test_worker_end_passes_a_job_on(rig: Rig) -> None:
    (end, peer), client, second = opened(rig), client_of(rig), worker_of(rig, b"second")
    ask(client, [b"raw"], [b"m"])
    (job,) = taken(end, peer)
    end.forward(job, b"second", [b"half"])
    peer.exchange(end)
    hop = job_of(second)
    assert hop[6:] == [b"m", b"", b"half"]
    answer(second, hop, b"whole")
    assert parts(client.heard()[0]) == ([b"m"], [b"whole"])
    assert end.held == {}


def test_worker_end_offers_several_services(rig: Rig) -> None:
    (end, peer), client = opened(rig, services=[b"one", b"two"]), client_of(rig)
    for name in (b"one", b"two"):
        ask(client, [b"body"], [b"m"], name)
        (job,) = taken(end, peer)
        assert job.service == name
        end.final(job, [])
        peer.exchange(end)
    with pytest.raises(ValueError):
        DcpWorkerEnd().open([])


def test_worker_end_registers_again_on_reconnect(rig: Rig) -> None:
    (end, peer), client = opened(rig, services=[b"one", b"two"]), client_of(rig)
    rig.wait(limits.DCP_BEAT * limits.BEATS_MISSED + 0.2)
    assert not rig.broker.has_worker(b"one")
    end.beat()
    assert taken(end, peer) == []
    assert rig.broker.has_worker(b"one") and rig.broker.has_worker(b"two")
    ask(client, [b"body"], [b"m"], b"two")
    assert len(taken(end, peer)) == 1


def test_worker_end_pings_idle_or_busy(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    end.beat()
    assert end.out == [[*H, PING]]
    peer.exchange(end)
    ask(client, [b"body"], [b"m"])
    taken(end, peer)
    end.beat()
    assert end.out == [[*H, PING]]
    assert DcpWorkerEnd.interval == limits.DCP_BEAT


def test_worker_end_leaves_when_a_job_fails(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    ask(client, [b"body"], [b"m"])
    (job,) = taken(end, peer)
    assert end.fail(job, "KeyError", "page") is True
    end.beat()
    end.final(job, [b"after all"])
    assert end.out == []
    assert end.receive([*H, PONG]) == []


def test_worker_end_bounds_its_partials() -> None:
    end = DcpWorkerEnd()
    end.open([b"echo"])
    (delivery,) = end.receive([*H, REQUEST, b"echo", b"a", b"", b"m", b"", b"body"])
    assert isinstance(delivery, Delivery)
    end.partial(delivery, [b""] * limits.MAX_BODY_FRAMES)
    with pytest.raises(CallFailed):
        end.partial(delivery, [b""])


@pytest.mark.parametrize(
    "message",
    [
        [],
        [*H],
        [b"x", b"DGBX\x01", PONG],
        [*H, PONG, b""],
        [*H, RECONNECT, b""],
        [*H, PING],
        [*H, REPLY, b"a", b"", b"", b"data"],
        [*H, REGISTER, b"another"],
        [*H, REQUEST, b"echo"],
        [*H, REQUEST, b"echo", b"", b"", b"data"],
        [*H, REQUEST, b"echo", b"a", b"", b"meta"],
    ],
)
def test_worker_end_refuses_what_the_document_does_not_allow(message: Frames) -> None:
    end = DcpWorkerEnd()
    end.open([b"echo"])
    with pytest.raises(ProtocolViolation):
        end.receive(message)
