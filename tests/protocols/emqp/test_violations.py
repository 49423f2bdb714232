"""eMQP/1.0: what goes wrong, and what each peer hears of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.policy import Policy
from polydomo.limits import (
    EMQP_MAX_HEADERS,
    ZOMBIE_TIME,
)
from polydomo.protocols.emqp.session import EmqpSession
from tests.protocols.emqp_dbp_fakes import ASKS, HEAD, Peer, Table, inform, only, request, worker_at


def assert_disconnected(table: Table, peer: Peer) -> None:
    """DISCONNECT and then nothing."""
    assert only(peer.hear())[:3] == [*HEAD, b"DISCONNECT"]
    assert len(table.notes.violations) == 1
    inform_again = (*HEAD, b"INFORM", b"i2", b"default")
    peer.say(*inform_again)
    assert peer.hear() == [] and not table.broker.workers
    table.wait(ZOMBIE_TIME + 1)
    assert peer.link.closing is not None


@pytest.mark.parametrize("command", [[b"READY"], [b"HEARTBEAT"], [b"REPLY"], [b"ACK"]])
def test_a_worker_s_command_before_inform_gets_disconnect(command: list[bytes]) -> None:
    table = Table()
    peer = table.join(EmqpSession)
    rest = {b"REPLY": [b"body"], b"ACK": [b"i1"]}.get(command[0], [])
    peer.say(*HEAD, *command, b"m", *rest)
    assert_disconnected(table, peer)


def test_a_second_inform_gets_disconnect_and_its_requests_go_on() -> None:
    table = Table()
    worker = worker_at(table)
    request(table.join(EmqpSession))
    worker.hear()
    worker.say(*HEAD, b"INFORM", b"i2", b"default")
    assert_disconnected(table, worker)
    assert only(worker_at(table).hear())[6] == b"hello"


def test_a_scheduler_that_sends_ready_gets_disconnect() -> None:
    table = Table()
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    scheduler.say(*HEAD, b"READY", b"r")
    assert_disconnected(table, scheduler)
    assert not table.broker.schedulers


def test_a_reserved_queue_gets_disconnect() -> None:
    table = Table()
    peer = table.join(EmqpSession)
    peer.say(*HEAD, b"INFORM", b"i", b"mmi.service")
    assert_disconnected(table, peer)


@pytest.mark.parametrize("rest", [[b"HEARTBEAT", b"h", b"123.4"], [b"REPLY", b"x", b"body", b"0011"]])
def test_a_job_manager_that_outlived_its_broker_is_not_ended(rest: list[bytes]) -> None:
    """It takes DISCONNECT for an order to exit. In silence it says INFORM again, on this socket or another."""
    table = Table()
    manager = table.join(EmqpSession)
    manager.say(*HEAD, *rest)
    manager.say(*HEAD, b"READY", b"r")
    assert manager.hear() == [] and len(table.notes.violations) == 2
    inform(manager)
    assert len(table.broker.workers) == 1


def test_a_lost_worker_that_beats_again_is_disconnected() -> None:
    table = Table()
    worker = worker_at(table, kind=None)
    table.wait(60.0)
    worker.hear()
    worker.say(*HEAD, b"HEARTBEAT", b"h")
    assert only(worker.hear())[2] == b"DISCONNECT"


def test_after_disconnect_a_client_gets_no_reply() -> None:
    table = Table()
    worker = worker_at(table)
    client = table.join(EmqpSession)
    request(client)
    client.say(*HEAD, b"READY", b"r")
    assert only(client.hear())[2] == b"DISCONNECT"
    worker.say(*HEAD, b"REPLY", b"x", b"done")
    assert client.hear() == []


BAD = [
    [b"", b"eMQP/1.0"],
    [b"", b"eMQP/1.0", b"REQUEST"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b""],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b"", b"body", b"more"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"\xff", b"", b"body"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b"\xff", b"body"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b"{", b"body"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b'{"a":' * 3000, b"body"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b'{"\\ud800": 1}', b"body"],
    [b"", b"eMQP/1.0", b"REQUEST", b"m", b"q", b"x" * (EMQP_MAX_HEADERS + 1), b"body"],
    [b"", b"eMQP/1.0", b"READY"],
    [b"", b"eMQP/1.0", b"READY", b"m", b"q"],
    [b"", b"eMQP/1.0", b"PUBLISH", b"m", b"topic"],
    [b"", b"eMQP/1.0", b"PUBLISH", b"m", b"topic", b"a", b"b"],
    [b"", b"eMQP/1.0", b"INFORM", b"m"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b"q", b"worker", b"more"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b"q", b"dancer"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b"[[", b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b'[[10, "q", 1]]', b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b'[["q", 10]]', b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b'[[true, "q"]]', b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b'[[NaN, "q"]]', b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b'[[10, "\\ud800"]]', b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b"q" * 256, b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b",".join(b"%d" % i for i in range(1001)), b"worker"],
    [b"", b"eMQP/1.0", b"INFORM", b"m", b"\xff", b"worker"],
    [b"", b"eMQP/1.0", b"HEARTBEAT", b"m", b"1", b"2"],
    [b"", b"eMQP/1.0", b"SCHEDULE", b"m", b"q"],
    [b"", b"eMQP/1.0", b"DANCE", b"m"],
    [b"", b"eMQP/2.0", b"READY", b"m"],
    [b"x", b"eMQP/1.0", b"READY", b"m"],
    [b""],
]


@pytest.mark.parametrize("message", BAD, ids=lambda message: b" ".join(message)[:40].decode("latin-1"))
def test_an_invalid_message_is_dropped_with_one_log_line(message: list[bytes]) -> None:
    table = Table()
    worker = worker_at(table)
    bad = table.join(EmqpSession)
    bad.say(*message)
    assert bad.hear() == [] and len(table.notes.violations) == 1
    assert not bad.session.requests and len(table.broker.workers) == 1
    request(bad)  # and it may go on
    assert only(worker.hear())[6] == b"hello"


def test_a_reply_from_a_worker_without_a_request_is_dropped() -> None:
    table = Table()
    worker = worker_at(table)
    worker.say(*HEAD, b"REPLY", b"x", b"body")
    worker.say(*HEAD, b"REPLY", b"x", b"body", b"never sent")
    worker.say(*HEAD, b"REPLY", b"x", b"body", b"00", b"more")
    assert worker.hear() == [] and len(table.notes.violations) == 2 and table.notes.stales == ["final"]
    assert len(table.broker.workers) == 1


def test_a_refused_request_is_silence() -> None:
    table = Table(policy=Policy(max_services=1))
    client = table.join(EmqpSession)
    request(client, queue=b"one")
    request(client, queue=b"two")
    request(client, queue=b"x" * 300)
    assert client.hear() == [] and len(client.session.requests) == 1


def long_form(message: list[bytes]) -> bytes:
    """The same message with every frame in ZMTP's long form, which a peer may send."""
    last = len(message) - 1
    return b"".join(
        (b"\x02" if i == last else b"\x03") + len(part).to_bytes(8, "big") + part for i, part in enumerate(message)
    )


def test_frames_in_the_long_form_mean_the_same() -> None:
    table = Table()
    worker = table.join(EmqpSession)
    worker.raw(long_form([*HEAD, b"INFORM", b"i", b"default"]))
    worker.raw(long_form([*HEAD, b"READY", b"r"]))
    worker.hear()
    client = table.join(EmqpSession)
    client.raw(long_form([*HEAD, b"REQUEST", b"m1", b"default", ASKS, b"hello"]))
    job = only(worker.hear())
    assert job[6] == b"hello"
    worker.raw(long_form([*HEAD, b"REPLY", b"x", b"done", job[3]]))
    assert only(client.hear())[4:] == [b"done", b"m1"]
    client.raw(long_form([*HEAD, b"READY", b"m2", b"default", ASKS, b"x" * 300]))
    worker.raw(long_form([*HEAD, b"READY", b"r"]))
    worker.raw(long_form([*HEAD, b"REPLY", only(worker.hear())[3], b"done"]))
    assert client.hear() == [[*HEAD, b"REPLY", b"m2", b"done"]]
    assert table.notes.violations == []


WORDS = st.sampled_from(
    [
        b"",
        b"eMQP/1.0",
        b"REQUEST",
        b"READY",
        b"REPLY",
        b"INFORM",
        b"HEARTBEAT",
        b"SCHEDULE",
        b"UNSCHEDULE",
        b"PUBLISH",
        b"ACK",
        b"KBYE",
        b"default",
        b'[[10, "default"]]',
        b"worker",
        b"scheduler",
        ASKS,
        b"timeout:1",
        b"{}",
        b"000000000001",
        b"-1",
    ]
)
ANY_FRAMES = st.lists(st.one_of(WORDS, st.binary(max_size=20)), min_size=1, max_size=10)
MESSAGES = st.one_of(ANY_FRAMES, ANY_FRAMES.map(lambda rest: [*HEAD, *rest]))


@given(st.lists(st.tuples(st.integers(0, 2), MESSAGES), max_size=12))
def test_no_input_raises(steps: list[tuple[int, list[bytes]]]) -> None:
    table = Table()
    worker = worker_at(table)
    peers = [worker, table.join(EmqpSession), table.join(EmqpSession)]
    for number, message in steps:
        peers[number].say(*message)
        peers[number].hear()
        table.wait(0.5)
    for peer in peers:
        peer.close()
    broker = table.broker
    table.wait(broker.policy.unattended_expiry + 100.0)  # requests without a reply outlive their client
    assert not broker.workers and not broker.schedulers and not broker.open_requests and not broker.held_bytes
