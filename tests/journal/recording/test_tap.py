"""A tap shows the messages of all processes of a broker, to its subscribers only."""

import json
from typing import Any

from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.tap import Tap
from tests.broker.net import Net, Node, Peer

TAP = b"monitor.tap."


def tap_of(node: Node) -> Tap:
    return Tap(node.broker, node.broker.recorder, Run("", 0, 0.0))


def events(peer: Peer, service: bytes) -> list[Any]:
    """What a subscriber has heard of a service since the last call."""
    found = [json.loads(body)["event"] for topic, body in peer.heard if topic == TAP + service]
    peer.heard.clear()
    return found


def test_a_tap_shows_the_messages_of_all_processes() -> None:
    net = Net()
    a, b = net.processes("a", "b")
    taps = [tap_of(a), tap_of(b)]

    def tick() -> None:
        for _ in range(2):
            for tap in taps:
                tap.tick()
            net.settle()

    watcher, everything, neighbour = a.peer(), a.peer(), b.peer()
    a.broker.subscribe(watcher, TAP)
    a.broker.subscribe(everything, b"")
    b.broker.subscribe(neighbour, b"")
    tick()
    assert taps[0].watched and taps[1].watched
    worker, client = b.worker(b"s"), b.peer()
    client.ask(b"s", 1)
    worker.final()
    tick()
    assert events(watcher, b"s") == ["registered", "accepted", "dispatched", "final"]
    assert not events(everything, b"s") and not events(neighbour, b"s"), "all topics do not include taps"

    a.broker.unsubscribe(watcher, TAP)
    tick()
    assert not taps[0].watched and not taps[1].watched
    client.ask(b"s", 2)
    worker.final()
    tick()
    assert not events(watcher, b"s")


def test_a_process_that_starts_later_learns_of_the_tap() -> None:
    net = Net()
    a, b = net.processes("a", "b")
    watcher = a.peer()
    a.broker.subscribe(watcher, TAP + b"s")
    tap_of(a).tick()
    net.settle()
    assert b.broker.siblings.tapping
    for bridge in list(net.bridges):
        bridge.cut()
    assert not b.broker.siblings.tapping
    net.bridge(a, b, sibling=True)
    net.settle()
    assert b.broker.siblings.tapping
