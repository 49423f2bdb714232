"""DCP v1, the broker's end: registration, requests, chains and heartbeats, against the real broker without I/O."""

import pytest

from polydomo import limits
from polydomo.model.tuning import Tuning
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.mdx.session import MdxSession
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


# --- the dialogue DagBox's own programs have with their broker


def test_dagbox_dialogue(rig: Rig) -> None:
    """A worker registers and pings, a client asks twice; every type has four bytes."""

    def kind(number: int) -> bytes:
        return number.to_bytes(4, "little")

    worker, client = client_of(rig), client_of(rig)
    worker.say(*H, kind(1), b"echo")
    assert worker.heard() == [[*H, kind(1), b"echo"]]
    rig.wait(0.5)
    worker.say(*H, kind(2))
    assert worker.heard() == [[*H, kind(3)]]
    for identity in (b"id-0", b"id-1"):
        client.say(*H, kind(4), b"echo", b"", identity, b"", b"hello", b"two")
        (job,) = worker.heard()
        address = job[4]
        assert address and job == [*H, kind(4), b"echo", address, b"", identity, b"", b"hello", b"two"]
        worker.say(*H, kind(5), address, b"", identity, b"", b"hello", b"two")
        assert client.heard() == [[*H, kind(5), address, b"", identity, b"", b"hello", b"two"]]
    assert rig.notes.violations == []


@pytest.mark.parametrize(("asks", "works"), [(1, 1), (1, 4), (4, 1), (4, 4)])
def test_each_connection_is_answered_in_the_size_it_used(rig: Rig, asks: int, works: int) -> None:
    worker, client = client_of(rig), client_of(rig)
    worker.say(*H, (1).to_bytes(works, "little"), b"echo")
    worker.say(*H, (2).to_bytes(works, "little"))
    assert [len(message[2]) for message in worker.heard()] == [works, works]
    client.say(*H, (4).to_bytes(asks, "little"), b"echo", b"", b"m", b"", b"body")
    (job,) = worker.heard()
    assert job[2] == (4).to_bytes(works, "little")
    worker.say(*H, (5).to_bytes(works, "little"), job[4], b"", b"m", b"", b"done")
    (reply,) = client.heard()
    assert reply[2] == (5).to_bytes(asks, "little")


def test_size_may_change_on_a_connection(rig: Rig) -> None:
    worker = worker_of(rig)
    for size in (4, 1, 4, 4, 1):
        worker.say(*H, (2).to_bytes(size, "little"))
        assert worker.heard() == [[*H, (3).to_bytes(size, "little")]]


# --- registration


def test_registration_is_confirmed_with_the_same_message(rig: Rig) -> None:
    worker = client_of(rig)
    worker.say(*H, REGISTER, b"any \x00 bytes \xff")
    assert worker.heard() == [[*H, REGISTER, b"any \x00 bytes \xff"]]


def test_confirmation_is_sent_before_the_first_request(rig: Rig) -> None:
    client, worker = client_of(rig), client_of(rig)
    ask(client, [b"body"], [b"m"])
    worker.say(*H, REGISTER, b"echo")
    first, second = worker.heard()
    assert first == [*H, REGISTER, b"echo"] and second[2] == REQUEST


def test_registering_again_is_echoed_and_another_service_is_added(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    worker.say(*H, REGISTER, b"echo")
    assert worker.heard() == [[*H, REGISTER, b"echo"]]
    ask(client, [b"body"], [b"m"], b"other")
    worker.say(*H, REGISTER, b"other")
    first, job = worker.heard()
    assert first == [*H, REGISTER, b"other"] and job[3] == b"other"
    ask(client, [b"body"], [b"m"], b"echo")
    assert worker.heard() == []  # one at a time over all its services
    answer(worker, job, b"done")
    assert job_of(worker)[3] == b"echo"


def test_registering_again_asks_for_nothing(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    for _ in range(3):
        ask(client, [b"body"], [b"m"])
    job_of(worker)
    worker.say(*H, REGISTER, b"echo")
    worker.say(*H, REGISTER, b"more")
    assert [message[2] for message in worker.heard()] == [REGISTER, REGISTER]


def test_empty_service_name(rig: Rig) -> None:
    """ "Delimiters are counted after the service frame": an empty name is not a delimiter."""
    client, worker = client_of(rig), worker_of(rig, b"")
    ask(client, [b"body", b""], [b"m"], b"")
    job = job_of(worker)
    assert job[3] == b"" and job[6:] == [b"m", b"", b"body", b""]
    answer(worker, job, b"done")
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])


def test_a_name_of_any_bytes(rig: Rig) -> None:
    name = bytes(range(255))
    client, worker = client_of(rig), worker_of(rig, name)
    ask(client, [b"body"], [b"m"], name)
    assert job_of(worker)[3] == name


def test_a_client_may_become_a_worker(rig: Rig) -> None:
    """A connection that has asked registers, is given work, and still gets the reply to its own request."""
    both, other, client = client_of(rig), worker_of(rig, b"other"), client_of(rig)
    ask(both, [b"mine"], [b"own"], b"other")
    both.say(*H, REGISTER, b"echo")
    assert both.heard() == [[*H, REGISTER, b"echo"]]
    ask(client, [b"yours"], [b"m"])
    job = job_of(both)
    answer(other, job_of(other), b"reply")
    assert parts(both.heard()[0]) == ([b"own"], [b"reply"])
    answer(both, job, b"done")
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])


@pytest.mark.parametrize("name", [b"mmi.service", b"polydomo.anything", b"n" * 256])
def test_refused_registration_is_not_confirmed(rig: Rig, name: bytes) -> None:
    worker = client_of(rig)
    worker.say(*H, REGISTER, name)
    assert worker.heard() == []
    assert len(rig.notes.violations) == 1
    worker.say(*H, PING)
    assert worker.heard() == [[*H, RECONNECT]]


def test_refused_further_service_keeps_the_worker(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    worker.say(*H, REGISTER, b"mmi.service")
    assert worker.heard() == []
    assert len(rig.notes.violations) == 1
    ask(client, [b"body"], [b"m"])
    job_of(worker)


# --- request and reply

METADATA: list[Frames] = [[], [b"id"], [b"a", b"b" * 255, b"c" * 256, b"d" * 70_000]]
DATA: list[Frames] = [[], [b""], [b"x"], [b"", b"", b""], [b"a", b"", b"b" * 40_000, b""]]


@pytest.mark.parametrize("metadata", METADATA)
@pytest.mark.parametrize("body", DATA)
def test_metadata_and_data_pass_untouched(rig: Rig, metadata: Frames, body: Frames) -> None:
    client, worker = client_of(rig), worker_of(rig)
    ask(client, body, metadata)
    job = job_of(worker)
    assert job[3] == b"echo" and job[6:] == [*metadata, b"", *body]
    answer(worker, job, *body)
    (reply,) = client.heard()
    assert parts(reply) == (metadata, body)


def test_client_gets_its_metadata_even_from_a_worker_that_changed_it(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"mine"])
    worker.say(*H, REPLY, job_of(worker)[4], b"", b"other", b"", b"done")
    assert parts(client.heard()[0]) == ([b"mine"], [b"done"])


def test_many_requests_at_once_and_replies_in_any_order(rig: Rig) -> None:
    client = client_of(rig)
    workers = [worker_of(rig) for _ in range(3)]
    for i in range(3):
        ask(client, [b"body"], [b"%d" % i])
    jobs = [job_of(worker) for worker in workers]
    assert len({job[4] for job in jobs}) == 3  # a token per attempt
    for i in (2, 0, 1):
        answer(workers[i], jobs[i], b"done")
        assert parts(client.heard()[0]) == ([b"%d" % i], [b"done"])


def test_request_for_an_unknown_service_waits_for_a_worker(rig: Rig) -> None:
    client = client_of(rig)
    ask(client, [b"body"], [b"m"], b"later")
    rig.wait(5)
    worker = rig.peer(DcpSession)
    worker.say(*H, REGISTER, b"later")
    assert len(jobs_of(worker)) == 1


def test_request_without_a_worker_ends_without_an_answer(rig: Rig) -> None:
    client = client_of(rig)
    ask(client, [b"body"], [b"m"])
    rig.wait(limits.QUEUE_EXPIRY + 2)
    assert rig.notes.outcomes == ["no-worker"]
    assert client.heard() == []


def test_request_is_dispatched_only_to_its_service(rig: Rig) -> None:
    client, other, worker = client_of(rig), worker_of(rig, b"other"), worker_of(rig)
    ask(client, [b"body"], [b"m"])
    assert other.heard() == []
    job_of(worker)


def test_one_request_at_a_time(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    for i in range(3):
        ask(client, [b"body"], [b"%d" % i])
    for i in range(3):
        job = job_of(worker)
        assert job[6] == b"%d" % i
        answer(worker, job)


def test_reserved_names_are_answered_by_the_broker(rig: Rig) -> None:
    worker_of(rig)
    client = client_of(rig)
    ask(client, [b"echo"], [b"m"], b"mmi.service")
    assert parts(client.heard()[0]) == ([b"m"], [b"200"])


def test_client_of_another_protocol(rig: Rig) -> None:
    client, worker = rig.peer(MdxSession), worker_of(rig)
    client.say(b"MDXC01", b"\x01", b"echo", b"id", b"body", b"")
    job = job_of(worker)
    assert job[6:] == [b"", b"body", b""]  # no metadata: the MDX id does not leak
    answer(worker, job)
    assert client.heard() == [[b"MDXC01", b"\x03", b"echo", b"id", b""]]


def test_frames_in_the_long_form_are_understood(rig: Rig) -> None:
    client, worker = client_of(rig), client_of(rig)
    worker.say_raw(long_form([*H, REGISTER, b"echo"]))
    worker.say_raw(long_form([*H, PING]))
    assert [message[2] for message in worker.heard()] == [REGISTER, PONG]
    client.say_raw(long_form([*H, REQUEST, b"echo", b"", b"m", b"", b"body"]))
    job = job_of(worker)
    worker.say_raw(long_form([*H, REPLY, job[4], b"", b"m", b"", b"done"]))
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])
    assert rig.notes.violations == []


# --- asking for more


def test_ping_while_busy_asks_for_one_more(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    for i in range(4):
        ask(client, [b"body"], [b"%d" % i])
    first = job_of(worker)
    worker.say(*H, PING)
    pong, second = worker.heard()
    assert pong == [*H, PONG] and second[6] == b"1"
    answer(worker, second, b"second")  # each by its own token, in any order
    answer(worker, first, b"first")
    assert [parts(reply) for reply in client.heard()] == [([b"1"], [b"second"]), ([b"0"], [b"first"])]


@pytest.mark.parametrize("most", [1, 3, limits.DCP_MAX_HELD])
def test_asking_for_more_is_bounded(most: int) -> None:
    rig = Rig(Tuning(dcp_max_held=most))
    client, worker = client_of(rig), worker_of(rig)
    for i in range(20):
        ask(client, [b"body"], [b"%d" % i])
    held = len(jobs_of(worker))
    for _ in range(20):
        worker.say(*H, PING)
        held += len(jobs_of(worker))
    assert held == most


def test_ping_while_idle_asks_for_nothing(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    for _ in range(5):
        worker.say(*H, PING)
    worker.heard()
    for i in range(3):
        ask(client, [b"body"], [b"%d" % i])
    assert len(jobs_of(worker)) == 1


def test_idle_workers_come_first(rig: Rig) -> None:
    client, busy = client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"0"])
    job_of(busy)
    busy.say(*H, PING)  # it would take one more
    busy.heard()
    idle = worker_of(rig)
    ask(client, [b"body"], [b"1"])
    assert busy.heard() == []
    assert job_of(idle)[6] == b"1"
    ask(client, [b"body"], [b"2"])
    assert job_of(busy)[6] == b"2"


# --- chaining


def test_chain_of_services_is_one_request(rig: Rig) -> None:
    client, first, second = client_of(rig), worker_of(rig, b"first"), worker_of(rig, b"second")
    ask(client, [b"raw"], [b"m1", b"m2"], b"first")
    job = job_of(first)
    first.say(*H, REQUEST, b"second", job[4], b"", b"m1", b"m2", b"", b"half", b"")
    hop = job_of(second)
    assert hop[3] == b"second" and hop[4] != job[4] and hop[6:] == [b"m1", b"m2", b"", b"half", b""]
    ask(client, [b"next"], [b"n"], b"first")
    assert job_of(first)[6] == b"n"  # it is free as soon as it has passed the request on
    answer(second, hop, b"whole")
    (reply,) = client.heard()
    assert parts(reply) == ([b"m1", b"m2"], [b"whole"])
    assert rig.notes.hops == [b"second"] and rig.notes.outcomes == ["ok"]


def test_changed_metadata_reaches_the_next_worker_and_not_the_client(rig: Rig) -> None:
    client = client_of(rig)
    first, second, third = (worker_of(rig, name) for name in (b"first", b"second", b"third"))
    ask(client, [b"raw"], [b"mine"], b"first")
    first.say(*H, REQUEST, b"second", job_of(first)[4], b"", b"changed", b"", b"half")
    hop = job_of(second)
    assert hop[6:] == [b"changed", b"", b"half"]
    second.say(*H, REQUEST, b"third", hop[4], b"", b"changed", b"again", b"", b"more")
    hop = job_of(third)
    assert hop[6:] == [b"changed", b"again", b"", b"more"]
    answer(third, hop, b"whole")
    assert parts(client.heard()[0]) == ([b"mine"], [b"whole"])


def test_chain_for_a_client_of_another_protocol(rig: Rig) -> None:
    client, first, second = rig.peer(MdxSession), worker_of(rig, b"first"), worker_of(rig, b"second")
    client.say(b"MDXC01", b"\x01", b"first", b"id", b"raw")
    first.say(*H, REQUEST, b"second", job_of(first)[4], b"", b"own", b"", b"half")
    answer(second, job_of(second), b"whole")
    assert client.heard() == [[b"MDXC01", b"\x03", b"first", b"id", b"whole"]]


def test_worker_asks_for_itself_and_keeps_what_it_holds(rig: Rig) -> None:
    client, worker, helper = client_of(rig), worker_of(rig), worker_of(rig, b"helper")
    ask(client, [b"body"], [b"m"])
    job = job_of(worker)
    ask(worker, [b"question"], [b"own"], b"helper")
    answer(helper, job_of(helper), b"advice")
    (reply,) = worker.heard()
    assert parts(reply) == ([b"own"], [b"advice"])
    answer(worker, job, b"done")
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])


# --- liveness


def test_every_ping_gets_a_pong(rig: Rig) -> None:
    worker = worker_of(rig)
    for _ in range(5):
        worker.say(*H, PING)
    assert worker.heard() == [[*H, PONG]] * 5


def test_broker_sends_no_heartbeat_of_its_own(rig: Rig) -> None:
    worker = worker_of(rig)
    rig.wait(limits.DCP_BEAT * limits.BEATS_MISSED - 0.1)
    assert worker.heard() == []


@pytest.mark.parametrize("size", [1, 4])
def test_ping_of_the_unregistered_gets_reconnect(rig: Rig, size: int) -> None:
    peer = client_of(rig)
    peer.say(*H, (2).to_bytes(size, "little"))
    assert peer.heard() == [[*H, (6).to_bytes(size, "little")]]


def test_silent_worker_is_dropped_without_a_message_and_may_register_again(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"m"])
    job = job_of(worker)
    rig.wait(1.0)
    worker.say(*H, PING)  # it beats while busy
    worker.heard()
    rig.wait(limits.DCP_BEAT * limits.BEATS_MISSED + 0.2)
    assert worker.heard() == []
    assert rig.notes.requeues == 1
    answer(worker, job, b"late")
    assert client.heard() == [] and rig.notes.stales == ["final"]
    worker.say(*H, PING)
    assert worker.heard() == [[*H, RECONNECT]]
    worker.say(*H, REGISTER, b"echo")
    echo, again = worker.heard()
    assert echo == [*H, REGISTER, b"echo"] and again[4] != job[4]
    answer(worker, again, b"done")
    assert parts(client.heard()[0]) == ([b"m"], [b"done"])


def test_any_message_of_a_worker_counts_as_a_beat(rig: Rig) -> None:
    """ "If the worker has sent any other message to the broker in this interval, it MAY skip a heartbeat message." """
    client, worker = client_of(rig), worker_of(rig)
    allowed = limits.DCP_BEAT * limits.BEATS_MISSED
    for number in range(3):
        rig.wait(allowed - 0.5)
        ask(client, [b"body"], [b"%d" % number])
        answer(worker, job_of(worker), b"done")
    rig.wait(allowed - 0.5)
    ask(worker, [b"own"], [b"m"], b"nobody")  # its own request, too
    rig.wait(allowed - 0.5)
    worker.say(*H, PING)
    assert worker.heard() == [[*H, PONG]]


def test_lost_connection_gives_everything_held_to_others(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    for i in range(2):
        ask(client, [b"body"], [b"%d" % i])
    worker.say(*H, PING)
    assert len(jobs_of(worker)) == 2
    others = [worker_of(rig), worker_of(rig)]
    worker.close()
    assert sorted(job_of(other)[6] for other in others) == [b"0", b"1"]


def test_broker_sends_nothing_at_shutdown(rig: Rig) -> None:
    client, worker = client_of(rig), worker_of(rig)
    ask(client, [b"body"], [b"m"])
    job_of(worker)
    rig.broker.shutdown()
    assert worker.heard() == [] and client.heard() == []
    assert rig.notes.outcomes == ["shutdown"]
