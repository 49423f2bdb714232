"""memo01, the broker's end, against the real broker with a given clock."""

import pytest

from polydomo.limits import MEMO_MAX_RUN
from polydomo.protocols.memo import messages
from polydomo.wire import frames, sp
from tests.protocols.memo.fakes import DISCONNECT, HEARTBEAT, JOB, RESULT, Peer, World


@pytest.fixture
def world() -> World:
    return World()


def out_of(peer: Peer) -> bytes:
    data = b"".join(bytes(piece) for piece in peer.link.out)
    peer.link.out.clear()
    return data


# --- the dialog -------------------------------------------------------------------------------------------------------------


def test_bytes_of_a_whole_dialog(world: World) -> None:
    peer = world.connect()
    peer.raw(0x80000001, bytes.fromhex("84 66 6d656d6f3031 01 40 82 63 616464 64 6563686f"))  # READY [add, echo]
    peer.raw(0x80000002, bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 19 1388") + b"hello")  # JOB echo 5000
    worker = bytes(15) + b"\x01"
    job = bytes.fromhex("85 66 6d656d6f3031 02 50") + worker + bytes.fromhex("64 6563686f 19 1388") + b"hello"
    assert out_of(peer) == sp.message(bytes.fromhex("80000001"), job)
    peer.raw(0x80000003, bytes.fromhex("83 66 6d656d6f3031 03 50") + worker + b"HELLO")  # RESULT
    assert out_of(peer) == sp.message(bytes.fromhex("80000002"), bytes.fromhex("83 66 6d656d6f3031 03 40") + b"HELLO")
    assert world.notes.outcomes == ["ok"] and world.notes.violations == []


def test_a_job_that_came_first_is_the_answer_to_ready(world: World) -> None:
    peer = world.connect()
    peer.job(1, "echo", b"early")
    assert peer.heard() == []
    peer.ready(2, "echo")
    [(rid, header, payload)] = peer.heard()
    assert (rid, payload) == (2, b"early")
    assert header[0] == JOB and header[2:] == ["echo", 5000]


def test_result_is_the_poll_for_the_next_job_and_a_worker_has_one_at_a_time(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.job(1, "echo", b"one")
    peer.job(2, "echo", b"two")
    assert peer.heard() == [(11, [JOB, worker, "echo", 5000], b"one")]
    peer.result(12, worker, b"ONE")
    assert peer.heard() == [(1, [RESULT, b""], b"ONE"), (12, [JOB, worker, "echo", 5000], b"two")]
    peer.result(13, worker, b"TWO")
    assert peer.heard() == [(2, [RESULT, b""], b"TWO")]


def test_ready_with_several_services(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "zebra", "ab", "çé")  # unsorted: "accept it"
    for rid, service in enumerate(("ab", "zebra", "çé")):
        peer.job(rid, service)
        assert peer.heard() == [(11 + rid, [JOB, worker, service, 5000], b"")]
        peer.result(12 + rid, worker)
        assert peer.heard() == [(rid, [RESULT, b""], b"")]


def test_a_job_is_dispatched_only_to_workers_of_its_service(world: World) -> None:
    peer = world.connect()
    peer.worker(10, "other", "echoes")
    peer.job(1, "echo")
    assert peer.heard() == []
    peer.ready(30, "echo")
    assert [(rid, header[2]) for rid, header, _ in peer.heard()] == [(30, "echo")]


def test_an_empty_list_of_services_is_accepted(world: World) -> None:
    peer = world.connect()
    peer.ready(1)
    world.wait(10.2)
    assert [header[0] for _, header, _ in peer.heard()] == [HEARTBEAT]


def test_an_idle_worker_gets_a_heartbeat_after_10_s_again_and_again(world: World) -> None:
    peer = world.connect()
    peer.ready(1, "echo")
    for rid in range(1, 5):
        world.wait(9.9)
        assert peer.heard() == []
        world.wait(0.3)
        [(answered, header, _)] = peer.heard()
        assert answered == rid
        worker = header[1]
        assert header == [HEARTBEAT, worker] and isinstance(worker, bytes) and len(worker) == 16
        peer.heartbeat(rid + 1, worker)
    assert len(world.broker.workers) == 1


def test_an_idle_while_counts_from_the_poll_not_from_the_last_job(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "slow")
    peer.job(1, "slow", timeout=100_000)
    peer.heard()
    world.wait(33)
    peer.result(12, worker)
    assert peer.heard() == [(1, [RESULT, b""], b"")]
    world.wait(9.8)
    assert peer.heard() == []
    world.wait(0.5)
    assert peer.heard() == [(12, [HEARTBEAT, worker], b"")]


def test_a_worker_silent_for_10_s_after_a_heartbeat_is_gone(world: World) -> None:
    peer = world.connect()
    peer.ready(1, "echo")
    world.wait(10.2)
    [(_, [_, worker], _)] = peer.heard()
    assert isinstance(worker, bytes)
    world.wait(9.5)
    assert len(world.broker.workers) == 1
    peer.job(2, "echo")
    assert peer.heard() == []  # it could not be told
    world.wait(0.8)
    assert not world.broker.workers and not world.broker.memo_workers and not peer.session.mine
    peer.heartbeat(3, worker)
    assert peer.heard() == [(3, [DISCONNECT, worker], b"")]


def test_disconnecting_result_is_delivered_and_answered_with_disconnect(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.job(1, "echo")
    peer.job(2, "echo")
    peer.heard()
    peer.say(12, RESULT, worker, True, payload=b"last")
    assert peer.heard() == [(1, [RESULT, b""], b"last"), (12, [DISCONNECT, worker], b"")]
    assert not world.broker.memo_workers and not world.broker.workers
    other = peer.worker(20, "unrelated")
    peer.ready(30, "echo")
    [(rid, header, _)] = peer.heard()
    assert rid == 30 and header[1] not in (worker, other)


def test_a_disconnecting_flag_of_false_is_an_ordinary_result(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.job(1, "echo")
    peer.heard()
    peer.say(12, RESULT, worker, False, payload=b"x")
    assert peer.heard() == [(1, [RESULT, b""], b"x")]
    assert list(world.broker.memo_workers) == [worker]


def test_worker_ids_are_16_bytes_and_differ(world: World) -> None:
    peer = world.connect()
    ids = {peer.worker(rid, "echo") for rid in range(0, 40, 2)}
    assert len(ids) == 20 and {len(one) for one in ids} == {16}


def test_hundreds_of_clients_and_workers_on_one_connection(world: World) -> None:
    peer = world.connect()
    workers = {rid + 1: peer.worker(rid, "echo") for rid in range(0, 600, 2)}
    for rid in range(1000, 1300):
        peer.job(rid, "echo", b"%d" % rid)
    heard = peer.heard()
    assert {rid for rid, _, _ in heard} == set(workers)
    assert not peer.link.pauses
    for poll, header, payload in reversed(heard):
        assert header[1] == workers[poll]
        peer.result(2000 + poll, workers[poll], payload + b"!")
    assert sorted(peer.heard()) == [(rid, [RESULT, b""], b"%d!" % rid) for rid in range(1000, 1300)]


# --- out of step ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", [b"", b"four", bytes(16), bytes(255)])
@pytest.mark.parametrize("kind", [RESULT, HEARTBEAT])
def test_an_unknown_id_gets_disconnect_that_echoes_it(world: World, worker: bytes, kind: int) -> None:
    peer = world.connect()
    peer.say(1, kind, worker)
    assert peer.heard() == [(1, [DISCONNECT, worker], b"")]
    assert world.notes.violations == []


def test_a_late_result_gets_disconnect_and_the_client_silence(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "slow")
    peer.job(1, "slow", timeout=3000)
    peer.heard()
    world.wait(2.9)
    assert world.notes.outcomes == []
    world.wait(0.2)
    assert world.notes.outcomes == ["timeout"] and peer.heard() == []
    peer.ready(20, "slow")
    assert peer.heard() == []  # not requeued
    peer.result(12, worker, b"late")
    assert peer.heard() == [(12, [DISCONNECT, worker], b"")]
    assert world.notes.outcomes == ["timeout"]


def test_a_result_without_a_job_gets_disconnect(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.result(12, worker, b"?")
    assert peer.heard() == [(12, [DISCONNECT, worker], b"")]
    assert not world.broker.workers and not peer.session.open


def test_a_heartbeat_instead_of_a_result_gives_the_job_to_another_worker(world: World) -> None:
    peer = world.connect()
    first = peer.worker(10, "echo")
    second = peer.worker(20, "echo")
    peer.job(1, "echo", b"x")
    assert peer.heard() == [(11, [JOB, first, "echo", 5000], b"x")]
    peer.heartbeat(12, first)
    assert peer.heard() == [(12, [DISCONNECT, first], b""), (21, [JOB, second, "echo", 5000], b"x")]
    peer.result(22, second, b"y")
    assert peer.heard() == [(1, [RESULT, b""], b"y")]


def test_shutdown_answers_open_polls_with_disconnect(world: World) -> None:
    peer = world.connect()
    idle = peer.worker(10, "idle")
    busy = peer.worker(20, "busy")
    peer.job(1, "busy")
    peer.heard()
    world.broker.shutdown()
    assert peer.heard() == [(11, [DISCONNECT, idle], b"")]
    peer.result(22, busy)
    assert peer.heard() == [(22, [DISCONNECT, busy], b"")]
    assert not world.broker.memo_workers


# --- times ------------------------------------------------------------------------------------------------------------------


def test_a_job_waits_at_most_10_s_for_a_worker_and_ends_silently(world: World) -> None:
    peer = world.connect()
    peer.job(1, "nobody")
    world.wait(9.9)
    assert world.notes.outcomes == []
    world.wait(0.3)
    assert world.notes.outcomes == ["no-worker"] and peer.heard() == []
    peer.job(1, "nobody", b"again")  # "one after a silent end is a new request"
    peer.ready(2, "nobody")
    assert peer.heard()[0][2] == b"again"


def test_the_timeout_runs_from_dispatch(world: World) -> None:
    peer = world.connect()
    peer.job(1, "echo", timeout=2000)
    world.wait(8)
    peer.ready(10, "echo")
    [(_, header, _)] = peer.heard()
    [worker] = world.broker.memo_workers
    assert header == [JOB, worker, "echo", 2000]
    world.wait(1.9)
    peer.result(11, worker, b"in time")
    assert peer.heard() == [(1, [RESULT, b""], b"in time")]


def test_a_job_of_many_minutes_is_not_interrupted(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "slow")
    peer.job(1, "slow", timeout=3_600_000)
    peer.heard()
    world.wait(3500)
    assert peer.heard() == []
    peer.result(12, worker, b"at last")
    assert peer.heard() == [(1, [RESULT, b""], b"at last")]


def test_a_timeout_of_0_is_invalid_and_an_endless_one_is_cut(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.job(1, "echo", timeout=0)
    assert peer.heard() == [] and "timeout of 0" in world.notes.violations[0]
    peer.job(2, "echo", timeout=2**64 - 1)
    assert peer.heard() == [(11, [JOB, worker, "echo", int(MEMO_MAX_RUN * 1000)], b"")]


def test_a_foreign_clients_job_whose_deadline_has_just_passed(world: World) -> None:
    """Timers share buckets: a worker may ask for work between the deadline and the moment at which it is noticed."""
    peer, client = world.connect(), world.foreigner()
    client.ask("a", b"echo", b"x", deadline=world.broker.now + 7.253)
    world.broker.now += 7.257
    due = world.broker.next_deadline()
    assert due is not None and due > world.broker.now
    peer.ready(10, "echo")
    [(_, header, _)] = peer.heard()
    assert header[3] == 1
    world.wait(1.0)
    assert world.notes.outcomes == ["timeout"]


@pytest.mark.parametrize(("deadline", "expected"), [(0.0, 900_000), (7.25, 7250)])
def test_the_timeout_of_a_foreign_clients_job(world: World, deadline: float, expected: int) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    client = world.foreigner()
    client.ask("a", b"echo", b"x", deadline=world.broker.now + deadline if deadline else 0.0)
    assert peer.heard() == [(11, [JOB, worker, "echo", expected], b"x")]


# --- bodies, and other protocols --------------------------------------------------------------------------------------------


def test_a_payload_is_one_frame_for_a_worker_of_another_protocol(world: World) -> None:
    peer = world.connect()
    other = world.foreigner()
    other.work(b"echo")
    peer.job(1, "echo")
    peer.job(2, "echo", b"x" * 100_000)
    worker, token, body = other.jobs[0]
    assert body == [b""]
    world.broker.partial(worker, token, frames.join([b"p1", b"p2"]))
    assert peer.heard() == []
    world.broker.final(worker, token, frames.join([b"", b"f"]))
    assert peer.heard() == [(1, [RESULT, b""], b"p1p2f")]
    worker, token, body = other.jobs[1]
    assert body == [b"x" * 100_000]
    world.broker.final(worker, token, b"")
    assert peer.heard() == [(2, [RESULT, b""], b"")]


@pytest.mark.parametrize("body", [[], [b""], [b"x"], [b"ab", b"", b"cd"], [bytes(300_000)], [bytes(100_000), b"x"]])
def test_frames_of_another_protocols_client_are_joined(world: World, body: list[bytes]) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    client = world.foreigner()
    client.ask("a", b"echo", *body)
    [(_, header, payload)] = peer.heard()
    assert header[:2] == [JOB, worker] and payload == b"".join(body)
    peer.result(12, worker, b"reply")
    assert client.finals == [("a", [b"reply"])]


def test_a_large_result_is_forwarded_completely(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "big")
    payload = bytes(range(256)) * 16384
    peer.job(1, "big", payload)
    assert peer.heard()[0][2] == payload
    peer.result(12, worker, payload)
    assert peer.heard() == [(1, [RESULT, b""], payload)]


def test_reserved_services_answer_a_client(world: World) -> None:
    peer = world.connect()
    peer.worker(10, "echo")
    peer.worker(20, "echo")
    peer.job(1, "polydomo.window", b"echo")
    peer.job(2, "mmi.service", b"echo")
    peer.job(3, "mmi.service", b"nobody")
    (window, found, missing) = peer.heard()
    assert window[:2] == (1, [RESULT, b""]) and int(window[2]) >= 2
    assert found == (2, [RESULT, b""], b"200") and missing == (3, [RESULT, b""], b"404")
    assert peer.session.open == {(0x80000000 | rid).to_bytes(4, "big") for rid in (11, 21)}


def test_a_request_id_from_devices_is_returned_completely(world: World) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    stack = bytes.fromhex("00000005 7fffffff 80000001")
    peer.link.receive(sp.message(stack, messages.job(b"", b"echo", 100) + b"x"))
    peer.link.receive(sp.message(b"\x00\x00\x00\x06" + stack[4:], messages.job(b"", b"echo", 100) + b"x"))
    peer.heard()
    peer.result(12, worker, b"y")
    assert sp.message(stack, messages.result(b"") + b"y") in out_of(peer)


def test_a_lost_workers_old_job_waits_for_another_worker(world: World) -> None:
    """A requeued job gets 10 s in the queue again."""
    client, old, new = world.connect(), world.connect(), world.connect()
    old.worker(10, "echo")
    client.job(1, "echo", b"x", timeout=60_000)
    world.wait(30)
    old.close()
    world.wait(5)
    assert world.notes.outcomes == []
    new.ready(20, "echo")
    [(rid, _, payload)] = new.heard()
    assert (rid, payload) == (20, b"x")


def test_a_job_of_another_protocol_is_requeued_after_the_timeout_sent_to_the_worker(world: World) -> None:
    peer = world.connect()
    first = peer.worker(10, "echo")
    client = world.foreigner()
    client.ask("a", b"echo", b"x")
    assert peer.heard() == [(11, [JOB, first, "echo", 900_000], b"x")]
    second = peer.worker(20, "echo")
    for rid in range(30, 130):  # the second one keeps beating
        world.wait(9)
        peer.heartbeat(rid, second)
    world.wait(20)
    assert first not in world.broker.memo_workers
