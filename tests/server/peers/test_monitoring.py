"""Watching a broker with a plain SUB socket of pyzmq."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

import polydomo
from polydomo import testing

PATIENCE = 60_000  # milliseconds


@contextmanager
def watching(url: str, *prefixes: bytes) -> "Iterator[zmq.Socket[bytes]]":
    context = zmq.Context()
    sub = context.socket(zmq.SUB)
    sub.linger = 0
    for prefix in prefixes:
        sub.subscribe(prefix)
    sub.connect(url)
    try:
        yield sub
    finally:
        context.destroy()


def hear(sub: "zmq.Socket[bytes]") -> tuple[str, dict[str, Any]]:
    assert sub.poll(PATIENCE), "nothing was heard"
    topic, body = sub.recv_multipart()
    return topic.decode(), json.loads(body)


def until(sub: "zmq.Socket[bytes]", topic: str, state: str) -> dict[str, Any]:
    while True:
        heard, row = hear(sub)
        if (heard, row["state"]) == (topic, state):
            return row


def test_workers_and_services_come_and_go() -> None:
    with testing.broker() as broker, watching(broker.url, b"monitor.worker.", b"monitor.service.") as sub:
        broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 2)
        worker = polydomo.Worker(broker.url)
        worker.add("shout", lambda call: call.text.upper())
        with worker:
            row = until(sub, "monitor.worker.w1", "ready")
            assert (row["services"], row["protocol"]) == (["shout"], "mdx")
            assert row["cause"] == f"registered from {row['peer']}"
            assert until(sub, "monitor.service.shout", "ready")["cause"] == "worker w1 offers it"
        assert until(sub, "monitor.worker.w1", "left")["cause"]
        until(sub, "monitor.service.shout", "left")


def test_a_late_monitor_gets_all_states_first_and_then_figures() -> None:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("shout", lambda call: call.text.upper())
        with worker, polydomo.Client(broker.url) as client:
            client.call("shout", "x")
            with watching(broker.url, b"monitor.") as sub:
                first: dict[str, dict[str, Any]] = {}
                # figures come once a second, and may come between the states
                while not {"monitor.figures", "monitor.worker.w1", "monitor.service.shout", "monitor.client.c1"} <= set(
                    first
                ):
                    topic, row = hear(sub)
                    first[topic] = row
                assert first["monitor.worker.w1"]["state"] == "ready"
                assert first["monitor.service.shout"]["state"] == "ready"
                assert {topic for topic in first if topic.startswith("monitor.client.")} >= {"monitor.client.c1"}
                topic, row = hear(sub)
                while topic != "monitor.figures":
                    topic, row = hear(sub)
                assert [service["name"] for service in row["services"]] == ["shout"]


def test_only_the_broker_publishes_monitor_topics() -> None:
    with testing.broker() as broker, watching(broker.url, b"monitor.worker.", b"news.") as sub:
        broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 2)
        context = zmq.Context()
        pub = context.socket(zmq.PUB)
        pub.linger = 1000
        pub.connect(broker.url)
        broker.wait_until(lambda server: any(session.protocol == "pub" for session in server.broker.sessions))
        try:
            while not sub.poll(50):  # a PUB sends nothing until it knows that it is listened to
                pub.send_multipart([b"monitor.worker.w1", b"{}"])
                pub.send_multipart([b"news.today", b'{"state": "true"}'])
            assert hear(sub)[0] == "news.today"
        finally:
            context.destroy()
