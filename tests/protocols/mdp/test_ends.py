"""MDP/0.1 and MDP/0.2 as a client and a worker speak them: every message by the letter of RFC 7 and RFC 18."""

import pytest

from polydomo.errors import CallFailed, ProtocolViolation
from polydomo.limits import MAX_BODY, MAX_BODY_FRAMES
from polydomo.protocols.ends import Delivery, Dismissed, Reply, WorkerEnd
from polydomo.protocols.mdp.ends import Mdp1ClientEnd, Mdp1WorkerEnd, Mdp2ClientEnd, Mdp2WorkerEnd, MdpClientEnd


def said(end: MdpClientEnd | WorkerEnd) -> list[list[bytes]]:
    out, end.out = end.out, []
    return out


def job_of(end: WorkerEnd, message: list[bytes]) -> Delivery:
    (delivery,) = end.receive(message)
    assert isinstance(delivery, Delivery)
    return delivery


# --- clients -----------------------------------------------------------------------------------------------------------


def test_mdp1_client() -> None:
    end = Mdp1ClientEnd()
    end.request(7, b"echo", [b"a", b"b"])
    assert said(end) == [[b"", b"MDPC01", b"echo", b"a", b"b"]]
    assert end.receive([b"", b"MDPC01", b"echo", b"x", b"y"]) == [Reply(7, [b"x", b"y"])]
    end.request(8, b"other", [])
    assert said(end) == [[b"", b"MDPC01", b"other", b""]]
    assert end.receive([b"", b"MDPC01", b"other", b""]) == [Reply(8, [b""])]


def test_mdp2_client() -> None:
    end = Mdp2ClientEnd()
    end.request(7, b"echo", [b"a"])
    assert said(end) == [[b"MDPC02", b"\x01", b"echo", b"a"]]
    assert end.receive([b"MDPC02", b"\x02", b"echo", b"1"]) == [Reply(7, [b"1"], False)]
    assert end.receive([b"MDPC02", b"\x02", b"echo", b"2"]) == [Reply(7, [b"2"], False)]
    assert end.receive([b"MDPC02", b"\x03", b"echo", b"3"]) == [Reply(7, [b"3"])]
    end.request(8, b"echo", [])
    assert said(end) == [[b"MDPC02", b"\x01", b"echo", b""]]


@pytest.mark.parametrize("end", [Mdp1ClientEnd(), Mdp2ClientEnd()])
def test_one_request_at_a_time(end: MdpClientEnd) -> None:
    end.request(1, b"echo", [b"a"])
    with pytest.raises(ValueError, match="one request at a time"):
        end.request(2, b"echo", [b"b"])


@pytest.mark.parametrize(
    ("end", "reply"),
    [
        (Mdp1ClientEnd(), [b"", b"MDPC01", b"echo", b"late"]),
        (Mdp2ClientEnd(), [b"MDPC02", b"\x03", b"echo", b"late"]),
    ],
)
def test_a_late_reply_is_dropped(end: MdpClientEnd, reply: list[bytes]) -> None:
    end.request(1, b"echo", [b"a"])
    end.forget(99)  # somebody else's: nothing happens
    end.forget(1)
    assert end.receive(reply) == []
    with pytest.raises(ValueError, match="none after an abandoned request"):
        end.request(2, b"echo", [b"b"])


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b""],
        [b"", b"MDPC01", b"echo"],
        [b"MDPC01", b"echo", b"x", b"y"],
        [b"", b"MDPC02", b"echo", b"x"],
        [b"", b"MDPW01", b"\x03", b"x"],
        [b"", b"MDPC01", b"another", b"x"],
    ],
)
def test_mdp1_client_refuses(message: list[bytes]) -> None:
    end = Mdp1ClientEnd()
    end.request(1, b"echo", [b"a"])
    with pytest.raises(ProtocolViolation):
        end.receive(message)


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b"MDPC02"],
        [b"MDPC02", b"\x03", b"echo"],
        [b"MDPC02", b"\x01", b"echo", b"x"],
        [b"MDPC02", b"\x04", b"echo", b"x"],
        [b"", b"MDPC02", b"\x03", b"echo", b"x"],
        [b"MDPC01", b"\x03", b"echo", b"x"],
        [b"MDPC02", b"\x03", b"another", b"x"],
    ],
)
def test_mdp2_client_refuses(message: list[bytes]) -> None:
    end = Mdp2ClientEnd()
    end.request(1, b"echo", [b"a"])
    with pytest.raises(ProtocolViolation):
        end.receive(message)


# --- workers -----------------------------------------------------------------------------------------------------------


def test_mdp1_worker() -> None:
    end = Mdp1WorkerEnd()
    end.open([b"echo"])
    end.beat()
    assert said(end) == [[b"", b"MDPW01", b"\x01", b"echo"], [b"", b"MDPW01", b"\x04"]]
    assert end.receive([b"", b"MDPW01", b"\x04"]) == []
    job = job_of(end, [b"", b"MDPW01", b"\x02", b"client", b"", b"a", b"b"])
    assert (job.service, job.body) == (b"echo", [b"a", b"b"])
    end.partial(job, [b"1"])
    end.partial(job, [b"2", b"3"])
    assert said(end) == []  # "exactly one REPLY": they wait
    end.final(job, [b"4"])
    assert said(end) == [[b"", b"MDPW01", b"\x03", b"client", b"", b"1", b"2", b"3", b"4"]]
    job = job_of(end, [b"", b"MDPW01", b"\x02", b"other", b"", b""])
    end.final(job, [])
    assert said(end) == [[b"", b"MDPW01", b"\x03", b"other", b"", b""]]
    end.close()
    assert said(end) == [[b"", b"MDPW01", b"\x05"]]


def test_mdp2_worker() -> None:
    end = Mdp2WorkerEnd()
    end.open([b"echo"])
    end.beat()
    assert said(end) == [[b"MDPW02", b"\x01", b"echo"], [b"MDPW02", b"\x05"]]
    assert end.receive([b"MDPW02", b"\x05"]) == []
    job = job_of(end, [b"MDPW02", b"\x02", b"client", b"", b"a"])
    end.partial(job, [b"1"])
    end.final(job, [])
    assert said(end) == [
        [b"MDPW02", b"\x03", b"client", b"", b"1"],
        [b"MDPW02", b"\x04", b"client", b"", b""],
    ]
    end.close()
    assert said(end) == [[b"MDPW02", b"\x06"]]


@pytest.mark.parametrize(
    ("end", "header", "disconnect"),
    [(Mdp1WorkerEnd(), [b"", b"MDPW01"], b"\x05"), (Mdp2WorkerEnd(), [b"MDPW02"], b"\x06")],
)
def test_nothing_is_sent_after_disconnect(end: WorkerEnd, header: list[bytes], disconnect: bytes) -> None:
    end.open([b"echo"])
    job = job_of(end, [*header, b"\x02", b"client", b"", b"a"])
    said(end)
    assert end.receive([*header, disconnect]) == [Dismissed()]
    end.beat()
    end.final(job, [b"x"])
    end.close()
    assert said(end) == []
    assert end.receive([*header, b"\x02", b"client", b"", b"a"]) == []


@pytest.mark.parametrize(
    ("end", "header", "disconnect"),
    [(Mdp1WorkerEnd(), [b"", b"MDPW01"], b"\x05"), (Mdp2WorkerEnd(), [b"MDPW02"], b"\x06")],
)
def test_failure_leaves(end: WorkerEnd, header: list[bytes], disconnect: bytes) -> None:
    end.open([b"echo"])
    job = job_of(end, [*header, b"\x02", b"client", b"", b"a"])
    said(end)
    assert end.fail(job, "failed", "why") is True
    end.beat()
    assert said(end) == [[*header, disconnect]]


@pytest.mark.parametrize(
    ("end", "header"),
    [(Mdp1WorkerEnd, [b"", b"MDPW01"]), (Mdp2WorkerEnd, [b"MDPW02"])],
)
@pytest.mark.parametrize(
    "rest",
    [
        [],
        [b"\x01", b"echo"],
        [b"\x09"],
        [b""],
        [b"\x02"],
        [b"\x02", b"client"],
        [b"\x02", b"client", b""],
        [b"\x02", b"client", b"x", b"body"],
    ],
)
def test_worker_refuses(end: type[WorkerEnd], header: list[bytes], rest: list[bytes]) -> None:
    worker = end()
    worker.open([b"echo"])
    with pytest.raises(ProtocolViolation):
        worker.receive(header + rest)


def test_worker_refuses_another_version() -> None:
    for end, message in (
        (Mdp1WorkerEnd(), [b"MDPW02", b"\x05"]),
        (Mdp2WorkerEnd(), [b"", b"MDPW01", b"\x04"]),
        (Mdp2WorkerEnd(), [b"", b"MDPW02", b"\x05"]),
    ):
        with pytest.raises(ProtocolViolation):
            end.receive(message)


def test_worker_refuses_a_second_request() -> None:
    end = Mdp2WorkerEnd()
    end.open([b"echo"])
    request = [b"MDPW02", b"\x02", b"client", b"", b"a"]
    job = job_of(end, request)
    with pytest.raises(ProtocolViolation):
        end.receive(request)
    end.final(job, [])
    with pytest.raises(ValueError, match="does not hold"):
        end.final(job, [])


def test_one_service() -> None:
    with pytest.raises(ValueError, match="precisely one service"):
        Mdp1WorkerEnd().open([b"a", b"b"])


def test_mdp1_partials_are_bounded() -> None:
    end = Mdp1WorkerEnd()
    end.open([b"echo"])
    job = job_of(end, [b"", b"MDPW01", b"\x02", b"client", b"", b""])
    with pytest.raises(CallFailed, match="too-large"):
        end.partial(job, [b"x"] * (MAX_BODY_FRAMES + 1))
    end = Mdp1WorkerEnd()
    end.open([b"echo"])
    job = job_of(end, [b"", b"MDPW01", b"\x02", b"client", b"", b""])
    big = bytes(MAX_BODY // 2)
    end.partial(job, [big])
    with pytest.raises(CallFailed, match="too-large"):
        end.partial(job, [big, b"x"])


def test_the_final_counts_with_the_partials_in_front_of_it() -> None:
    end = Mdp1WorkerEnd()
    end.open([b"echo"])
    job = job_of(end, [b"", b"MDPW01", b"\x02", b"client", b"", b""])
    big = bytes(MAX_BODY // 2)
    end.partial(job, [big])
    said = len(end.out)
    with pytest.raises(CallFailed, match="too-large"):
        end.final(job, [big, b"x"])
    assert len(end.out) == said
    assert end.fail(job, "too-large", "")  # it can still leave with it
