"""MDX, the broker's end: requests, replies, failures and heartbeats, against the real broker without I/O."""

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.model.tuning import Tuning
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.mdx.ends import MdxWorkerEnd
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.protocols.mdx.peers import DISCONNECT, PONG, C, W, client_of, failure, job_of, worker_of, worker_of_busy
from tests.protocols.mdx_dcp_rig import Frames, Rig, long_form


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- request and reply


def test_request_partials_and_final(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id-1", b"hello", b"", b"two")
    job = job_of(worker)
    assert job[4:] == [b"id-1", b"hello", b"", b"two"]
    worker.say(W, b"\x03", job[2], b"", job[4], b"part")
    assert client.heard() == [[C, b"\x02", b"echo", b"id-1", b"part"]]
    worker.say(W, b"\x04", job[2], b"", job[4], b"whole", b"")
    assert client.heard() == [[C, b"\x03", b"echo", b"id-1", b"whole", b""]]
    assert rig.notes.outcomes == ["ok"]
    assert worker.heard() == []


def test_many_requests_at_once_and_replies_in_any_order(rig: Rig) -> None:
    workers = [worker_of(rig) for _ in range(3)]
    client = client_of(rig)
    for i in range(3):
        client.say(C, b"\x01", b"echo", b"%d" % i, b"body")
    jobs = [job_of(worker) for worker in workers]
    for i in (2, 0, 1):
        workers[i].say(W, b"\x04", *jobs[i][2:5], b"done")
        assert client.heard() == [[C, b"\x03", b"echo", b"%d" % i, b"done"]]


def test_requests_queue_for_a_worker_and_it_gets_one_at_a_time(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    for i in range(3):
        client.say(C, b"\x01", b"echo", b"%d" % i, b"body")
    for i in range(3):
        job = job_of(worker)
        assert job[4] == b"%d" % i
        worker.say(W, b"\x04", *job[2:5])
    assert [message[3] for message in client.heard()] == [b"0", b"1", b"2"]


def test_least_recently_used_worker_first(rig: Rig) -> None:
    workers = [worker_of(rig) for _ in range(3)]
    client = client_of(rig)
    order = []
    for i in range(6):
        client.say(C, b"\x01", b"echo", b"%d" % i, b"body")
        for j, worker in enumerate(workers):
            for message in worker.heard():
                order.append(j)
                worker.say(W, b"\x04", *message[2:5])
    assert order == [0, 1, 2, 0, 1, 2]


def test_repeated_id_is_the_same_request_until_it_is_answered(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    for _ in range(3):
        client.say(C, b"\x01", b"echo", b"same", b"body")
    job = job_of(worker)
    worker.say(W, b"\x04", *job[2:5], b"once")
    assert client.heard() == [[C, b"\x03", b"echo", b"same", b"once"]]
    assert worker.heard() == []
    client.say(C, b"\x01", b"echo", b"same", b"body")  # answered: the id is free again
    assert job_of(worker)[4] == b"same"


def test_two_clients_may_use_the_same_id_and_each_gets_its_own_reply(rig: Rig) -> None:
    workers = [worker_of(rig), worker_of(rig)]
    clients = [client_of(rig), client_of(rig)]
    for i, client in enumerate(clients):
        client.say(C, b"\x01", b"echo", b"id", b"from %d" % i)
    for worker in reversed(workers):
        job = job_of(worker)
        worker.say(W, b"\x04", *job[2:5], *job[5:])
    for i, client in enumerate(clients):
        assert client.heard() == [[C, b"\x03", b"echo", b"id", b"from %d" % i]]


@pytest.mark.parametrize("identity", [b"\x00", b"x" * 255, bytes(range(16))])
def test_request_ids_are_opaque_bytes(rig: Rig, identity: bytes) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", identity, b"body")
    job = job_of(worker)
    assert job[4] == identity
    worker.say(W, b"\x04", *job[2:5], b"done")
    assert client.heard() == [[C, b"\x03", b"echo", identity, b"done"]]


def test_worker_reply_without_body_reaches_the_client_as_one_empty_frame(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"")
    job = job_of(worker)
    assert job[5:] == [b""]
    worker.say(W, b"\x03", *job[2:5])
    worker.say(W, b"\x04", *job[2:5])
    assert client.heard() == [[C, b"\x02", b"echo", b"id", b""], [C, b"\x03", b"echo", b"id", b""]]


@pytest.mark.parametrize("size", [255, 256, limits.BIG_BODY - 1, limits.BIG_BODY, 1_000_000])
def test_bodies_of_any_size_pass_untouched(rig: Rig, size: int) -> None:
    worker, client = worker_of(rig), client_of(rig)
    body = [b"a" * size, b"", b"b" * size]
    client.say(C, b"\x01", b"echo", b"id", *body)
    job = job_of(worker)
    assert job[5:] == body
    worker.say(W, b"\x04", *job[2:])
    assert client.heard() == [[C, b"\x03", b"echo", b"id", *body]]


def test_frames_in_the_long_form_are_understood(rig: Rig) -> None:
    worker, client = rig.peer(MdxSession), client_of(rig)
    worker.say_raw(long_form([W, b"\x01", b"echo"]))
    worker.say_raw(long_form([W, b"PING"]))
    assert worker.heard() == PONG
    client.say_raw(long_form([C, b"\x01", b"echo", b"id", b"body"]))
    job = job_of(worker)
    worker.say_raw(long_form([W, b"\x04", *job[2:5], b"done"]))
    assert client.heard() == [[C, b"\x03", b"echo", b"id", b"done"]]
    assert rig.notes.violations == []


def test_one_connection_may_be_client_and_worker(rig: Rig) -> None:
    both = worker_of(rig)
    both.say(C, b"\x01", b"echo", b"mine", b"body")
    job = job_of(both)
    both.say(W, b"\x04", *job[2:5], b"done")
    assert both.heard() == [[C, b"\x03", b"echo", b"mine", b"done"]]


def test_request_of_another_protocol_has_the_token_as_its_id(rig: Rig) -> None:
    worker, client = worker_of(rig), rig.peer(DcpSession)
    client.say(b"", b"DGBX\x01", b"\x04", b"echo", b"", b"meta", b"")
    (job,) = worker.heard()
    assert job[4] == job[2]
    assert len(job) == 5  # no data parts: a body of no frames
    worker.say(W, b"\x03", *job[2:5], b"part")
    worker.say(W, b"\x04", *job[2:5], b"rest")
    ((*_, delimiter, part, rest),) = client.heard()
    assert [delimiter, part, rest] == [b"", b"part", b"rest"]


# --- frame 0


def test_one_header_for_both_roles() -> None:
    rig = Rig(Tuning(mdx_client_header=b"JOBS", mdx_worker_header=b"JOBS"))
    worker, client = rig.peer(MdxSession), rig.peer(MdxSession)
    worker.say(b"JOBS", b"\x01", b"echo")  # 3 frames: READY
    client.say(b"JOBS", b"\x01", b"echo", b"id", b"body")  # 5: REQUEST
    (job,) = worker.heard()
    assert job[:2] == [b"JOBS", b"\x02"] and job[4:] == [b"id", b"body"]
    worker.say(b"JOBS", b"PING")
    worker.say(b"JOBS", b"\x03", *job[2:5], b"part")
    worker.say(b"JOBS", b"\x04", *job[2:5], b"done")
    assert worker.heard() == [[b"JOBS", b"PONG"]]
    assert client.heard() == [[b"JOBS", b"\x02", b"echo", b"id", b"part"], [b"JOBS", b"\x03", b"echo", b"id", b"done"]]
    client.say(b"JOBS", b"\x01", b"echo", b"id")  # 4: neither
    assert rig.notes.violations == ["REQUEST of 4 frames, not 5 or more"]


def test_headers_are_settings() -> None:
    rig = Rig(Tuning(mdx_client_header=b"c" * 300, mdx_worker_header=b""))
    worker, client = rig.peer(MdxSession), rig.peer(MdxSession)
    worker.say(b"", b"\x01", b"echo")
    client.say(b"c" * 300, b"\x01", b"echo", b"id", b"body")
    (job,) = worker.heard()
    worker.say(b"", b"\x04", *job[2:])
    assert client.heard() == [[b"c" * 300, b"\x03", b"echo", b"id", b"body"]]
    client.say(C, b"\x01", b"echo", b"id", b"body")
    assert rig.notes.violations == ["frame 0 is b'MDXC01'"]


# --- failure: one FINAL per REQUEST, come what may


def test_failure_is_a_final(rig: Rig) -> None:
    client = client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    rig.wait(limits.QUEUE_EXPIRY + 1)
    assert failure(client) == "no-worker"


def test_worker_reports_a_failure(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    worker.say(W, b"\x04", *job_of(worker)[2:5], b"", b"polydomo-failure", b"ValueError", b"no such page \xff")
    assert client.heard() == [
        [C, b"\x03", b"echo", b"id", b"", b"polydomo-failure", b"ValueError", "no such page �".encode()]
    ]
    assert rig.notes.outcomes == ["failed"]
    client.say(C, b"\x01", b"echo", b"id", b"body")  # the worker is free again
    job_of(worker)


@pytest.mark.parametrize(
    "body", [[b""], [b"", b"polydomo-failure", b"code"], [b"", b"polydomo-failure", b"1", b"2", b"3"]]
)
def test_body_that_only_resembles_a_failure_is_a_body(rig: Rig, body: Frames) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    worker.say(W, b"\x04", *job_of(worker)[2:5], *body)
    assert client.heard() == [[C, b"\x03", b"echo", b"id", *body]]


def test_failure_report_is_cut_to_its_bounds(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    worker.say(W, b"\x04", *job_of(worker)[2:5], b"", b"polydomo-failure", b"c" * 10_000, b"t" * 10_000)
    ((*_, code, text),) = client.heard()
    assert len(code) == limits.MAX_FAILURE_CODE and len(text) == limits.MAX_FAILURE_TEXT


def test_lost_workers_end_in_one_failure(rig: Rig) -> None:
    client = client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    for _ in range(limits.ATTEMPTS):
        assert client.heard() == []
        worker = worker_of_busy(rig)
        worker.close()
    assert failure(client) == "gave-up"


def test_refused_request_gets_its_final(rig: Rig) -> None:
    rig = Rig(policy=Policy(max_services=0))
    client = client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    assert failure(client) == "refused"
    client.say(C, b"\x01", b"echo", b"id", b"body")  # and its id is free again
    assert failure(client) == "refused"


def test_reserved_names_are_answered_by_the_broker(rig: Rig) -> None:
    worker_of(rig)
    client = client_of(rig)
    for name, code in ((b"echo", b"200"), (b"other", b"404")):
        client.say(C, b"\x01", b"mmi.service", b"id", name)
        assert client.heard() == [[C, b"\x03", b"mmi.service", b"id", code]]


# --- liveness


def test_ping_is_answered_with_pong_at_once(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    worker.say(W, b"PING")
    assert worker.heard() == PONG
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job_of(worker)
    worker.say(W, b"PING")
    assert worker.heard() == PONG


def test_broker_sends_no_heartbeat_of_its_own(rig: Rig) -> None:
    worker = worker_of(rig)
    rig.wait(limits.MDX_BEAT * limits.BEATS_MISSED - 0.1)
    assert worker.heard() == []


def test_silent_worker_is_lost_and_disconnected_when_it_sends_again(rig: Rig) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job = job_of(worker)
    rig.wait(1.0)
    worker.say(W, b"PING")  # it beats while busy: normal liveness holds for it
    worker.heard()
    rig.wait(limits.MDX_BEAT * limits.BEATS_MISSED + 0.2)
    assert rig.notes.requeues == 1
    assert worker.heard() == []
    second = worker_of_busy(rig)
    worker.say(W, b"\x04", *job[2:5], b"late")
    assert worker.heard() == DISCONNECT
    assert client.heard() == []
    assert rig.notes.stales == ["final"]
    second.close()


@pytest.mark.parametrize("command", [[b"PING"], [b"\x01", b"echo"], [b"\x03", b"token", b"", b"id"]])
def test_lost_worker_gets_disconnect(rig: Rig, command: Frames) -> None:
    worker = worker_of(rig)
    rig.wait(limits.MDX_BEAT * limits.BEATS_MISSED + 0.2)
    worker.say(W, *command)
    assert worker.heard() == DISCONNECT


@pytest.mark.parametrize("command", [b"PING", b"\x03", b"REQUEST"])
def test_any_command_of_a_worker_counts_as_a_beat(rig: Rig, command: bytes) -> None:
    worker, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job = job_of(worker)
    worker.say(W, b"PING")
    for number in b"12345":
        rig.wait(limits.MDX_BEAT * (limits.BEATS_MISSED - 1))
        if command == b"REQUEST":  # it may be a client, too
            worker.say(C, b"\x01", b"other", b"%c" % number, b"body")
        else:
            worker.say(W, command, *(job[2:5] if command == b"\x03" else []))
    worker.say(W, b"\x04", *job[2:5], b"done")
    assert client.heard()[-1] == [C, b"\x03", b"echo", b"id", b"done"]


def test_lost_connection_gives_the_request_to_another_worker(rig: Rig) -> None:
    first, client = worker_of(rig), client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    token = job_of(first)[2]
    second = worker_of(rig)
    first.close()
    job = job_of(second)
    assert job[2] != token and job[4:] == [b"id", b"body"]


# --- replies that do not count


def test_reply_to_an_unknown_attempt_is_stale_and_the_worker_is_kept(rig: Rig) -> None:
    worker = worker_of(rig)
    worker.say(W, b"\x03", b"nobody", b"", b"id", b"part")
    worker.say(W, b"\x04", b"nobody", b"", b"id", b"whole")
    worker.say(W, b"\x04", b"nobody", b"", b"id", b"", b"polydomo-failure", b"code", b"text")
    assert worker.heard() == []
    assert rig.notes.stales == ["partial", "final", "failure"]
    worker.say(W, b"PING")
    assert worker.heard() == PONG


def test_reply_to_another_workers_request_is_dropped(rig: Rig) -> None:
    holder, other = worker_of(rig), worker_of(rig)
    client = client_of(rig)
    client.say(C, b"\x01", b"echo", b"id", b"body")
    job = job_of(holder)
    other.say(W, b"\x04", *job[2:5], b"forged")
    assert client.heard() == []
    holder.say(W, b"\x04", *job[2:5], b"true")
    assert client.heard() == [[C, b"\x03", b"echo", b"id", b"true"]]
    holder.say(W, b"\x04", *job[2:5], b"again")  # "exactly one FINAL"
    assert client.heard() == []


# --- memory and speed


def test_sessions_share_their_words(rig: Rig) -> None:
    first, second = rig.peer(MdxSession).session, rig.peer(MdxSession).session
    assert isinstance(first, MdxSession) and isinstance(second, MdxSession)
    assert first.words is second.words


# --- the wire below


def test_dealer_is_met_by_a_router() -> None:
    hub = Hub()
    listening = ZmtpLink(hub, LinkHandler(), "listener")
    dialing = ZmtpLink(hub, LinkHandler(), "dialer", socket_type=MdxWorkerEnd.socket_type)
    for _ in range(6):
        for one, other in ((dialing, listening), (listening, dialing)):
            data = b"".join(bytes(piece) for piece in one.out)
            one.out.clear()
            other.receive(data)
    assert listening.open and listening.peer_type == b"DEALER"
    assert dialing.open and dialing.peer_type == b"ROUTER"
