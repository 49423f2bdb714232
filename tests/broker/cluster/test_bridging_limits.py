"""Limits of bridges: requests in flight, and service names. A limit uses up no attempt of a request."""

import pytest

from polydomo.broker.policy import Policy
from polydomo.model.tuning import Tuning
from polydomo.wire.frames import split
from tests.broker.net import Net


def test_an_offer_without_room_is_accepted_when_there_is_room(net: Net) -> None:
    near, far = net.node("near", Policy(max_services=2)), net.node("far")
    local = near.worker(b"local")
    _, second, third = (far.worker(name) for name in (b"first", b"second", b"third"))
    bridge = net.bridge(near, far)
    net.settle()
    assert [near.knows(name) for name in (b"first", b"second", b"third")] == [1, -1, -1]
    second.close()  # what is retracted is not learned later
    local.close()
    net.settle()
    near.broker.end_turn()
    net.settle()
    assert [near.knows(name) for name in (b"first", b"second", b"third")] == [1, -1, 1]
    client = near.peer()
    client.ask(b"third")
    net.settle()
    third.final()
    net.settle()
    assert client.answers == [(None, "ok", b"done")]
    far.worker(b"fourth")
    net.settle()
    assert near.broker.bridging.missed
    bridge.cut()
    assert not near.broker.bridging.missed, "nobody offers it any more"
    net.check()


def test_services_of_another_broker_replace_names_without_workers(net: Net) -> None:
    near, far = net.node("near", Policy(max_services=1)), net.node("far")
    client = near.peer()
    client.ask(b"invented", 1)
    far.worker(b"s")
    net.bridge(near, far)
    net.settle()
    assert near.knows(b"s") == 1 and near.knows(b"invented") == -1
    assert [(ref, outcome) for ref, outcome, _ in client.answers] == [(1, "no-worker")]
    net.check()


@pytest.mark.parametrize("room", [True, False])
def test_a_request_returned_to_a_removed_service_counts_against_the_limit(net: Net, room: bool) -> None:
    near, far = net.node("near", Policy(max_services=2)), net.node("far")
    worker, client = far.worker(b"s"), near.peer()
    bridge = net.bridge(near, far)
    net.settle()
    client.ask(b"s", 1)
    net.settle()
    assert worker.jobs
    # Retracted, while the request is away.
    near.broker.bridge_offers(next(iter(near.broker.bridging.learned)), b"s", ())
    assert near.knows(b"s") == -1
    near.worker(b"a")
    if room:
        client.ask(b"invented", 2)
    else:
        near.worker(b"b")
    bridge.cut()
    assert len(near.broker.services) == 2 and (b"s" in near.broker.services) is room
    assert [(ref, outcome) for ref, outcome, _ in client.answers] == [(2 if room else 1, "no-worker")]
    net.check()


def test_a_bridge_takes_no_more_than_its_window(net: Net) -> None:
    a = net.node("a")
    b = net.node("b", tuning=Tuning(bridge_window=2))
    net.bridge(a, b)
    worker, client = b.worker(b"s", credit=10), a.peer()
    net.settle()
    for number in range(5):
        client.ask(b"s", number)
    net.settle()
    assert len(worker.jobs) == 2 and a.broker.services[b"s"].queue_length == 3
    while worker.jobs:
        worker.final(again=False)
        net.settle()
    assert [ref for ref, _, _ in client.answers] == [0, 1, 2, 3, 4]


def test_clients_take_turns_when_their_requests_cross_a_bridge(net: Net) -> None:
    a = net.node("a")
    b = net.node("b", tuning=Tuning(bridge_window=1))
    net.bridge(a, b)
    worker, flood, other = b.worker(b"s", credit=10), a.peer(), a.peer()
    net.settle()
    for number in range(4):
        flood.ask(b"s", number, b"flood")
    for number in range(2):
        other.ask(b"s", number, b"other")
    net.settle()
    order = []
    while worker.jobs:
        order += split(worker.jobs[0][1].body)
        worker.final(again=False)
        net.settle()
    assert order == [b"flood", b"flood", b"other", b"flood", b"other", b"flood"], (
        "the first crossed before the rest came"
    )


def test_a_cancelled_request_frees_room_in_the_bridge_window(net: Net) -> None:
    a = net.node("a")
    b = net.node("b", tuning=Tuning(bridge_window=2))
    net.bridge(a, b)
    worker, leaving, client = b.worker(b"s", credit=10), a.peer(), a.peer()
    net.settle()
    for number in range(2):
        leaving.ask(b"s", number)
    client.ask(b"s", "last")
    net.settle()
    assert len(worker.jobs) == 2
    leaving.close()
    net.settle()
    assert len(worker.jobs) == 3
    for _ in range(3):
        worker.final(again=False)
    net.settle()
    assert client.answers == [("last", "ok", b"done")]
    assert [one.credit for one in a.broker.workers] == [2]


def test_a_bridge_is_never_paused_but_refused(net: Net) -> None:
    a = net.node("a", policy=Policy(attempts=1))
    b = net.node("b", policy=Policy(max_outstanding=2))
    net.bridge(a, b)
    b.worker(b"s")
    client = a.peer()
    net.settle()
    for number in range(4):
        client.ask(b"s", number)
    net.settle()
    assert [(ref, outcome) for ref, outcome, _ in client.answers] == [(2, "gave-up"), (3, "gave-up")]
    assert all(not session.link.pauses for session in b.broker.sessions)


def test_requests_within_the_window_are_accepted_by_a_full_queue(net: Net) -> None:
    """The window bounds a bridge: a full line makes its requests wait, and costs them no attempt."""
    a = net.node("a", policy=Policy(attempts=1))
    b = net.node("b", policy=Policy(max_queue=2), tuning=Tuning(bridge_window=3))
    net.bridge(a, b)
    worker, near, far = b.worker(b"s"), a.peer(), b.peer()
    net.settle()
    for number in range(3):
        far.ask(b"s", number)
    assert far.link.pauses and b.broker.services[b"s"].queue_length == 2
    for number in range(5):
        near.ask(b"s", number)
    net.settle()
    assert b.broker.services[b"s"].queue_length == 5 and a.broker.services[b"s"].queue_length == 2
    for _ in range(8):
        worker.final()
        net.settle()
    assert [(ref, outcome) for ref, outcome, _ in near.answers] == [(number, "ok") for number in range(5)]
    assert len(far.answers) == 3 and not far.link.pauses


def test_bytes_within_the_window_are_accepted_at_the_memory_limit(net: Net) -> None:
    """The broker throttles its own clients. It cannot throttle a bridge, so it announces in advance how many bytes the bridge may send."""
    a = net.node("a", policy=Policy(attempts=1))
    b = net.node(
        "b", policy=Policy(max_held_bytes=100_000, max_client_bytes=100_000), tuning=Tuning(bridge_bytes=20_000)
    )
    net.bridge(a, b)
    worker, near, far = b.worker(b"s", credit=20), a.peer(), b.peer()
    net.settle()
    far.ask(b"s", "much", bytes(100_000))
    assert far.link.pauses
    for number in range(6):
        near.ask(b"s", number, bytes(9_000))
    net.settle()
    assert len(worker.jobs) == 4, "the third begins below the bound, and no fourth goes"
    assert a.broker.services[b"s"].queue_length == 3
    while worker.jobs:
        worker.final(again=False)
        net.settle()
    assert near.answers == [(number, "ok", b"done") for number in range(6)]
    assert b.broker.held_bytes == 0 and not far.link.pauses


def test_a_request_larger_than_the_window_crosses_on_its_own(net: Net) -> None:
    a, b = net.node("a"), net.node("b", tuning=Tuning(bridge_bytes=10_000))
    net.bridge(a, b)
    worker, client = b.worker(b"s", credit=20), a.peer()
    net.settle()
    for number in range(3):
        client.ask(b"s", number, bytes(50_000))
    for done in range(3):
        net.settle()
        assert len(worker.jobs) == 1 and a.broker.services[b"s"].queue_length == 2 - done
        worker.final(again=False)
    net.settle()
    assert len(client.answers) == 3


def test_bytes_of_what_is_cancelled_or_sent_back_may_go_again(net: Net) -> None:
    a, b = net.node("a"), net.node("b", tuning=Tuning(bridge_bytes=1))
    net.bridge(a, b)
    worker, leaving, client = b.worker(b"s", credit=20), a.peer(), a.peer()
    net.settle()
    leaving.ask(b"s", "cancelled", bytes(9_000))
    net.settle()
    for number in range(2):
        client.ask(b"s", number, bytes(9_000))
    net.settle()
    assert len(worker.jobs) == 1
    leaving.close()
    net.settle()
    assert len(worker.jobs) == 2
    worker.close()  # it is sent back and waits here, then there is another one
    net.settle()
    other = b.worker(b"s", credit=20)
    net.settle()
    while other.jobs:
        other.final(again=False)
        net.settle()
    assert client.answers == [(0, "ok", b"done"), (1, "ok", b"done")]


def test_a_bridge_that_exceeds_its_byte_window_is_refused(net: Net) -> None:
    a, b = net.node("a", policy=Policy(attempts=1)), net.node("b", tuning=Tuning(bridge_bytes=10_000))
    bridge = net.bridge(a, b)
    b.worker(b"s", credit=20)
    client = a.peer()
    net.settle()
    for end in bridge.ends:
        end.peer_bytes = 1 << 40
    for number in range(4):
        client.ask(b"s", number, bytes(9_000))
    net.settle()
    assert [(ref, outcome) for ref, outcome, _ in client.answers] == [(2, "gave-up"), (3, "gave-up")]
    assert all(not session.link.pauses for session in b.broker.sessions)


def test_a_request_within_the_window_is_also_forwarded(net: Net) -> None:
    a, b = net.node("a", policy=Policy(attempts=1)), net.node("b", policy=Policy(max_queue=1))
    net.bridge(a, b)
    first, second, near, far = b.worker(b"first"), b.worker(b"second"), a.peer(), b.peer()
    net.settle()
    for number in range(2):
        far.ask(b"second", number)
    near.ask(b"first", "passed on")
    net.settle()
    assert b.broker.services[b"second"].queue_length == 1
    first.forward(b"second")
    net.settle()
    assert near.answers == []
    for _ in range(3):
        second.final()
        net.settle()
    assert near.answers == [("passed on", "ok", b"done")]
