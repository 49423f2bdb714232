"""The processes of one broker: requests go to free workers of other processes, and answers are about all of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker import service_room, service_table
from polydomo.broker.cluster import merging
from polydomo.broker.reserved_names import ACCEPT, JOIN
from polydomo.broker.sharing.keyed import name_of
from polydomo.limits import LISTING_ROWS, PROCESS_NUMBERS, SIBLING_ANSWER, SPILL_DELAY
from polydomo.model.records import DONE
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.wire.frames import join, split
from tests.broker.net import Net, Peer


def answer_to(peer: Peer) -> object:
    return json.loads(peer.answers.pop()[2])


@pytest.fixture
def net() -> Net:
    return Net()


def test_a_queued_request_moves_to_a_free_worker_of_another_process(net: Net) -> None:
    a, b = net.processes("a", "b")
    near, far, client = a.worker(b"s"), b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s", 1)
    client.ask(b"s", 2)
    net.settle()
    assert len(near.jobs) == 1 and not far.jobs, "the worker of its own process comes first"
    net.wait(SPILL_DELAY + 0.1)
    assert len(near.jobs) == 1 and len(far.jobs) == 1
    far.final(b"far")
    near.final(b"near")
    net.settle()
    assert sorted(client.answers) == [(1, "ok", b"near"), (2, "ok", b"far")]
    assert not a.broker.siblings.short and not b.broker.siblings.wanted


def test_requests_cross_only_to_a_process_with_a_free_worker(net: Net) -> None:
    a, b = net.processes("a", "b")
    near, far, client, other = a.worker(b"s"), b.worker(b"s"), a.peer(), b.peer()
    net.settle()
    other.ask(b"s", "other")
    for number in range(4):
        client.ask(b"s", number)
    net.wait(1.0)
    assert len(near.jobs) == 1 and len(far.jobs) == 1
    assert not next(iter(a.broker.siblings.bridges)).held, "the worker there is busy: requests wait where they came"
    for _ in range(2):
        far.final()
        b.broker.end_turn()
        net.settle()
        assert len(far.jobs) == 1
    near.final()
    net.settle()
    far.final()
    near.final()
    net.wait(1.0)
    for worker in (far, near):
        if worker.jobs:
            worker.final()
    net.settle()
    assert len([answer for answer in client.answers if answer[1] == "ok"]) == 4


def test_room_is_not_asked_for_while_the_window_is_full(net: Net) -> None:
    """Otherwise SHORT and ROOM go back and forth without a pause, and keep both processes busy."""
    a, b = net.processes("a", "b")
    near, client = a.worker(b"s"), a.peer()
    far = [b.worker(b"s"), b.worker(b"s")]
    net.settle()
    (bridge,) = a.broker.siblings.bridges
    assert isinstance(bridge.session, BridgeSession)
    bridge.session.peer_bytes = 1  # full with one request
    for number in range(3):
        client.ask(b"s", number)
    net.wait(1.0)
    assert len(near.jobs) == 1 and len(bridge.held) == 1 and sum(len(worker.jobs) for worker in far) == 1
    assert net.settle() == 0
    next(worker for worker in far if worker.jobs).final()
    net.settle()
    net.wait(1.0)
    assert len(bridge.held) == 1, "there is room again: the next one crosses"


def test_a_request_does_not_cross_back(net: Net) -> None:
    a, b = net.processes("a", "b")
    near, far, client, other = a.worker(b"s"), b.worker(b"s"), a.peer(), b.peer()
    net.settle()
    client.ask(b"s", 1)
    client.ask(b"s", 2)
    net.wait(SPILL_DELAY + 0.1, settle=False)
    (bridge,) = net.bridges
    bridge.carry(1)  # SHORT
    b.broker.end_turn()  # ROOM
    other.ask(b"s", "other")  # takes the free worker, so the request that crosses waits
    net.settle()
    near.final()
    net.wait(0.1)
    assert not near.jobs and b.broker.services[b"s"].queue_length == 1
    far.final()
    net.settle()
    far.final(b"far")
    net.settle()
    assert client.answers == [(1, "ok", b"done"), (2, "ok", b"far")]


def test_a_process_with_queued_requests_offers_no_room(net: Net) -> None:
    a, b = net.processes("a", "b")
    a.worker(b"s")
    far = b.worker(b"s")
    client, other = a.peer(), b.peer()
    net.settle()
    for number in range(3):
        client.ask(b"s", number)
        other.ask(b"s", number)
    net.wait(1.0)
    far.final()
    net.settle()
    assert far.jobs[0][1].session is other, "its own clients come first while requests of theirs wait"


def test_a_process_that_dies_gives_its_requests_back(net: Net) -> None:
    a, b, c = net.processes("a", "b", "c")
    far, farther, client = b.worker(b"s"), c.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s", 1)
    net.settle()
    assert len(far.jobs) + len(farther.jobs) == 1
    held = b if far.jobs else c
    for bridge in net.bridges:
        if held in bridge.nodes:
            bridge.cut()
    net.settle()
    worker = farther if held is b else far
    assert len(worker.jobs) == 1
    worker.final()
    net.settle()
    assert client.answers == [(1, "ok", b"done")]


def test_requests_cross_while_all_drain(net: Net) -> None:
    """What waits in one process finishes in another, as it would in a broker of one process."""
    a, b = net.processes("a", "b")
    far, client = b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s", 1)
    client.ask(b"s", 2)
    net.settle()
    for node in (a, b):
        node.broker.drain()
    net.settle()
    far.final()
    net.settle()
    far.final()
    net.settle()
    assert [answer[:2] for answer in client.answers] == [(1, "ok"), (2, "ok")]
    assert client.ask(b"s", 3) is None, "new requests are refused"


def test_one_list_of_workers_and_one_row_for_a_service(net: Net) -> None:
    a, b, c = net.processes("a", "b", "c")
    a.worker(b"s")
    b.worker(b"s", b"t")
    net.settle()
    for node in (a, b, c):
        client = node.peer()
        client.ask(b"polydomo.workers")
        net.settle()
        rows = answer_to(client)
        assert isinstance(rows, list)
        assert sorted(row["worker"] for row in rows) == ["w1000003", "w3"]
        client.ask(b"polydomo.services")
        net.settle()
        services = answer_to(client)
        assert isinstance(services, list)
        assert {row["name"]: row["workers"] for row in services} == {"s": 2, "t": 1}
        client.ask(b"polydomo.status")
        net.settle()
        status = answer_to(client)
        assert isinstance(status, dict)
        assert status["workers"] == 2 and status["services"] == 2
        assert [row["process"] for row in status["processes"]] == [0, 1, 2]
        client.close()


def test_a_long_list_leaves_out_what_process_0_offers_to_the_others_as_a_short_one_does(net: Net) -> None:
    a, b = net.processes("a", "b")
    names = [b"s%d" % i for i in range(LISTING_ROWS)]
    worker = b.worker(*names)
    net.settle()
    assert len(b.broker.services) > LISTING_ROWS
    client = b.peer()

    def listed() -> set[str]:
        client.ask(b"polydomo.services")
        for _ in range(4):  # turns
            a.broker.end_turn()
            b.broker.end_turn()
            net.settle()
        rows = answer_to(client)
        assert isinstance(rows, list)
        return {row["name"] for row in rows}

    assert listed() == {name.decode() for name in names}, "a short list"
    assert worker.me is not None
    b.broker.add_service(worker.me, b"one more")
    net.settle()
    assert listed() == {name.decode() for name in names} | {"one more"}, "a long list"


def test_a_request_that_crossed_is_counted_and_listed_once(net: Net) -> None:
    a, b = net.processes("a", "b")
    far, client, viewer = b.worker(b"s"), a.peer(), b.peer()
    net.settle()
    client.ask(b"s", 1)
    net.settle()
    viewer.ask(b"polydomo.requests")
    net.settle()
    rows = answer_to(viewer)
    assert isinstance(rows, list)
    assert [(row["service"], row["state"], row["why"]) for row in rows] == [
        ("s", "running", "a worker of another process has it")
    ]
    far.final()
    net.settle()
    viewer.ask(b"polydomo.status")
    net.settle()
    status = answer_to(viewer)
    assert isinstance(status, dict)
    assert status["answered"] == 1 and status["open_requests"] == 0


def test_a_process_that_does_not_answer_is_left_out(net: Net) -> None:
    a, b = net.processes("a", "b")
    a.worker(b"s")
    net.settle()
    client = a.peer()
    client.ask(b"polydomo.workers")
    net.wait(SIBLING_ANSWER + 0.1, settle=False)
    rows = answer_to(client)
    assert isinstance(rows, list) and len(rows) == 1
    assert not a.broker.siblings.questions
    net.settle()
    assert b.broker.siblings.bridges


def test_a_process_that_was_suspended_waits_again_for_answers(net: Net) -> None:
    a, b = net.processes("a", "b")
    a.worker(b"s")
    b.worker(b"s")
    net.settle()
    client = a.peer()
    client.ask(b"polydomo.workers")
    net._at(net.now + SIBLING_ANSWER + 10.0)
    a.broker.was_suspended(SIBLING_ANSWER + 10.0)
    a.broker.run_timers()
    assert not client.answers, "the answer is not read yet"
    net.settle()
    rows = answer_to(client)
    assert isinstance(rows, list) and len(rows) == 2
    assert not a.broker.siblings.questions


def test_a_question_to_a_process_that_dies_is_answered(net: Net) -> None:
    a, _ = net.processes("a", "b")
    client = a.peer()
    client.ask(b"polydomo.workers")
    net.bridges[0].cut()
    assert answer_to(client) == []


def test_a_service_is_paused_at_all_processes_and_at_one_that_joins_later(net: Net) -> None:
    a, b = net.processes("a", "b")
    far, client = b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"polydomo.pause", body=b'{"service": "s"}')
    net.settle()
    answer = answer_to(client)
    assert isinstance(answer, dict) and answer["paused"]
    assert b"s" in a.broker.paused and b"s" in b.broker.paused
    c = net.node("c")
    c.broker.siblings.become(2, 3)
    net.bridge(c, a, True)
    net.bridge(c, b, True)
    net.settle()
    assert b"s" in c.broker.paused
    client.ask(b"polydomo.resume", body=b'{"service": "s"}')
    client.ask(b"s", 7)
    net.settle()
    assert not c.broker.paused and len(far.jobs) == 1


def test_an_order_that_no_process_can_carry_out(net: Net) -> None:
    a, _ = net.processes("a", "b")
    client = a.peer()
    client.ask(b"polydomo.drain", body=b'{"worker": "w99"}')
    net.settle()
    answer = answer_to(client)
    assert isinstance(answer, dict) and answer["error"] == "not-found"


def test_process_0_answers_for_state_that_only_it_has(net: Net) -> None:
    _, b = net.processes("a", "b")
    client = b.peer()
    client.ask(b"polydomo.catalog")
    net.settle()
    assert answer_to(client) == []
    client.ask(b"polydomo.services")
    net.settle()
    assert answer_to(client) == [], "the first process' own services are not shown"


def test_a_publication_reaches_subscribers_of_every_process_once_and_late_ones_too(net: Net) -> None:
    a, b, c = net.processes("a", "b", "c")
    subscribers = [node.peer() for node in (a, b, c)]
    for subscriber in subscribers:
        subscriber.broker.subscribe(subscriber, b"t")
    publisher = b.peer()
    b.broker.publish(publisher, b"topic", join([b"1"]))
    net.settle()
    assert [subscriber.heard for subscriber in subscribers] == [[(b"topic", b"1")]] * 3
    late = c.peer()
    c.broker.subscribe(late, b"t")
    c.broker.end_turn()
    assert late.heard == [(b"topic", b"1")]


def test_a_log_record_belongs_to_the_process_of_its_request(net: Net) -> None:
    a, b = net.processes("a", "b")
    far, client, publisher = b.worker(b"s"), b.peer(), a.peer()
    net.settle()
    client.ask(b"s", 1)
    token = far.jobs[0][2]
    assert int(token[:9], 16) > PROCESS_NUMBERS
    record = {"service": "s", "message": "at work", "request": token.decode()}
    a.broker.publish(publisher, b"log.s", join([json.dumps(record).encode()]))
    net.settle()
    for node in (a, b):
        (row,) = [record.row() for record in node.broker.publishing.log_records.records]
        assert row["request"] == b.broker.request_name(far.jobs[0][1]), node.name


@pytest.mark.parametrize(
    ("name", "parts", "merged"),
    [
        ("window", ["3", "4"], 7),
        ("requests", ["[1]", "[2]"], [1, 2]),
        ("workers", ["[1]", "not JSON"], [1]),
        ("gone", ['{"worker": [{"a": 1}]}', '{"worker": [], "client": []}'], {"worker": [{"a": 1}], "client": []}),
        ("withdraw", ['{"error": "not-found"}', '{"request": 7, "state": "cancelled"}'], {"request": 7, "state": "cancelled"}),
        ("journal", ['{"rows": 1, "safe": 1, "run": "A", "trouble": ""}', '{"rows": 2, "safe": 0, "run": "B", "trouble": "full"}'],
         {"rows": 3, "safe": 1, "run": "A", "trouble": "full", "runs": ["A", "B"]}),
    ],
)  # fmt: skip
def test_merging(net: Net, name: str, parts: list[str], merged: object) -> None:
    service = net.node("a").broker.builtin.by_name[b"polydomo." + name.encode()]
    found = json.loads(merging.merge(service.merge, [part.encode() for part in parts]))
    assert found == merged
    assert json.dumps(found, sort_keys=True) == json.dumps(merged, sort_keys=True)  # counts are whole numbers


WORDS = st.sampled_from([b"PROCESS", b"SHORT", b"ROOM", b"ASK", b"ANSWER", b"EVENT", b"TAP", b"LOG", b"OTHER"])
CONTENTS = st.one_of(
    st.sampled_from([b"s", b"0", b"1", b"99999999999999999999", b"polydomo.workers", b"polydomo.pause", b"metrics", b"log.s", b"{}", b""]),
    st.binary(max_size=12),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(WORDS, st.lists(CONTENTS, max_size=5)), max_size=12))
def test_no_message_of_a_sibling_breaks_a_process(messages: list[tuple[bytes, list[bytes]]]) -> None:
    net = Net()
    a, b = net.processes("a", "b")
    a.worker(b"s")
    client = a.peer()
    client.ask(b"s", 1)
    client.ask(b"s", 2)
    bridge = next(iter(a.broker.siblings.bridges))
    for word, rest in messages:
        a.broker.siblings.message(bridge, word, rest)
        a.broker.end_turn()
        a.broker.check_invariants()
    net.wait(SIBLING_ANSWER + 0.1)
    assert not a.broker.siblings.questions and b.broker.siblings.bridges


# --- requests with an idempotency key


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("body", [b"hello", b""])
def test_requests_of_all_processes_under_one_key_run_once(net: Net, place: int, body: bytes) -> None:
    nodes = net.processes("a", "b", "c")
    worker = nodes[place].worker(b"s", credit=9)
    net.settle()
    clients = [node.peer() for node in nodes for _ in range(2)]
    for client in clients:
        client.ask(b"s", 1, body, key=b"k")
    net.settle()
    assert len(worker.jobs) == 1 and b"".join(split(worker.jobs[0][1].body)) == body
    worker.partial(b"part")
    net.settle()
    late = nodes[2].peer()
    late.ask(b"s", 1, body, key=b"k")
    net.settle()
    worker.final(b"done")
    net.settle()
    for client in [*clients, late]:
        assert client.answers == [(1, "partial", b"part"), (1, "ok", b"done")]
    for node in nodes:
        node.broker.check_invariants()
        assert not node.broker.open_requests


def test_a_key_in_use_in_another_process_with_another_body_is_refused(net: Net) -> None:
    a, b = net.processes("a", "b")
    worker, near, far = a.worker(b"s", credit=9), a.peer(), b.peer()
    net.settle()
    near.ask(b"s", 1, b"x", key=b"k")
    far.ask(b"s", 2, b"y", key=b"k")
    net.settle()
    assert len(worker.jobs) == 1 and [answer[:2] for answer in far.answers] == [(2, "key-reused")]


def test_the_last_client_of_all_processes_cancels(net: Net) -> None:
    a, b = net.processes("a", "b")
    worker, near, far = a.worker(b"s", credit=9), a.peer(), b.peer()
    net.settle()
    requests = [near.ask(b"s", 1, key=b"k"), far.ask(b"s", 2, key=b"k")]
    net.settle()
    for node, request in zip((a, b), requests, strict=True):
        assert request is not None and worker.jobs[0][1].state != DONE
        node.broker.cancel(request, "given up")
        net.settle()
    assert worker.jobs[0][1].state == DONE


def test_keys_work_without_process_0_and_when_it_is_back(net: Net) -> None:
    _, b = net.processes("a", "b")
    worker, client = b.worker(b"s", credit=9), b.peer()
    net.settle()
    for bridge in list(b.broker.siblings.bridges):
        bridge.session.link.lost()
    net.settle()
    client.ask(b"s", 1, key=b"k")
    client.ask(b"s", 2, key=b"k")
    net.settle()
    assert len(worker.jobs) == 1
    worker.final(b"done")
    assert client.answers == [(1, "ok", b"done"), (2, "ok", b"done")]


def test_a_client_cannot_use_the_service_of_processes(net: Net) -> None:
    a, b = net.processes("a", "b")
    worker, other = a.worker(b"s", credit=9), a.peer()
    net.settle()
    other.ask(b"s", 1, key=b"k")
    for node in (a, b):
        client = node.peer()
        name = name_of(other.principal, b"s", b"k")
        node.broker.request(client, JOIN, join([name, b"s", b"hello"]), 7)
        net.settle()
        assert [answer[2] for answer in client.answers] == [b"501"] and len(worker.jobs) == 1


def test_a_full_table_makes_room_for_a_worker_by_removing_names_that_count(net: Net) -> None:
    """What process 0 offers to the others needs no room, so removing it makes none."""
    _, b = net.processes("a", "b")
    b.broker.policy = replace(b.broker.policy, max_services=1)
    service_table.find_or_add(b.broker, ACCEPT)
    b.peer().ask(b"nobody", 1)
    assert service_table.count(b.broker) == 1
    assert service_room.make_room(b.broker, [b"offered"])
    assert ACCEPT in b.broker.services and service_table.count(b.broker) == 0
