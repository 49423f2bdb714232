"""Extensions between polydomo peers: how they are agreed on, and what MDX, DCP and eMQP do with them, without I/O."""

import pytest

from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.ends import (
    ANNOUNCED,
    Cancelled,
    ClientEnd,
    Delivery,
    Dismissed,
    Failure,
    Reply,
    Revoked,
    WorkerEnd,
)
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.frames import join
from polydomo.wire.link import Bounds, Hub, LinkHandler
from polydomo.wire.zmtp.extensions import NO_EXTENSIONS, Extensions, parse
from polydomo.wire.zmtp.link import ZmtpLink
from tests.protocols.extended_peers import BROKER, SESSIONS, WORKERS, client_of, jobs_of, peer_of, worker_of
from tests.protocols.mdx.peers import C, W
from tests.protocols.mdx_dcp_rig import Peer, Rig

each = pytest.mark.parametrize("protocol", list(SESSIONS))


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- how they are agreed on


@pytest.mark.parametrize(
    "value", [b"", b"credit=", b"credit=x", b"credit=-1", b"=", b"credit=" + b"9" * 20, b"\xff\x00"]
)
def test_invalid_extension_words_are_ignored(value: bytes) -> None:
    assert parse(value).encode() == b""
    assert parse(value + b" cancel").encode() == b"cancel"


def test_extension_words_are_read_as_written() -> None:
    assert parse(BROKER.encode()).encode() == BROKER.encode()


def connected(ours: bytes, theirs: bytes) -> "tuple[ZmtpLink, ZmtpLink]":
    """A dialing link and a listening one that have shaken hands."""
    dialer = ZmtpLink(Hub(), LinkHandler(), "b", socket_type=b"DEALER", bounds=Bounds(extensions=ours))
    listener = ZmtpLink(Hub(), LinkHandler(), "a", bounds=Bounds(extensions=theirs))
    for _ in range(4):
        listener.receive(b"".join(dialer.take()))
        dialer.receive(b"".join(listener.take()))
    assert dialer.open and listener.open
    return dialer, listener


def test_both_sides_learn_the_extensions_of_the_other() -> None:
    dialer, listener = connected(ANNOUNCED, BROKER.encode())
    assert dialer.extensions.encode() == BROKER.encode()
    assert listener.extensions.encode() == ANNOUNCED


@pytest.mark.parametrize(("ours", "theirs"), [(b"", BROKER.encode()), (ANNOUNCED, b"")])
def test_a_peer_without_extensions_gets_none_announced(ours: bytes, theirs: bytes) -> None:
    dialer, listener = connected(ours, theirs)
    assert dialer.extensions is NO_EXTENSIONS
    assert (listener.extensions is NO_EXTENSIONS) == (not ours)


# --- credit


@each
def test_one_connection_holds_several_jobs(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, protocol, slots=3)
    client, asker = client_of(rig, "mdx")
    for key in range(5):
        client.request(key, b"echo", [b"%d" % key])
    asker.exchange(client)
    jobs = jobs_of(worker, peer)
    assert [job.body for job in jobs] == [[b"0"], [b"1"], [b"2"]]
    worker.final(jobs[1], [b"done"])
    (more,) = jobs_of(worker, peer)
    assert more.body == [b"3"]
    for job in (jobs[2], more, jobs[0]):
        worker.final(job, [b"done"])
    (last,) = jobs_of(worker, peer)
    worker.final(last, [b"done"])
    peer.exchange(worker)
    replies = asker.exchange(client)
    assert sorted(event.key for event in replies if isinstance(event, Reply)) == [0, 1, 2, 3, 4]
    rig.broker.check_invariants()


@each
def test_a_failure_does_not_take_the_other_jobs_down(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, protocol, slots=2)
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"1"])
    client.request(2, b"echo", [b"2"])
    asker.exchange(client)
    first, second = jobs_of(worker, peer)
    assert worker.fail(first, "broken", "as asked") is False
    again = jobs_of(worker, peer)
    assert [job.body for job in again] == ([] if protocol == "mdx" else [[b"1"]])  # MDX reports it to the client
    worker.final(second, [b"2"])
    peer.exchange(worker)
    assert Reply(2, [b"2"]) in asker.exchange(client)
    assert not rig.notes.lefts and not rig.notes.violations
    rig.broker.check_invariants()


@each
def test_without_the_extensions_a_connection_holds_one_job(protocol: str) -> None:
    assert WORKERS[protocol]().capacity() == 1


@each
def test_the_window_of_a_worker_is_bounded(rig: Rig, protocol: str) -> None:
    rig.broker.tuning.mdx_max_credit = 2
    worker, peer = worker_of(rig, protocol, slots=50, prefetch=1)
    client, asker = client_of(rig, "mdx")
    for key in range(5):
        client.request(key, b"echo", [b"x"])
    asker.exchange(client)
    assert len(jobs_of(worker, peer)) == 2


def test_finals_of_one_read_in_any_order_take_the_fast_path(rig: Rig) -> None:
    worker, peer = worker_of(rig, "mdx", slots=3)
    client, asker = client_of(rig, "mdx")
    for key in range(3):
        client.request(key, b"echo", [b"x"])
    asker.exchange(client)
    jobs = jobs_of(worker, peer)
    for job in reversed(jobs):
        worker.final(job, [b"y" * 300])
    data = b"".join(join(message) for message in worker.out)
    worker.out.clear()
    peer.link.fast_path_size = 1000
    assert peer.session.fast_path(data, 0, len(data)) == len(data)
    assert [event.key for event in asker.exchange(client) if isinstance(event, Reply)] == [2, 1, 0]
    rig.broker.check_invariants()


@each
def test_a_job_that_was_not_started_is_released(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, protocol, slots=1, prefetch=2)
    client, asker = client_of(rig, "mdx")
    for key in range(3):
        client.request(key, b"echo", [b"%d" % key])
    asker.exchange(client)
    jobs = jobs_of(worker, peer)
    assert len(jobs) == 3
    other, place = worker_of(rig, "mdx")
    (revoked,) = peer.exchange(worker)
    assert isinstance(revoked, Revoked) and revoked.delivery is jobs[1]
    worker.release(jobs[1])
    peer.exchange(worker)
    (moved,) = jobs_of(other, place)
    assert moved.body == [b"1"] and moved.attempt != jobs[1].attempt
    assert not rig.notes.requeues  # it uses up no attempt
    if protocol != "dcp":
        with pytest.raises(ValueError):
            worker.final(jobs[1], [b"late"])
    rig.broker.check_invariants()


@pytest.mark.parametrize("protocol", ["emqp", "dcp"])
def test_a_worker_that_named_a_window_gets_no_more_than_that(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, protocol, slots=1, prefetch=1)
    client, asker = client_of(rig, "mdx")
    for key in range(4):
        client.request(key, b"echo", [b"%d" % key])
    asker.exchange(client)
    first, second = jobs_of(worker, peer)
    for _ in range(3):
        worker.beat()  # a DCP worker without a window would ask for more
    assert not jobs_of(worker, peer)
    worker.final(first, [b"done"])
    assert [job.body for job in jobs_of(worker, peer)] == [[b"2"]]
    worker.drain()
    worker.final(second, [b"done"])
    assert not jobs_of(worker, peer)
    assert rig.notes.outcomes == ["ok", "ok"] and not rig.notes.violations
    rig.broker.check_invariants()


@each
def test_a_job_that_was_started_is_kept(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, protocol, slots=1, prefetch=1)
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"1"])
    client.request(2, b"echo", [b"2"])
    asker.exchange(client)
    first, second = jobs_of(worker, peer)
    worker_of(rig, "mdx")
    worker.final(first, [b"done"])
    (revoked,) = [event for event in peer.exchange(worker) if isinstance(event, Revoked)]
    worker.keep(revoked.delivery)
    worker.final(second, [b"done"])
    assert peer.exchange(worker) == []
    assert rig.notes.outcomes == ["ok", "ok"] and not rig.notes.stales


@each
@pytest.mark.parametrize("keeps", [True, False])
def test_the_answer_to_a_revocation_is_a_sign_of_life(rig: Rig, protocol: str, keeps: bool) -> None:
    worker, peer = worker_of(rig, protocol, slots=1, prefetch=1)
    (known,) = rig.broker.workers
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"1"])
    client.request(2, b"echo", [b"2"])
    asker.exchange(client)
    assert len(jobs_of(worker, peer)) == 2
    worker_of(rig, "mdx")
    (revoked,) = [event for event in peer.exchange(worker) if isinstance(event, Revoked)]
    rig.broker.now += 0.5
    answer = worker.keep if keeps else worker.release
    answer(revoked.delivery)
    peer.exchange(worker)
    assert known.last_heard == rig.broker.now


# --- cancellation and deadlines


@each
def test_a_cancelled_request_is_not_given_to_a_worker(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, protocol)
    client.request(1, b"echo", [b"1"])
    client.request(2, b"echo", [b"2"])
    asker.exchange(client)
    assert client.cancels
    client.cancel(1, expired=False)
    client.cancel(1, expired=False)  # a second time it is nothing
    asker.exchange(client)
    assert rig.notes.outcomes == ["cancelled"]
    worker, peer = worker_of(rig, "mdx")
    (job,) = jobs_of(worker, peer)
    assert b"".join(job.body) == b"2"
    rig.broker.check_invariants()


@each
def test_a_request_that_timed_out_ends_as_timeout(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, protocol)
    client.request(1, b"echo", [b"1"])
    asker.exchange(client)
    client.cancel(1, expired=True)
    assert asker.exchange(client) == []
    assert rig.notes.outcomes == ["timeout"]


@each
def test_a_cancel_that_crosses_the_reply_is_nothing(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, protocol)
    worker, peer = worker_of(rig, "mdx")
    client.request(1, b"echo", [b"1"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    worker.final(job, [b"done"])
    peer.exchange(worker)
    client.cancel(1, expired=False)
    assert asker.exchange(client) == []
    assert rig.notes.outcomes == ["ok"] and not rig.notes.violations


def cancel_first_of_two(rig: Rig, client: ClientEnd, asker: Peer, protocol: str) -> "tuple[WorkerEnd, Peer, Delivery]":
    """A worker of ``protocol`` holds the first of two requests, which its client has just cancelled."""
    worker, peer = worker_of(rig, protocol)
    client.request(1, b"echo", [b"1"])
    client.request(2, b"echo", [b"2"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    client.cancel(1, expired=False)
    asker.exchange(client)
    return worker, peer, job


@each
def test_a_worker_gets_the_cancellation_and_answers_when_it_has_stopped(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, "mdx")
    worker, peer, job = cancel_first_of_two(rig, client, asker, protocol)
    (event,) = peer.exchange(worker)
    assert isinstance(event, Cancelled) and event.delivery is job
    assert jobs_of(worker, peer) == []  # it is still busy
    worker.release(job)
    (following,) = jobs_of(worker, peer)
    assert following.body == [b"2"]
    rig.broker.check_invariants()


@each
def test_a_worker_that_answers_a_cancelled_request_is_free(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, "mdx")
    worker, peer, job = cancel_first_of_two(rig, client, asker, protocol)
    worker.final(job, [b"late"])  # it crosses the cancellation
    (following,) = jobs_of(worker, peer)
    assert following.body == [b"2"] and asker.exchange(client) == []
    rig.broker.check_invariants()


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_a_worker_that_does_not_understand_it_is_not_told(rig: Rig, protocol: str) -> None:
    """One that announced the extensions of an earlier version."""
    client, asker = client_of(rig, "mdx")
    peer = peer_of(rig, SESSIONS[protocol], Extensions(1, cancel=True, deadline=True, give_back=True))
    worker = WORKERS[protocol]()
    worker.open([b"echo"])
    client.request(1, b"echo", [b"1"], timeout=7.3)
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    assert job.timeout == (7.0 if protocol == "emqp" else 0.0)
    client.cancel(1, expired=False)
    asker.exchange(client)
    assert peer.exchange(worker) == []
    worker.final(job, [b"late"])
    assert jobs_of(worker, peer) == [] and not rig.notes.violations
    rig.broker.check_invariants()


@each
def test_a_worker_gets_the_time_that_is_left(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"1"], timeout=7.3)
    client.request(2, b"echo", [])
    asker.exchange(client)
    rig.wait(2.0)
    worker, peer = worker_of(rig, protocol, slots=2)
    with_deadline, without = jobs_of(worker, peer)
    assert with_deadline.timeout == pytest.approx(5.3, abs=0.002) and b"".join(with_deadline.body) == b"1"
    assert without.timeout == 0.0 and b"".join(without.body) == b""
    worker.final(with_deadline, [b"done"])
    peer.exchange(worker)
    assert Reply(1, [b"done"]) in asker.exchange(client)
    rig.broker.check_invariants()


def test_a_request_without_a_body_comes_with_its_deadline(rig: Rig) -> None:
    peer, asker = peer_of(rig, MdxSession), peer_of(rig, DcpSession)
    peer.say(W, b"\x01", b"echo")
    rig.broker.request(asker.session, b"echo", b"", b"", rig.broker.now + 1.5)
    (told,) = peer.heard()
    assert told[:3] == [W, b"WITHIN", b"1500"] and told[4] == b"" and len(told) == 6


def test_a_worker_gets_a_cancellation_when_the_deadline_passes(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    worker, peer = worker_of(rig, "mdx")
    client.request(1, b"echo", [b"1"], timeout=2.0000000001)  # as from subtracting two clock readings
    assert client.out[-1][:3] == [C, b"WITHIN", b"2000"]
    client.request(2, b"echo", [b"2"], timeout=0.5)
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    rig.wait(1.0)
    assert rig.notes.outcomes == ["timeout"]  # the queued one, without its client's doing anything
    rig.wait(1.5)
    assert rig.notes.outcomes == ["timeout", "timeout"]
    events = [event for event in peer.exchange(worker) if isinstance(event, Cancelled)]
    assert [event.delivery for event in events] == [job]
    rig.broker.check_invariants()


def test_requests_with_a_deadline_take_the_fast_path(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    for key in range(4):
        client.request(key, b"echo", [b"%d" % key], timeout=30.0)
    first, *rest = [join(message) for message in client.out]
    asker.say_raw(first)
    data = b"".join(rest)
    asker.link.fast_path_size = 1000
    assert asker.session.fast_path(data, 0, len(data)) == len(data)
    assert [round(request.deadline - rig.broker.now) for request in asker.session.requests] == [30] * 4
    client.cancel(2, expired=False)
    client.out = client.out[-1:]
    asker.exchange(client)
    assert rig.notes.outcomes == ["cancelled"]


# --- what is not allowed


@pytest.mark.parametrize(
    "message",
    [
        [W, b"CREDIT", b"3"],
        [W, b"CREDIT", b"3", b"x"],
        [W, b"CREDIT", b"-3", b"1"],
        [W, b"CREDIT", b"3", b"1", b"1"],
        [W, b"RELEASED"],
        [W, b"KEPT", b"a", b"b"],
        [C, b"WITHIN", b"", b"echo", b"id", b"body"],
        [C, b"WITHIN", b"1.5", b"echo", b"id", b"body"],
        [C, b"WITHIN", b"10", b"echo", b"id"],
        [C, b"WITHIN", b"10", b"", b"id", b"body"],
        [C, b"WITHIN", b"1" * 11, b"echo", b"id", b"body"],
        [C, b"CANCEL"],
        [C, b"CANCEL", b"id", b"timeout", b"more"],
    ],
)
def test_malformed_messages_are_violations(rig: Rig, message: list[bytes]) -> None:
    worker, peer = worker_of(rig, "mdx")
    peer.say(*message)
    assert rig.notes.violations
    assert [type(event) for event in peer.exchange(worker)] == [Dismissed]
    rig.broker.check_invariants()


@pytest.mark.parametrize(
    "message",
    [
        [W, b"CREDIT", b"3", b"3"],
        [W, b"RELEASED", b"t"],
        [C, b"WITHIN", b"9", b"echo", b"i", b"b"],
        [C, b"CANCEL", b"i"],
    ],
)
def test_a_peer_that_did_not_announce_them_may_not_use_them(rig: Rig, message: list[bytes]) -> None:
    peer = peer_of(rig, MdxSession, NO_EXTENSIONS)
    peer.say(*message)
    assert rig.notes.violations


DCP = (b"", b"DGBX\x01")
EMQP = (b"", b"eMQP/1.0")


@pytest.mark.parametrize(
    "message",
    [
        [*DCP, b"\x0a", b"3", b"x"],
        [*DCP, b"\x0a", b"3"],
        [*DCP, b"\x0b", b"t"],
        [*DCP, b"\x0d"],
        [*EMQP, b"CREDIT", b"i", b"3", b"x"],
        [*EMQP, b"CREDIT", b"i", b"3"],
        [*EMQP, b"KEPT", b"i"],
        [*EMQP, b"REVOKE", b"i", b"t"],
    ],
)
@pytest.mark.parametrize("announced", [True, False])
def test_malformed_windows_are_violations(rig: Rig, message: list[bytes], announced: bool) -> None:
    _, peer = worker_of(rig, "dcp" if message[1] == DCP[1] else "emqp")
    if not announced:
        peer.link.extensions = NO_EXTENSIONS
        message = [*message[:3], *([b"i"] if message[1] == EMQP[1] else []), b"1", b"1"]
    peer.say(*message)
    assert rig.notes.violations
    rig.broker.check_invariants()


@pytest.mark.parametrize("command", [b"RELEASED", b"KEPT"])
def test_a_token_that_the_worker_does_not_hold(rig: Rig, command: bytes) -> None:
    worker, peer = worker_of(rig, "mdx", slots=2)
    peer.say(W, command, b"00000000a001")
    assert rig.notes.stales == (["release"] if command == b"RELEASED" else [])
    assert not rig.notes.violations and peer.exchange(worker) == []


def test_cancelling_an_unknown_request_is_nothing(rig: Rig) -> None:
    _, asker = client_of(rig, "mdx")
    asker.say(C, b"CANCEL", b"unknown")
    asker.say(C, b"CANCEL", b"")
    assert not rig.notes.violations and asker.heard() == []


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_a_permanent_failure_reaches_the_client_and_any_other_is_tried_again(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, "mdx")
    worker, peer = worker_of(rig, protocol)
    for number, code in enumerate(["permanent", "invalid-arguments"]):
        client.request(number, b"echo", [b"1"])
        asker.exchange(client)
        (job,) = jobs_of(worker, peer)
        assert not worker.fail(job, code, "never")
        assert jobs_of(worker, peer) == []
        assert asker.exchange(client) == [Failure(number, code, "never")]
    client.request(7, b"echo", [b"1"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    assert not worker.fail(job, "failed", "bad luck")
    (again,) = jobs_of(worker, peer)
    assert again.body == [b"1"] and asker.exchange(client) == []
    worker.agreed = Extensions(1, give_back=True)  # a broker of an earlier version
    assert not worker.fail(again, "permanent", "never")
    assert len(jobs_of(worker, peer)) == 1 and asker.exchange(client) == []
    assert not rig.notes.violations
    rig.broker.check_invariants()


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_a_permanent_failure_without_the_extension_is_a_violation(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, "mdx")
    peer = peer_of(rig, SESSIONS[protocol], Extensions(1, cancel=True, give_back=True))
    worker = WORKERS[protocol]()
    worker.agreed = BROKER
    worker.open([b"echo"])
    client.request(1, b"echo", [b"1"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    worker.fail(job, "permanent", "never")
    peer.exchange(worker)
    assert rig.notes.violations
    rig.broker.check_invariants()
