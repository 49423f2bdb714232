"""Requests as they end, to subscribers of ``monitor.ended`` at any process, and to them only."""

import json
from typing import Any

from polydomo import limits
from tests.broker.net import Net, Peer
from tests.journal.recording.test_tap import tap_of

ENDED = b"monitor.ended"


def taken(peer: Peer) -> list[dict[str, Any]]:
    """What a subscriber has heard since the last call."""
    found = [json.loads(body) for topic, body in peer.heard if topic == ENDED]
    peer.heard.clear()
    return found


def test_requests_that_end_at_any_process_are_shown_to_subscribers() -> None:
    net = Net()
    a, b = net.processes("a", "b")
    taps = [tap_of(a), tap_of(b)]
    before = [node.broker.recorder for node in (a, b)]

    def tick() -> None:
        for _ in range(2):
            for tap in taps:
                tap.tick()
            net.settle()

    watcher, everything = a.peer(), a.peer()
    a.broker.subscribe(watcher, ENDED)
    a.broker.subscribe(everything, b"")
    tick()
    worker, client = b.worker(b"s"), b.peer()
    client.ask(b"s", 1)
    worker.final()
    tick()
    (told,) = taken(watcher)
    (row,) = told["requests"]
    assert told["skipped"] == 0
    assert (row["service"], row["outcome"], row["attempts"]) == ("s", "ok", 1)
    assert row["worker"].startswith("w") and row["client"].startswith("c") and row["total_us"] >= row["run_us"] >= 0
    assert not taken(everything), "all topics do not include requests"
    tick()
    assert taken(watcher) == []  # nothing ended

    a.broker.unsubscribe(watcher, ENDED)
    tick()
    assert [node.broker.recorder for node in (a, b)] == before, "it costs nothing without subscribers"


def test_a_request_that_crossed_names_the_process_of_its_worker() -> None:
    net = Net()
    a, b = net.processes("a", "b")
    tap = tap_of(a)
    watcher, client = a.peer(), a.peer()
    a.broker.subscribe(watcher, ENDED)
    tap.tick()
    worker = b.worker(b"s")
    net.settle()
    client.ask(b"s", 1)
    net.settle()
    worker.final()
    net.settle()
    tap.tick()
    (told,) = taken(watcher)
    (row,) = told["requests"]
    assert (row["outcome"], row["worker"], row["worker_name"]) == ("ok", None, "process 1")


def test_more_requests_than_a_tick_shows_are_counted() -> None:
    net = Net()
    (a,) = net.processes("a")
    tap = tap_of(a)
    watcher = a.peer()
    a.broker.subscribe(watcher, ENDED)
    tap.tick()
    worker, client = a.worker(b"s"), a.peer()
    for number in range(limits.TAP_ROWS + 5):
        client.ask(b"s", number)
        worker.final()
    tap.tick()
    net.settle()
    (told,) = taken(watcher)
    assert (len(told["requests"]), told["skipped"]) == (limits.TAP_ROWS, 5)
