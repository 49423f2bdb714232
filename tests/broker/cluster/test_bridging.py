"""Bridges between simulated brokers: learned services, requests that cross, lost connections, and rings of brokers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.observe import states
from polydomo.broker.policy import Policy
from polydomo.protocols.bridge.session import BridgedRequest
from polydomo.wire.link import ABORTING
from tests.broker.net import Bridge, Net, Node, Peer

# --- what is offered -----------------------------------------------------------------------------------------------------


def test_each_learns_the_other_s_services_from_before_and_after(net: Net) -> None:
    a, b = net.node("a"), net.node("b")
    a.worker(b"one")
    bridge = net.bridge(a, b)
    net.settle()
    assert b.knows(b"one") == 1
    assert states.of_service(b.broker, b.broker.services[b"one"])[::2] == ("ready", "another broker offers it")
    two = b.worker(b"two")
    net.settle()
    assert a.knows(b"two") == 1
    assert a.broker.has_worker(b"two")
    two.close()
    net.settle()
    assert a.knows(b"two") == -1 and not a.broker.services.get(b"two")
    bridge.cut()
    assert b.knows(b"one") == -1
    net.check()


def test_a_chain_of_bridges_offers_services_up_to_the_hop_limit(net: Net) -> None:
    nodes = net.chain(*"abcdefghij")
    nodes[0].worker(b"far")
    net.settle()
    assert [node.knows(b"far") for node in nodes] == [0, 1, 2, 3, 4, 5, 6, 7, 8, -1]


@pytest.mark.parametrize("names", ["abc", "abcd", "abcdefgh"])
def test_a_ring_forgets_a_service_that_is_gone(net: Net, names: str) -> None:
    nodes = net.ring(*names)
    worker = nodes[0].worker(b"s")
    net.settle()
    assert max(node.knows(b"s") for node in nodes) == len(nodes) // 2
    worker.close()
    assert net.settle() < 100
    assert [node.knows(b"s") for node in nodes] == [-1] * len(nodes)


def test_a_broker_does_not_bridge_to_itself(net: Net) -> None:
    a = net.node("a")
    bridge = Bridge(a, a)
    with pytest.raises(AssertionError, match="to itself"):
        bridge.carry(0)


# --- requests -------------------------------------------------------------------------------------------------------------


def test_a_bridge_that_is_lost_with_requests_that_have_ended_brings_no_service_back(net: Net) -> None:
    a, b = net.node("a"), net.node("b")
    b.worker(b"s")
    bridge = net.bridge(a, b)
    net.settle()
    client = a.peer()
    client.ask(b"s", timeout=1.0)
    net.settle()
    net.wait(1.5, settle=False)
    assert [outcome for _, outcome, _ in client.answers] == ["timeout"]
    away = next(iter(a.broker.bridging.learned))
    assert len(away.held) == 1, "the other broker has not said yet that it is done with it"
    a.broker.bridge_offers(away, b"s", ())
    bridge.cut()
    assert not a.broker.services
    net.check()


def test_a_request_that_joins_a_run_of_a_retracted_service_leaves_no_empty_service(net: Net) -> None:
    a, b = net.node("a"), net.node("b")
    worker = b.worker(b"s")
    net.bridge(a, b)
    net.settle()
    first, second = a.peer(), a.peer()
    first.ask(b"s", key=b"k")
    net.settle()
    a.broker.bridge_offers(next(iter(a.broker.bridging.learned)), b"s", ())  # RETRACT; the request is still there
    second.ask(b"s", key=b"k")
    assert not a.broker.services
    net.check()
    worker.final(b"done")
    net.settle()
    assert [peer.answers for peer in (first, second)] == [[(None, "ok", b"done")]] * 2
    net.check()


def test_a_bridge_is_lost_after_it_retracted_what_it_still_works_on(net: Net) -> None:
    """The request is requeued at a service that was removed meanwhile: it must not wait for ever."""
    a, b = net.node("a", Policy(queue_expiry=10.0)), net.node("b")
    worker = b.worker(b"s")
    bridge = net.bridge(a, b)
    net.settle()
    client = a.peer()
    client.ask(b"s")
    net.settle()
    assert len(worker.jobs) == 1
    a.broker.bridge_offers(next(iter(a.broker.bridging.learned)), b"s", ())  # RETRACT; the request is still there
    bridge.cut()
    net.check()
    assert client.answers == []
    net.wait(11.0)
    assert [outcome for _, outcome, _ in client.answers] == ["no-worker"]
    net.check()


def test_a_request_crosses_with_partials_and_final(net: Net) -> None:
    a, b = net.chain("a", "b")
    worker, client = b.worker(b"count"), a.peer()
    net.settle()
    client.ask(b"count", "ref")
    net.settle()
    assert worker.jobs[0][1].body == b"\x00\x05hello"
    worker.partial(b"1")
    worker.partial(b"2")
    net.settle()
    assert client.answers == [("ref", "partial", b"1"), ("ref", "partial", b"2")]
    worker.final(b"3")
    net.settle()
    assert client.answers[2:] == [("ref", "ok", b"3")]
    assert a.notes.outcomes == {1: "ok"} and b.notes.outcomes == {1: "ok"}


def test_local_workers_come_first(net: Net) -> None:
    a, b = net.chain("a", "b")
    far, client = b.worker(b"s"), a.peer()
    net.settle()
    near = a.worker(b"s")
    client.ask(b"s", 1)
    client.ask(b"s", 2)  # the local one is busy: it waits for it
    net.settle()
    assert len(near.jobs) == 1 and far.jobs == []
    near.final()
    near.close()  # with the second, which goes over the bridge now
    net.settle()
    assert len(far.jobs) == 1
    far.final()
    net.settle()
    assert [(ref, outcome) for ref, outcome, _ in client.answers] == [(1, "ok"), (2, "ok")]


def test_queued_requests_cross_a_bridge_that_opens(net: Net) -> None:
    a, b = net.node("a"), net.node("b")
    client = a.peer()
    client.ask(b"s")
    b.worker(b"s")
    net.bridge(a, b)
    net.settle()
    assert b.broker.open_requests == 1


def test_a_failure_crosses_with_its_code(net: Net) -> None:
    a, b, c = net.chain("a", "b", "c")
    worker, client = c.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s")
    net.settle()
    worker.fail("my-code", "my text")
    net.settle()
    assert client.answers == [(None, "my-code", b"my text")]
    assert [node.notes.outcomes[1] for node in (a, b, c)] == ["failed"] * 3


def test_a_request_that_kills_its_workers_fails_over_a_bridge_too(net: Net) -> None:
    a, b = net.chain("a", "b")
    client = a.peer()
    b.worker(b"s")
    net.settle()
    client.ask(b"s")
    net.settle()
    for _ in range(3):
        workers = [worker.session for worker in b.broker.workers if worker.services]
        b.worker(b"s")
        for worker in workers:
            assert isinstance(worker, Peer)
            worker.close()
        net.settle()
    assert [outcome for _, outcome, _ in client.answers] == ["gave-up"]


def test_the_deadline_crosses(net: Net) -> None:
    a, b = net.chain("a", "b")
    worker, client = b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s", timeout=2.0)
    net.wait(0.5)
    net.settle()
    request = worker.jobs[0][1]
    assert 0 < request.deadline - net.now <= 2.0
    net.wait(3.0)
    assert [outcome for _, outcome, _ in client.answers] == ["timeout"]
    assert b.notes.outcomes == {1: "timeout"}
    worker.final()
    net.settle()
    assert len(client.answers) == 1
    assert all(not worker.held for worker in a.broker.workers)


def test_cancelling_crosses(net: Net) -> None:
    a, b, c = net.chain("a", "b", "c")
    worker, client = c.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s")
    client.ask(b"s")
    net.settle()
    client.close()
    net.settle()
    assert c.notes.outcomes == {1: "cancelled", 2: "cancelled"}
    assert not c.broker.services[b"s"].queue_length and not b.broker.open_requests
    worker.final()
    net.settle()


def test_an_answer_and_its_cancelling_may_cross(net: Net) -> None:
    a, b = net.chain("a", "b")
    worker, client = b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s")
    net.settle()
    worker.final()
    client.close()
    net.settle()
    assert a.notes.outcomes == {1: "cancelled"} and b.notes.outcomes == {1: "ok"}


def test_in_a_ring_a_request_arrives_once_and_its_trace_shows_the_hops(net: Net) -> None:
    a, b, c, d = net.ring("a", "b", "c", "d")
    worker, client = c.worker(b"s"), a.peer()
    net.settle()
    for number in range(10):
        client.ask(b"s", number)
    net.settle()
    seen = []
    while worker.jobs:
        request = worker.jobs[0][1]
        seen.append(request)
        worker.final()
        net.settle()
    assert len(seen) == 10 and [outcome for _, outcome, _ in client.answers] == ["ok"] * 10
    for request in seen:
        journey = request.ref
        assert isinstance(journey, BridgedRequest)
        between = b if journey.path[1] == b.identity else d
        assert journey.path == (a.identity, between.identity)
        assert journey.trace.startswith(f"00-{a.identity.decode()}") and len(journey.trace) == 55
        first = int(journey.trace[19:35], 16)
        assert a.notes.routes[first] == [
            f"{between.identity.decode()}:{journey.parent}",
            f"{c.identity.decode()}:{c.broker.request_name(request)}",
        ]
    assert b.broker.newest_request + d.broker.newest_request == 10


def test_a_service_that_has_just_gone_sends_requests_back_to_be_tried_elsewhere(net: Net) -> None:
    a, b, c = net.node("a"), net.node("b"), net.node("c")
    net.bridge(a, b)
    net.bridge(a, c)
    gone, other, client = b.worker(b"s"), c.worker(b"s"), a.peer()
    net.settle()
    for number in range(4):
        client.ask(b"s", number)
    gone.close()  # before the requests arrive
    net.settle()
    while other.jobs:
        other.final()
        net.settle()
    assert sorted(answer[:2] for answer in client.answers if isinstance(answer[0], int)) == [
        (n, "ok") for n in range(4)
    ]


def test_a_broker_that_leaves_takes_nothing_more(net: Net) -> None:
    a, b = net.chain("a", "b")
    worker, client = b.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s", 1)
    net.settle()
    b.broker.drain()
    client.ask(b"s", 2)
    net.settle()
    assert a.knows(b"s") == -1
    worker.final()
    net.settle()
    assert client.answers == [(1, "ok", b"done")]
    a.worker(b"s")
    assert a.broker.services[b"s"].queue_length == 0


def test_silence_ends_a_bridge(net: Net) -> None:
    a, b = net.chain("a", "b")
    b.worker(b"s")
    net.settle()
    net.wait(60.0)  # they beat
    assert a.knows(b"s") == 1 and a.broker.bridging.learned
    bridge = net.bridges[0]
    net.wait(4.0, settle=False)  # nothing gets through
    assert all(end.link.closing == "the peer is silent" and end.link.state == ABORTING for end in bridge.ends)


# --- cuts -----------------------------------------------------------------------------------------------------------------


def test_a_lost_bridge_gives_back_what_it_held(net: Net) -> None:
    a, b = net.chain("a", "b")
    worker, client = b.worker(b"s", credit=10), a.peer()
    net.settle()
    for number in range(6):
        client.ask(b"s", number)
    net.settle()
    worker.final(again=False)
    worker.partial(b"half")
    net.settle()
    worker.final(again=False)  # this answer is lost on the way
    net.bridges[0].cut()
    net.check()
    assert client.answers == [(0, "ok", b"done"), (1, "partial", b"half"), (1, "interrupted", client.answers[-1][2])]
    assert a.broker.services[b"s"].queue_length == 4 and a.notes.requeues == 4
    assert b.broker.open_requests == 0  # whoever asked has gone
    net.bridge(a, b)
    net.settle()
    again = b.worker(b"s", credit=10)
    net.settle()
    while again.jobs or worker.jobs:
        for one in (again, worker):
            if one.jobs:
                one.final(again=False)
        net.settle()
    assert sorted(ref for ref, outcome, _ in client.answers if outcome == "ok" and isinstance(ref, int)) == [
        0,
        2,
        3,
        4,
        5,
    ]


@settings(max_examples=60)
@given(
    st.sampled_from(["chain", "ring"]),
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 2)),
            st.tuples(st.just("carry"), st.integers(0, 5)),
            st.tuples(st.just("answer"), st.integers(0, 5)),
            st.tuples(st.just("cut"), st.integers(0, 2)),
            st.tuples(st.just("restore"), st.integers(0, 2)),
            st.tuples(st.just("worker"), st.integers(0, 2)),
            st.tuples(st.just("kill"), st.integers(0, 5)),
            st.tuples(st.just("cancel"), st.integers(0, 2)),
            st.tuples(st.just("wait"), st.integers(1, 3)),
        ),
        max_size=60,
    ),
)
def test_whatever_happens_every_request_has_one_outcome(shape: str, steps: list[tuple[str, int]]) -> None:
    """Three brokers, bridges that come and go in the middle of anything, workers that die, clients that leave."""
    net = Net()
    nodes = net.ring("a", "b", "c") if shape == "ring" else net.chain("a", "b", "c")
    clients = [node.peer() for node in nodes]
    workers = [nodes[2].worker(b"s")]
    asked: list[tuple[Node, int]] = []
    for what, number in steps:
        live = [bridge for bridge in net.bridges if bridge.up]
        if what == "ask":
            request = clients[number].ask(b"s", len(asked), timeout=20.0)
            assert request is not None
            asked.append((nodes[number], request.number))
        elif what == "carry" and live:
            live[number % len(live)].carry(number % 2, 1 + number)
        elif what == "answer" and any(worker.jobs for worker in workers):
            busy = [worker for worker in workers if worker.jobs]
            busy[number % len(busy)].final()
        elif what == "cut" and live:
            live[number % len(live)].cut()
        elif what == "restore" and len(live) < 4:
            net.bridge(nodes[number], nodes[(number + 1) % 3])
        elif what == "worker":
            workers.append(nodes[number].worker(b"s"))
        elif what == "kill" and workers:
            workers.pop(number % len(workers)).close()
        elif what == "cancel":
            clients[number].close()
            clients[number] = nodes[number].peer()
        elif what == "wait":
            net.wait(0.1 * number, settle=False)
        net.check()
    net.wait(30.0)
    for node, number in asked:
        assert number in node.notes.outcomes, f"request {number} of {node.name} never ended"
    for node in nodes:
        assert node.broker.open_requests == 0 and node.broker.held_bytes == 0
