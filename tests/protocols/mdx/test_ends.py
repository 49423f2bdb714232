"""MDX as a client and a worker speak it, each end against the real broker without I/O."""

import pytest

from polydomo import limits
from polydomo.errors import ProtocolViolation
from polydomo.protocols.ends import Delivery, Dismissed, Failure, Reply
from polydomo.protocols.mdx.ends import MdxClientEnd, MdxWorkerEnd
from polydomo.protocols.mdx.session import MdxSession
from tests.protocols.mdx.peers import C, W, client_of, failure, job_of, worker_of
from tests.protocols.mdx_dcp_rig import Frames, Peer, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- the other end: client


def test_client_end_keeps_track_of_every_request(rig: Rig) -> None:
    end, peer = MdxClientEnd(), client_of(rig)
    worker = worker_of(rig)
    end.request(7, b"echo", [b"a"])
    end.request(8, b"echo", [])
    assert peer.exchange(end) == []
    first = job_of(worker)
    worker.say(W, b"\x03", *first[2:5], b"part")
    worker.say(W, b"\x04", *first[2:5], b"", b"done")
    second = job_of(worker)
    assert second[5:] == [b""]  # 5 or more frames
    worker.say(W, b"\x04", *second[2:5])
    assert peer.exchange(end) == [Reply(7, [b"part"], False), Reply(7, [b"", b"done"]), Reply(8, [b""])]
    assert end.keys == {} and end.ids == {}


def test_client_end_takes_partials_in_any_number_and_failures(rig: Rig) -> None:
    end = MdxClientEnd()
    end.request(1, b"echo", [b"a"])
    envelope = [C, b"\x02", b"echo", end.out[0][3]]
    for i in range(5):
        assert end.receive([*envelope, b"%d" % i]) == [Reply(1, [b"%d" % i], False)]
    envelope[1] = b"\x03"
    assert end.receive([*envelope, b"", b"polydomo-failure", b"gave-up", b"why"]) == [Failure(1, "gave-up", "why")]
    assert end.receive([*envelope, b"again"]) == []


def test_client_end_drops_late_replies() -> None:
    end = MdxClientEnd()
    end.request(1, b"echo", [b"a"])
    identity = end.out[0][3]
    end.forget(1)
    end.forget(1)
    end.request(1, b"echo", [b"b"])
    assert end.out[1][3] != identity
    assert end.receive([C, b"\x03", b"echo", identity, b"late"]) == []
    with pytest.raises(ValueError):
        end.request(1, b"echo", [b"c"])


@pytest.mark.parametrize(
    "message", [[], [C], [C, b"\x03", b"echo", b"id"], [W, b"\x03", b"e", b"i", b"b"], [C, b"\x04", b"e", b"i", b"b"]]
)
def test_client_end_refuses_what_the_draft_does_not_allow(message: Frames) -> None:
    with pytest.raises(ProtocolViolation):
        MdxClientEnd().receive(message)


# --- the other end: worker


def opened(rig: Rig) -> "tuple[MdxWorkerEnd, Peer]":
    end, peer = MdxWorkerEnd(), rig.peer(MdxSession)
    end.open([b"echo"])
    assert peer.exchange(end) == []
    return end, peer


def test_worker_end_serves(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body", b"")
    (delivery,) = peer.exchange(end)
    assert isinstance(delivery, Delivery) and delivery.service == b"echo" and delivery.body == [b"body", b""]
    end.partial(delivery, [b"1"])
    end.partial(delivery, [])
    end.final(delivery, [b"2"])
    with pytest.raises(ValueError):
        end.final(delivery, [b"3"])  # "exactly one FINAL command"
    with pytest.raises(ValueError):
        end.partial(delivery, [b"3"])
    assert peer.exchange(end) == []
    assert [message[1:] for message in client.heard()] == [
        [b"\x02", b"echo", b"id", b"1"],
        [b"\x02", b"echo", b"id", b""],
        [b"\x03", b"echo", b"id", b"2"],
    ]


def test_worker_end_reports_failure_and_continues(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    (delivery,) = peer.exchange(end)
    assert isinstance(delivery, Delivery)
    assert end.fail(delivery, "KeyError", "page") is False
    client.say(C, b"\x01", b"echo", b"id2", b"body")
    assert len(peer.exchange(end)) == 1
    assert failure(client) == "KeyError"


def test_worker_end_pings_at_its_interval_unless_there_is_traffic(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    for _ in range(3):
        end.beat()
        assert end.out == [[W, b"PING"]]
        assert peer.exchange(end) == []
    client.say(C, b"\x01", b"echo", b"id", b"body")
    (delivery,) = peer.exchange(end)
    assert isinstance(delivery, Delivery)
    end.final(delivery, [b"done"])
    peer.exchange(end)
    end.beat()
    assert end.out == []  # "Peers SHOULD NOT send HEARTBEAT commands while also sending other commands."
    end.beat()
    assert end.out == [[W, b"PING"]]


def test_worker_end_pings_while_it_streams_to_a_silent_broker(rig: Rig) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    (delivery,) = peer.exchange(end)
    assert isinstance(delivery, Delivery)
    end.beat()
    end.out.clear()
    end.partial(delivery, [b"1"])
    end.beat()
    assert end.out[-1] == [W, b"PING"]


def test_worker_end_judges_the_broker_after_three_to_five_intervals() -> None:
    assert 3 <= MdxWorkerEnd.patience / MdxWorkerEnd.interval <= 5
    assert MdxWorkerEnd.interval == limits.MDX_BEAT


@pytest.mark.parametrize("header", [b"MDPW02", W])
def test_worker_end_sends_nothing_after_disconnect(rig: Rig, header: bytes) -> None:
    (end, peer), client = opened(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    (delivery,) = peer.exchange(end)
    assert isinstance(delivery, Delivery)
    assert end.receive([header, b"\x06"]) == [Dismissed()]
    end.beat()
    end.partial(delivery, [b"1"])
    end.final(delivery, [b"2"])
    end.close()
    assert end.out == []
    assert end.receive([W, b"\x02", b"token", b"", b"id"]) == []


def test_worker_end_leaves_politely(rig: Rig) -> None:
    end, peer = opened(rig)
    end.close()
    end.close()
    end.beat()
    assert end.out == [[b"MDPW02", b"\x06"]]
    peer.exchange(end)
    assert not rig.broker.has_worker(b"echo")


def test_worker_end_offers_precisely_one_service() -> None:
    for services in ([], [b"one", b"two"]):
        with pytest.raises(ValueError):
            MdxWorkerEnd().open(services)


@pytest.mark.parametrize(
    "message",
    [[], [W], [C, b"PONG"], [W, b"PONG", b""], [W, b"\x05"], [W, b"\x02", b"t", b""], [W, b"\x02", b"t", b"x", b"id"]],
)
def test_worker_end_refuses_what_the_draft_does_not_allow(message: Frames) -> None:
    with pytest.raises(ProtocolViolation):
        MdxWorkerEnd().receive(message)


def test_worker_end_refuses_a_second_request_while_it_holds_one(rig: Rig) -> None:
    end = MdxWorkerEnd()
    end.open([b"echo"])
    assert len(end.receive([W, b"\x02", b"t1", b"", b"id"])) == 1
    with pytest.raises(ProtocolViolation):
        end.receive([W, b"\x02", b"t2", b"", b"id"])


def test_worker_end_assumes_it_is_registered_until_disconnect(rig: Rig) -> None:
    end, peer = MdxWorkerEnd(), rig.peer(MdxSession)
    end.open([b"echo"])
    assert end.out == [[W, b"\x01", b"echo"]]
    assert peer.exchange(end) == [] and rig.broker.has_worker(b"echo")
    end, peer = MdxWorkerEnd(), rig.peer(MdxSession)
    end.open([b"mmi.echo"])
    assert peer.exchange(end) == [Dismissed()]
