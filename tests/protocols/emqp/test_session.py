"""eMQP/1.0: the broker in dialogue with EventMQ's programs and with peers written to the document; its clients."""

import pytest

from polydomo.broker.policy import Policy
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.records import Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.request_options import RequestOptions
from polydomo.model.tuning import Tuning
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.wire import frames
from tests.protocols.emqp_dbp_fakes import ASKS, HEAD, JOB, WALL, EchoSession, Table, only, request, worker_at

# --- the dialogue of EventMQ's client and job manager, as captured ---


def test_eventmq_s_captured_dialogue() -> None:
    table = Table()
    manager = table.join(EmqpSession)
    inform_id = b"370871d1-5951-4e8d-b02d-63ef74702156"
    manager.say(*HEAD, b"INFORM", inform_id, b'[[10, "default"]]', b"worker")
    ack, beat = manager.hear()
    assert ack[:3] == [*HEAD, b"ACK"] and ack[3] and ack[4:] == [inform_id]
    # Its pool starts only with the first HEARTBEAT, so that comes at once.
    assert beat[:3] == [*HEAD, b"HEARTBEAT"] and len(beat) == 5
    assert float(beat[4]) == pytest.approx(table.broker.now + WALL)
    manager.say(*HEAD, b"HEARTBEAT", b"6572e073-9f2e-4f67-8392-509c01f800b7", b"1794724736.6622314")
    manager.say(*HEAD, b"READY", b"60b30101-fae6-439f-be50-8370099e606b")
    assert manager.hear() == []

    client = table.join(EmqpSession)
    headers = b"reply-requested,guarantee,retry-count:2,timeout:30"
    client_id = b"e3e28527-78f7-4ece-bbe0-2bc9bab5a0ad"
    client.say(*HEAD, b"REQUEST", client_id, b"default", headers, JOB)
    job = only(manager.hear())
    assert job[:3] == [*HEAD, b"REQUEST"] and job[4:] == [b"default", headers, JOB]
    assert job[3] != client_id and job[3].isalnum()  # an id of ours, as text
    table.wait(1.0)
    manager.say(*HEAD, b"REPLY", b"f053b51e-b07b-4a2d-b563-dc87d3241a79", b'{"value": {"value": 0}}', job[3])
    manager.say(*HEAD, b"READY", b"2e9ce582-625c-4ba0-9f98-00298878272a")
    reply = only(client.hear())
    assert reply[:3] == [*HEAD, b"REPLY"] and reply[3] not in (b"", client_id)
    assert reply[4:] == [b'{"value": {"value": 0}}', client_id]
    manager.say(*HEAD, b"HEARTBEAT", b"a6bcfa8f-e594-4a19-89ae-0dead2d27bce", b"1794724739.6655238")
    manager.say(*HEAD, b"KBYE", b"c46be23a-d960-427b-8739-e8f3ad362bea")
    assert manager.hear() == []
    assert table.notes.departures == [("left", "KBYE")]
    assert table.notes.outcomes == [("default", "ok")] and table.notes.violations == []


def test_the_document_s_dialogue() -> None:
    table = Table()
    worker = worker_at(table, b"echo, other", kind=None)
    client = table.join(EmqpSession)
    # As the document prints a REQUEST.
    client.say(*HEAD, b"READY", b"m1", b"echo", b'{"reply-requested": true}', b"hello")
    job = only(worker.hear())
    assert len(job) == 7 and job[4:] == [b"echo", b"reply-requested", b"hello"]
    worker.say(*HEAD, b"REPLY", b"own-id", b"olleh")
    assert client.hear() == [[*HEAD, b"REPLY", b"m1", b"olleh"]]
    worker.say(*HEAD, b"HEARTBEAT", b"h1")
    worker.say(*HEAD, b"DISCONNECT", b"d1")
    assert worker.hear() == [] and table.notes.departures == [("left", "DISCONNECT")]
    assert table.notes.violations == []


def test_a_client_of_the_document_s_form_always_gets_its_reply() -> None:
    """ "dictionary of headers. can be an empty set" """
    table = Table()
    worker = worker_at(table, b"echo", slots=3, kind=None)
    client = table.join(EmqpSession)
    for number, headers in enumerate((b"", b"{}", b"guarantee")):
        client.say(*HEAD, b"READY", b"m%d" % number, b"echo", headers, b"hello")
        job = only(worker.hear())
        assert job[5].split(b",")[0] == b"reply-requested"  # EventMQ's job manager answers nothing else
        worker.say(*HEAD, b"REPLY", b"own-id", b"olleh")
        assert client.hear() == [[*HEAD, b"REPLY", b"m%d" % number, b"olleh"]]
    client.say(*HEAD, b"READY", b"m4", b"nobody", b"timeout:5", b"hello")
    table.wait(5.5)
    assert table.notes.outcomes[-1] == ("nobody", "timeout"), "it waits, so its timeout is a deadline"
    client.say(*HEAD, b"READY", b"m5", b"nobody", b"", b"hello")
    client.close()
    assert table.notes.outcomes[-1] == ("nobody", "cancelled"), "and its request ends with its connection"


def test_every_request_is_answered_if_the_setting_says_so() -> None:
    table = Table(Tuning(emqp_reply_always=True))
    worker = worker_at(table, slots=3)
    client = table.join(EmqpSession)
    request(client, headers=b"")
    worker.say(*HEAD, b"REPLY", b"x", b"done", only(worker.hear())[3])
    assert only(client.hear())[4:] == [b"done", b"m1"]
    request(client, headers=b"")
    client.close()
    worker.say(*HEAD, b"REPLY", b"x", b"done", only(worker.hear())[3])
    assert table.notes.outcomes == [("default", "ok")] * 2, "a client that did not ask for a reply may still leave"


# --- a client ---


def test_no_reply_without_reply_requested() -> None:
    table = Table()
    worker = worker_at(table)
    client = table.join(EmqpSession)
    request(client, headers=b"guarantee")
    job = only(worker.hear())
    assert job[5] == b"reply-requested,guarantee"  # towards the worker it is always there
    worker.say(*HEAD, b"REPLY", b"x", b"done", job[3])
    assert client.hear() == [] and table.notes.outcomes == [("default", "ok")]


def test_requests_without_reply_requested_survive_their_client() -> None:
    table = Table()
    client = table.join(EmqpSession)
    for number in range(25):
        request(client, msgid=b"m%d" % number, headers=b"retry-count:2")
    request(client, msgid=b"waits", headers=b"reply-requested")
    client.close()
    assert table.notes.outcomes == [("default", "cancelled")], "only the one whose client waited"
    table.broker.check_invariants()
    table.wait(3 * table.broker.policy.queue_expiry)
    lost = worker_at(table, slots=3)
    assert len(lost.hear()) == 3
    lost.close()
    worker = worker_at(table, slots=25)
    for job in worker.hear():
        worker.say(*HEAD, b"REPLY", b"x", b"done", job[3])
    assert table.notes.outcomes[1:] == [("default", "ok")] * 25, "25 of 25, three of them with a second worker"
    assert len(table.broker.sessions) == 1 and not table.broker.held_bytes, "nothing is left of the client"
    table.broker.check_invariants()


def test_a_request_without_a_client_waits_for_a_worker_within_limits() -> None:
    table = Table()
    table.broker.policy = Policy(queue_expiry=10.0, unattended_expiry=100.0, max_unattended=4)
    waiting, gone, other = (table.join(EmqpSession) for _ in range(3))
    request(gone, msgid=b"1", headers=b"")
    table.wait(5.0)
    request(waiting, msgid=b"2", headers=b"reply-requested")
    gone.close()
    table.wait(10.5)
    assert table.notes.outcomes == [("default", "no-worker")], "of the client that waits"
    for number in range(3):
        request(other, msgid=b"%d" % number, headers=b"")
    other.close()
    assert [outcome for _, outcome in table.notes.outcomes[1:]] == ["cancelled"] * 2, "one source has at most half of 4"
    table.wait(101.0)
    assert [outcome for _, outcome in table.notes.outcomes[3:]] == ["no-worker"] * 2
    table.broker.check_invariants()


def test_the_timeout_of_a_request_without_a_reply_is_the_worker_s() -> None:
    table = Table()
    client = table.join(EmqpSession)
    request(client, headers=b"timeout:1,class:x")
    client.close()
    table.wait(30.0)
    worker = worker_at(table)
    job = only(worker.hear())
    assert job[5] == b"reply-requested,timeout:1,class:x"
    table.wait(5.0)
    assert not table.notes.outcomes, "the worker ends it"
    worker.say(*HEAD, b"REPLY", b"x", b"TimeoutError", job[3])
    assert table.notes.outcomes == [("default", "ok")]


def test_many_requests_at_once_come_back_under_their_own_ids_in_any_order() -> None:
    table = Table()
    worker = worker_at(table, slots=3)
    client = table.join(EmqpSession)
    for number in (b"1", b"2", b"3"):
        request(client, msgid=b"m" + number, body=b"body " + number)
    jobs = worker.hear()
    for job in reversed(jobs):
        worker.say(*HEAD, b"REPLY", b"x", b"re " + job[6], job[3])
    assert [(reply[5], reply[4]) for reply in client.hear()] == [
        (b"m3", b"re body 3"),
        (b"m2", b"re body 2"),
        (b"m1", b"re body 1"),
    ]


def test_two_clients_with_the_same_message_id_each_get_their_own_reply() -> None:
    table = Table()
    worker = worker_at(table, slots=2)
    one, two = table.join(EmqpSession), table.join(EmqpSession)
    request(one, msgid=b"same", body=b"one")
    request(two, msgid=b"same", body=b"two")
    jobs = worker.hear()
    assert jobs[0][3] != jobs[1][3]
    for job in reversed(jobs):
        worker.say(*HEAD, b"REPLY", b"x", job[6], job[3])
    assert only(one.hear())[4:] == [b"one", b"same"]
    assert only(two.hear())[4:] == [b"two", b"same"]


def test_timeout_is_the_deadline_and_the_worker_gets_the_remaining_time() -> None:
    table = Table()
    worker = worker_at(table, slots=0)
    client = table.join(EmqpSession)
    request(client, headers=b"reply-requested,timeout:10,guarantee")
    table.wait(4.0)
    worker.say(*HEAD, b"HEARTBEAT", b"h")
    worker.say(*HEAD, b"READY", b"r")
    job = worker.hear()[-1]
    assert job[5] == b"reply-requested,timeout:6,guarantee"
    table.wait(6.1)
    assert table.notes.outcomes == [("default", "timeout")]
    worker.say(*HEAD, b"REPLY", b"x", b"late", job[3])
    assert client.hear() == []  # eMQP has no word for failure


def test_retry_count_bounds_redeliveries() -> None:
    table = Table()
    client = table.join(EmqpSession)
    request(client, headers=b"reply-requested,retry-count:1")
    for _ in range(2):
        worker = worker_at(table)
        assert worker.hear()[-1][2] == b"REQUEST"
        worker.close()
    assert table.notes.outcomes == [("default", "gave-up")]
    assert client.hear() == []


def test_an_empty_queue_is_default() -> None:
    table = Table()
    worker = worker_at(table, b"")
    client = table.join(EmqpSession)
    request(client, queue=b"")
    assert only(worker.hear())[4] == b"default"


def test_an_unserved_queue_falls_to_an_emqp_worker_of_default_with_its_name_unchanged() -> None:
    table = Table()
    worker = worker_at(table)
    client = table.join(EmqpSession)
    request(client, queue=b"nobody")
    assert only(worker.hear())[4] == b"nobody"


def test_no_fallback_to_workers_or_for_clients_of_another_protocol() -> None:
    table = Table()
    other = table.join(EchoSession)
    session = other.session
    assert isinstance(session, EchoSession)
    table.broker.register_worker(session, [b"default"], None, WorkerTerms(1, 1))
    request(table.join(EmqpSession), queue=b"nobody")
    assert session.delivered == []
    worker = worker_at(table)
    table.broker.request(table.join(EchoSession).session, b"nobody2", b"\x00\x01x", None)
    assert worker.hear() == []


def test_a_served_queue_is_not_given_to_default() -> None:
    table = Table()
    default = worker_at(table)
    mine = worker_at(table, b"mine", slots=0)
    request(table.join(EmqpSession), queue=b"mine")
    assert default.hear() == []
    mine.say(*HEAD, b"READY", b"r")
    assert only(mine.hear())[4] == b"mine"


@pytest.mark.parametrize(("memoised", "hits"), [("default", 1), ("nobody", 0)])
def test_the_service_that_runs_a_request_decides_whether_it_is_memoised(memoised: str, hits: int) -> None:
    """A queue without workers falls back to ``default``: that service runs the request, and its name decides whether it is memoised."""
    table = Table()
    memoiser = Memoiser(table.broker, table.broker, MemoValues(), chosen([memoised]), PatternMap({}))
    table.broker.use_memo(memoiser)
    worker, client = worker_at(table, slots=2), table.join(EmqpSession)
    for number in range(2):
        request(client, b"m%d" % number, queue=b"nobody")
        for job in worker.hear():
            worker.say(*HEAD, b"REPLY", b"own-id", b"olleh", job[3])
        assert only(client.hear())[4:] == [b"olleh", b"m%d" % number]
    assert (memoiser.hits, memoiser.misses) == (hits, hits)  # one run, or both requests ran without the memoiser


def test_reserved_names_are_answered_by_the_broker() -> None:
    table = Table()
    client = table.join(EmqpSession)
    request(client, queue=b"mmi.service", body=b"default")
    assert only(client.hear())[4:] == [b"404", b"m1"]


# --- across protocols ---


def test_a_request_of_another_protocol_is_one_frame_with_headers_of_ours() -> None:
    table = Table()
    worker = worker_at(table, slots=3)
    client = table.join(EchoSession).session
    assert isinstance(client, EchoSession)
    table.broker.request(client, b"default", frames.join([b"ab", b"", b"cd"]), None)
    table.broker.request(client, b"default", b"", None, deadline=table.broker.now + 7.4)
    table.broker.request(client, b"default", b"\x00\x01z", None, 0.0, RequestOptions(max_run=0.2))
    many, none, hasty = worker.hear()
    assert many[4:] == [b"default", b"reply-requested", b"abcd"]
    assert none[4:] == [b"default", b"reply-requested,timeout:7", b""]
    assert hasty[4:] == [b"default", b"reply-requested,timeout:1", b"z"]
    worker.say(*HEAD, b"REPLY", b"x", b"done", many[3])
    assert client.finals == [b"\x00\x04done"]


def test_an_emqp_client_gets_partials_joined_into_one_frame() -> None:
    table = Table()
    session = table.join(EchoSession).session
    assert isinstance(session, EchoSession)
    worker = table.broker.register_worker(session, [b"other"], None, WorkerTerms(1, 1))
    assert isinstance(worker, Worker)
    client = table.join(EmqpSession)
    request(client, queue=b"other")
    token = session.delivered[0].token
    table.broker.partial(worker, token, frames.join([b"a", b"b"]))
    table.broker.final(worker, token, frames.join([b"c", b"d"]))
    assert only(client.hear())[4:] == [b"abcd", b"m1"]
    request(client, queue=b"other")
    table.broker.final(worker, session.delivered[1].token, b"")
    assert only(client.hear())[4:] == [b"", b"m1"]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000, 1 << 20])
def test_bodies_of_every_size_pass_both_ways(size: int) -> None:
    table = Table()
    worker = worker_at(table)
    client = table.join(EmqpSession)
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    request(client, body=body)
    job = only(worker.hear())
    assert job[6] == body
    worker.say(*HEAD, b"REPLY", b"x", body, job[3])
    assert only(client.hear())[4:] == [body, b"m1"]
    worker.say(*HEAD, b"READY", b"r")
    client.say(*HEAD, b"READY", b"m2", b"default", ASKS, body)
    worker.hear()
    worker.say(*HEAD, b"REPLY", b"x", body)
    assert client.hear() == [[*HEAD, b"REPLY", b"m2", body]]


def test_clients_of_one_queue_are_served_in_turn() -> None:
    table = Table()
    flood, other = table.join(EmqpSession), table.join(EmqpSession)
    for number in range(5):
        request(flood, msgid=b"%d" % number, body=b"flood")
    request(other, body=b"other")
    worker = worker_at(table, slots=3)
    assert [job[6] for job in worker.hear()].count(b"other") == 1
