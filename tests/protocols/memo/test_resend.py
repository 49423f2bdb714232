"""memo01: automatic resends of NNG. It repeats requests, and carries a request over to another connection."""

import pytest

from polydomo.limits import MEMO_ANSWER_BYTES, MEMO_ANSWER_CACHE, MEMO_ANSWER_TIME
from tests.protocols.memo.fakes import DISCONNECT, HEARTBEAT, JOB, RESULT, Peer, World


@pytest.fixture
def world() -> World:
    return World()


# --- resends ----------------------------------------------------------------------------------------------------------------


def test_a_resent_job_runs_once_and_is_answered_once(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    for _ in range(3):
        peer.job(1, "echo", b"x")
    assert peer.heard() == [(11, [JOB, worker, "echo", 5000], b"x")]
    peer.result(12, worker, b"y")
    assert peer.heard() == [(1, [RESULT, b""], b"y")]
    assert world.notes.outcomes == ["ok"]


def test_a_resend_that_crosses_its_answer_gets_the_same_answer_and_a_late_one_is_new(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.job(1, "echo", b"x")
    peer.result(12, worker, b"y")
    peer.heard()
    world.wait(MEMO_ANSWER_TIME - 1)
    peer.job(1, "echo", b"x")
    assert peer.heard() == [(1, [RESULT, b""], b"y")]
    world.wait(MEMO_ANSWER_TIME + 1.5)
    assert peer.heard() == [(12, [HEARTBEAT, worker], b"")]
    peer.heartbeat(13, worker)
    peer.job(1, "echo", b"x")
    assert peer.heard() == [(13, [JOB, worker, "echo", 5000], b"x")]
    assert world.notes.outcomes == ["ok"]


def test_the_same_id_on_another_connection_is_another_request(world: World) -> None:
    one, two, work = world.connect(), world.connect(), world.connect()
    first, second = work.worker(10, "echo"), work.worker(20, "echo")
    one.job(1, "echo", b"one")
    two.job(1, "echo", b"two")
    work.heard()
    work.result(22, second, b"TWO")
    work.result(12, first, b"ONE")
    assert one.heard() == [(1, [RESULT, b""], b"ONE")]
    assert two.heard() == [(1, [RESULT, b""], b"TWO")]


def test_resent_ready_heartbeat_and_result_are_taken_once(world: World) -> None:
    peer = world.connect()
    peer.ready(10, "echo")
    peer.ready(10, "echo")
    assert len(world.broker.workers) == 1
    worker = next(iter(world.broker.memo_workers))
    peer.job(1, "echo", b"x")
    job = [(10, [JOB, worker, "echo", 5000], b"x")]
    assert peer.heard() == job
    peer.ready(10, "echo")  # it had not seen the answer: the same job, not a second one
    assert peer.heard() == job
    peer.result(11, worker, b"y")
    peer.result(11, worker, b"y")
    assert peer.heard() == [(1, [RESULT, b""], b"y")]
    assert len(world.broker.workers) == 1


def kept(peer: Peer) -> list[int]:
    """The sizes of the payloads that the connection keeps."""
    return [len(answer[1]) for half in (peer.session.answers, peer.session.older) for answer in half.values()]


def test_kept_answers_are_bounded_in_number_and_in_time(world: World) -> None:
    peer = world.connect()
    for rid in range(3 * MEMO_ANSWER_CACHE):
        peer.job(rid, "mmi.service", b"x")
        world.broker.end_turn()  # the broker answers one client only so much in one turn
        assert len(kept(peer)) <= MEMO_ANSWER_CACHE
    peer.heard()
    latest = 3 * MEMO_ANSWER_CACHE - 1
    for rid in range(latest, latest - MEMO_ANSWER_CACHE // 2, -1):
        peer.raw(0x80000000 | rid, b"")  # what it says does not matter: it is a resend
    assert len(peer.heard()) == MEMO_ANSWER_CACHE // 2 and world.notes.violations == []
    world.wait(2 * MEMO_ANSWER_TIME + 1)
    assert kept(peer) == [] and world.broker.next_deadline() is None


def test_kept_answers_are_bounded_in_bytes(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(100, "big")
    for rid, size in enumerate((1, 2, 3, MEMO_ANSWER_BYTES // 2, 7, MEMO_ANSWER_BYTES, 9)):
        peer.job(200 + rid, "big")
        peer.result(300 + rid, worker, bytes(size))
        assert sum(kept(peer)) <= MEMO_ANSWER_BYTES
        peer.heard()
        peer.job(200 + rid, "big")
        if size <= MEMO_ANSWER_BYTES // 2:
            assert [(one, len(payload)) for one, _, payload in peer.heard()] == [(200 + rid, size)]
        else:  # too large to keep: the resend is a new request
            assert [header[0] for _, header, _ in peer.heard()] == [JOB]
            peer.result(400, worker)


# --- connections ------------------------------------------------------------------------------------------------------------


def test_a_result_on_a_new_connection_within_1_s_counts(world: World) -> None:
    client, old, new = world.connect(), world.connect(), world.connect()
    worker = old.worker(10, "echo")
    client.job(1, "echo", b"x")
    old.close()
    world.wait(0.8)
    new.result(12, worker, b"y")
    assert client.heard() == [(1, [RESULT, b""], b"y")]
    client.job(2, "echo", b"z")
    assert new.heard() == [(12, [JOB, worker, "echo", 5000], b"z")]
    world.wait(4)
    assert list(new.session.mine) == [worker] and not old.session.mine
    new.result(13, worker)
    assert client.heard() == [(2, [RESULT, b""], b"")]


def test_after_1_s_the_job_is_requeued_with_a_new_timeout(world: World) -> None:
    client, old, new = world.connect(), world.connect(), world.connect()
    worker = old.worker(10, "echo")
    other = new.worker(20, "echo")
    client.job(1, "echo", b"x", timeout=3000)
    assert old.heard() == [(11, [JOB, worker, "echo", 3000], b"x")]
    world.wait(1)
    old.close()
    world.wait(0.9)
    assert new.heard() == []
    world.wait(0.2)
    assert new.heard() == [(21, [JOB, other, "echo", 3000], b"x")]
    assert list(world.broker.memo_workers) == [other]
    new.result(12, worker, b"too late")
    assert new.heard() == [(12, [DISCONNECT, worker], b"")]
    world.wait(2.5)
    new.result(22, other, b"y")
    assert client.heard() == [(1, [RESULT, b""], b"y")]
    assert world.notes.outcomes == ["ok"]


def test_an_idle_worker_moves_to_a_new_connection(world: World) -> None:
    old, new = world.connect(), world.connect()
    worker = old.worker(10, "echo")
    old.close()
    world.connect().job(1, "echo", b"x")  # waits: the worker cannot be told
    assert new.heard() == []
    new.heartbeat(11, worker)
    assert new.heard() == [(11, [JOB, worker, "echo", 5000], b"x")]


def test_a_worker_may_continue_on_a_second_live_connection(world: World) -> None:
    one, two = world.connect(), world.connect()
    worker = one.worker(10, "echo")
    two.heartbeat(11, worker)
    assert not one.session.open and not one.session.mine
    assert (one.session.worker_count, two.session.worker_count) == (0, 1)
    one.job(1, "echo", b"x")
    one.job(2, "echo", b"z")
    assert two.heard() == [(11, [JOB, worker, "echo", 5000], b"x")]
    one.close()
    assert list(world.broker.memo_workers) == [worker]


def test_a_poll_that_replaces_another_leaves_one_credit(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.heartbeat(12, worker)
    assert peer.session.open == {(0x80000000 | 12).to_bytes(4, "big")}
    peer.job(1, "echo", b"x")
    peer.job(2, "echo", b"z")
    assert peer.heard() == [(12, [JOB, worker, "echo", 5000], b"x")]


def test_a_closed_connection_leaves_no_state(world: World) -> None:
    peer = world.connect()
    peer.worker(10, "echo")
    peer.job(1, "echo")
    peer.job(2, "nobody")
    peer.close()
    world.wait(60)
    broker = world.broker
    assert not broker.workers and not broker.memo_workers and not broker.services and broker.open_requests == 0
    assert not peer.session.open and not peer.session.answers and not peer.session.mine


def test_a_result_repeated_on_a_new_connection_is_not_taken_for_the_next_jobs(world: World) -> None:
    """The JOB that answered the RESULT was lost with the connection: NNG repeats the RESULT, and the worker gets that JOB again."""
    one, two, old, new = world.connect(), world.connect(), world.connect(), world.connect()
    worker = old.worker(10, "echo")
    one.job(1, "echo", b"for one")
    old.result(12, worker, b"to one")
    assert one.heard() == [(1, [RESULT, b""], b"to one")]
    two.job(1, "echo", b"for two")
    old.heard()
    old.close()
    new.result(12, worker, b"to one")
    assert two.heard() == []
    assert new.heard() == [(12, [JOB, worker, "echo", 5000], b"for two")]
    new.result(13, worker, b"to two")
    assert two.heard() == [(1, [RESULT, b""], b"to two")]
    assert world.notes.outcomes == ["ok", "ok"]


def test_a_heartbeat_repeated_on_a_new_connection_gets_the_lost_job_again(world: World) -> None:
    client, old, new = world.connect(), world.connect(), world.connect()
    worker = old.worker(10, "echo")
    old.heartbeat(12, worker)
    client.job(1, "echo", b"x")
    old.close()
    new.heartbeat(12, worker)
    assert new.heard() == [(12, [JOB, worker, "echo", 5000], b"x")]
    new.result(13, worker, b"y")
    assert client.heard() == [(1, [RESULT, b""], b"y")]


def test_a_repeated_message_whose_job_has_ended_gets_disconnect(world: World) -> None:
    client, old, new = world.connect(), world.connect(), world.connect()
    worker = old.worker(10, "echo")
    old.heartbeat(12, worker)
    client.job(1, "echo", b"x")
    old.close()
    client.close()
    new.heartbeat(12, worker)
    assert new.heard() == [(12, [DISCONNECT, worker], b"")]
    assert not world.broker.workers
