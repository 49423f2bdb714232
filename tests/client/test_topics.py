"""``publish`` and ``subscribe`` of the clients, with our broker and with plain pyzmq sockets on the other side."""

import asyncio
import threading
import time

import pytest
import zmq

from polydomo import AsyncClient, CallTimeout, Client, ConnectionLost, NotConnected, SettingError, testing
from polydomo.protocols import registry

WAIT = 60.0
every_protocol = pytest.mark.parametrize("protocol", registry.names())


@every_protocol
def test_a_late_subscriber_gets_the_last_value_of_each_topic_first(broker: testing.Broker, protocol: str) -> None:
    with Client(broker.url, protocol) as client:
        client.publish("weather.oslo", "rain")
        client.publish("weather.oslo", "snow", b"-3")
        client.publish("weather.rome", "sun")
        client.publish("traffic.rome", "jam")
        wait_for_values(broker, 3)
        with client.subscribe("weather.") as subscription:
            topic, message = subscription.next(WAIT)
            assert (topic, message) == ("weather.oslo", [b"snow", b"-3"])
            topic, message = next(subscription)
            assert (topic, message.text) == ("weather.rome", "sun")
            client.publish("weather.rome", "wind")
            assert subscription.next(WAIT)[1].text == "wind"


def wait_for_values(broker: testing.Broker, count: int) -> None:
    broker.wait_until(lambda server: len(server.broker.publishing.last_values) == count)


def test_several_prefixes_and_all_topics(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        for topic in ("a.1", "b.1", "c.1"):
            client.publish(topic, "x")
        wait_for_values(broker, 3)
        with client.subscribe("a.", "c.") as some, client.subscribe() as every:
            assert [some.next(WAIT)[0] for _ in range(2)] == ["a.1", "c.1"]
            assert [every.next(WAIT)[0] for _ in range(3)] == ["a.1", "b.1", "c.1"]


def test_a_message_without_a_body_removes_the_last_value(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        client.publish("gone", "x")
        wait_for_values(broker, 1)
        client.publish("gone")
        wait_for_values(broker, 0)


def test_what_was_published_is_sent_when_the_client_is_closed(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        for n in range(1000):
            client.publish(f"many.{n}", b"x" * 1000)
    wait_for_values(broker, 1000)


def test_with_asyncio(broker: testing.Broker) -> None:
    async def main() -> list[str]:
        async with AsyncClient(broker.url) as client, client.subscribe("n.") as subscription:
            await client.publish("n.1", "one")
            found = [(await subscription.next(WAIT))[1].text]
            await client.publish("n.2", "two")
            async for topic, message in subscription:
                assert topic == "n.2"
                found.append(message.text)
                break
            return found

    assert asyncio.run(main()) == ["one", "two"]


def test_one_async_client_in_two_event_loops(broker: testing.Broker) -> None:
    client = AsyncClient(broker.url)

    async def publish(n: int) -> None:
        await client.publish(f"loop.{n}", "x")
        async with client.subscribe(f"loop.{n}") as subscription:
            await subscription.next(WAIT)

    asyncio.run(publish(1))
    asyncio.run(publish(2))
    wait_for_values(broker, 2)


def test_pyzmq_sockets_on_the_other_side(broker: testing.Broker) -> None:
    with zmq.Context() as context, Client(broker.url) as client:
        with context.socket(zmq.SUB) as subscriber:
            subscriber.connect(broker.url)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"ours.")
            subscriber.setsockopt(zmq.RCVTIMEO, int(WAIT * 1000))
            client.publish("ours.1", "frame", b"\x00\xff")
            assert subscriber.recv_multipart() == [b"ours.1", b"frame", b"\x00\xff"]
        with context.socket(zmq.XPUB) as publisher, client.subscribe("theirs.") as subscription:
            publisher.connect(broker.url)
            publisher.recv()
            publisher.send_multipart([b"theirs.1", b"one", b"two"])
            assert subscription.next(WAIT) == ("theirs.1", [b"one", b"two"])


def test_a_subscription_survives_a_crash_of_the_broker(broker: testing.Broker) -> None:
    with Client(broker.url) as client, client.subscribe("kept.") as subscription:
        client.publish("kept.1", "before")
        assert subscription.next(WAIT)[1].text == "before"
        broker.kill()
        broker.start()
        end = time.monotonic() + WAIT
        while True:  # the first message may go into a connection whose loss the client has not seen
            client.publish("kept.1", "after")
            try:
                assert subscription.next(WAIT / 60)[1].text == "after"
                return
            except CallTimeout:
                assert time.monotonic() < end


def test_close_ends_the_loop_of_another_thread(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        subscription = client.subscribe("x")
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.extend(topic for topic, _ in subscription))
        thread.start()
        client.publish("x", "1")
        broker.wait_until(lambda server: found == ["x"])
        subscription.close()
        thread.join(WAIT)
        assert not thread.is_alive()
        with pytest.raises(ConnectionLost, match="closed"):
            subscription.next()


def test_closing_the_client_ends_its_subscriptions(broker: testing.Broker) -> None:
    client = Client(broker.url)
    subscription = client.subscribe("x")
    thread = threading.Thread(target=lambda: list(subscription))
    thread.start()
    client.close()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_loop_that_is_busy_while_its_client_is_closed_ends(broker: testing.Broker) -> None:
    client = Client(broker.url)
    subscription = client.subscribe("x")
    client.close()
    assert list(subscription) == []


def test_a_timeout(broker: testing.Broker) -> None:
    with Client(broker.url) as client, client.subscribe("x") as subscription:
        with pytest.raises(CallTimeout, match=r"no message within 0\.05 s"):
            subscription.next(0.05)


def test_without_a_broker(broker: testing.Broker) -> None:
    broker.stop()
    with Client(broker.url, connect_timeout=0.2) as client:
        with pytest.raises(NotConnected):
            client.publish("x", "1")
        with pytest.raises(NotConnected):
            client.subscribe("x")
    with pytest.raises(NotConnected):
        client.publish("x", "1")


def test_the_first_address_that_answers_is_used(broker: testing.Broker) -> None:
    with testing.broker() as gone:
        dead = gone.url
    with Client(f"{dead},{broker.url}") as client, client.subscribe("x") as subscription:
        client.publish("x", "1")
        assert subscription.next(WAIT)[1].text == "1"


@pytest.mark.parametrize("topic", ["", "x" * 256, "monitor.mine"])
def test_topics_that_the_broker_would_drop(broker: testing.Broker, topic: str) -> None:
    with Client(broker.url) as client, pytest.raises(SettingError, match="topic"):
        client.publish(topic, "x")


def test_a_prefix_that_is_too_long(broker: testing.Broker) -> None:
    with Client(broker.url) as client, pytest.raises(SettingError, match="topic"):
        client.subscribe("x" * 256)
