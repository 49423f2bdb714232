"""Publications cross bridges between simulated brokers."""

import itertools
import json

import pytest

from polydomo.model.tuning import Tuning
from tests.broker.net import Net, Node


def crossing(net: Net, names: str, shape: str = "chain") -> list[Node]:
    tuning = Tuning(bridge_topics=[b"weather.", b"log."])
    nodes = [net.node(name, tuning=tuning) for name in names]
    pairs = list(itertools.pairwise(nodes)) + ([(nodes[-1], nodes[0])] if shape == "ring" else [])
    for near, far in pairs:
        net.bridge(near, far)
    net.settle()
    return nodes


@pytest.mark.parametrize("shape", ["chain", "ring"])
def test_values_cross_once_by_prefix_also_in_a_ring(net: Net, shape: str) -> None:
    nodes = crossing(net, "abcd", shape)
    listeners = [node.peer() for node in nodes]
    for listener in listeners:
        listener.broker.subscribe(listener, b"weather")
        listener.broker.subscribe(listener, b"news")
    publisher = nodes[1].peer()
    for number in range(5):
        nodes[1].broker.publish(publisher, b"weather.oslo", b"\x00\x01%d" % number)
        nodes[1].broker.publish(publisher, b"news.none", b"\x00\x01%d" % number)
        net.settle()
    for node, listener in zip(nodes, listeners, strict=True):
        heard = [message for message in listener.heard if message[0] == b"weather.oslo"]
        assert heard == [(b"weather.oslo", b"%d" % number) for number in range(5)], node.name
        assert len(listener.heard) == (10 if node is nodes[1] else 5)
        assert (node.broker.publishing.last_values.get(b"news.none") is not None) is (node is nodes[1])


def test_last_values_cross_a_bridge_that_opens_later(net: Net) -> None:
    tuning = Tuning(bridge_topics=[b"weather."])
    a, b = net.node("a", tuning=tuning), net.node("b")
    publisher = a.peer()
    a.broker.publish(publisher, b"weather.oslo", b"\x00\x04snow")
    b.broker.publish(b.peer(), b"weather.bergen", b"\x00\x04rain")
    net.bridge(a, b)
    net.settle()
    assert {value.topic for node in (a, b) for value in node.broker.publishing.last_values.under(b"", 9)} == {
        b"weather.oslo",
        b"weather.bergen",
    }
    assert len(a.broker.publishing.last_values) == len(b.broker.publishing.last_values) == 2
    net.bridge(b, a)  # a second one brings nothing new
    listener = b.peer()
    b.broker.subscribe(listener, b"weather.")
    net.settle()
    assert len(listener.heard) == 2


def test_log_records_cross_with_the_broker_they_come_from(net: Net) -> None:
    a, b = crossing(net, "ab")
    record = json.dumps({"message": "hello", "request": 7}).encode()
    a.broker.request(a.peer(), b"nobody", b"", None)
    a.broker.publish(a.peer(), b"log.x", b"\x00" + bytes((len(record),)) + record)
    net.settle()
    (here,) = a.broker.publishing.log_records.records
    (there,) = b.broker.publishing.log_records.records
    assert (here.broker, there.broker) == ("", a.identity.decode())
    assert there.message == "hello" and there.request == 0


def test_monitor_topics_do_not_cross_bridges(net: Net) -> None:
    tuning = Tuning(bridge_topics=[b""])
    a, b = net.node("a", tuning=tuning), net.node("b", tuning=tuning)
    net.bridge(a, b)
    net.settle()
    listener = b.peer()
    b.broker.subscribe(listener, b"monitor.worker.")
    before = len(listener.heard)
    a.worker(b"s")
    net.settle()
    assert len(listener.heard) == before
