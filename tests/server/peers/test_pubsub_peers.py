"""PUB and SUB sockets of libzmq: what the one publishes the other gets, through the broker."""

from pathlib import Path

from tests.server.harness import Broker, Socket, wait_for


def test_a_sub_socket_receives_what_a_pub_socket_publishes(tmp_path: Path) -> None:
    with (
        Broker(tmp_path) as broker,
        Socket("SUB", broker.url, "--subscribe=t.news.", "--subscribe=t.sport") as reader,
        Socket("SUB", broker.url, "--subscribe=t.") as everything,
        Socket("PUB", broker.url) as writer,
    ):
        wait_for(lambda: kinds(broker).count("sub") == 2, "both subscribers")
        # a PUB drops what it publishes before it has our subscription: it publishes until something comes through
        wait_for(lambda: publish(writer, everything, b"t.start"), "the beginning")
        sent = [[b"t.news.one", b"1"], [b"t.newspaper", b"not that"], [b"t.sport", b"2", b"", b"3"], [b"t.weather"]]
        for message in sent:
            writer.send(*message)
        assert [reader.receive(), reader.receive()] == [sent[0], sent[2]]
        while (first := everything.receive()) == [b"t.start"]:
            pass
        assert [first, *(everything.receive() for _ in range(3))] == sent
        assert not broker.complained()


def kinds(broker: Broker) -> list[str]:
    return [row["protocol"] for row in broker.ask("clients")]


def publish(writer: Socket, reader: Socket, *frames: bytes) -> bool:
    """Publishes; returns whether a message has arrived already."""
    writer.send(*frames)
    return reader.has_something()


def test_nothing_is_sent_to_subscribers_that_have_disconnected(tmp_path: Path) -> None:
    with (
        Broker(tmp_path) as broker,
        Socket("PUB", broker.url) as writer,
        Socket("SUB", broker.url, "--subscribe=t.") as stays,
    ):
        with Socket("SUB", broker.url, "--subscribe=t.") as goes:
            wait_for(lambda: publish(writer, goes, b"t.x"), "a message")
            assert goes.end() == 0
        wait_for(lambda: kinds(broker).count("sub") == 1, "its end")
        writer.send(b"t.last")
        while stays.receive() != [b"t.last"]:
            pass
        assert not broker.complained()
