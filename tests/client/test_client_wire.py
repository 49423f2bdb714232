"""The client library on the wire, with a scripted ROUTER of libzmq as the broker, or without one."""

import contextlib
import socket
import threading
import time
from concurrent import futures
from typing import Any

import pytest
import zmq

from polydomo import (
    CallTimeout,
    Client,
    ConnectionLost,
    NotConnected,
    ProtocolViolation,
    Retries,
)
from polydomo.client import pool
from polydomo.client.connection import BrokerConnection, connect
from polydomo.protocols import registry
from tests.client.zmq_broker import Router
from tests.ports import refusing_port

WAIT = 60.0  # seconds: far more than anything here takes
SHORT = 0.2  # a timeout that is meant to pass

every_protocol = pytest.mark.parametrize("protocol", registry.names())


def test_mdp1_through_libzmq(router: Router) -> None:
    with Client(router.url, "mdp1") as client:
        future = client.submit("echo", "héllo", b"\x00raw", bytearray(b"ba"), memoryview(b"mv"))
        peer, frames = router.expect()
        assert frames == [b"", b"MDPC01", b"echo", "héllo".encode(), b"\x00raw", b"ba", b"mv"]
        router.send(peer, b"", b"MDPC01", b"echo", b'{"a":', b" 1}")
        result = future.result(WAIT)
        assert result == [b'{"a":', b" 1}"]
        assert (result.body, result.text, result.json(), result.final) == (b'{"a": 1}', '{"a": 1}', {"a": 1}, True)
        future = client.submit("echo")
        again, frames = router.expect()
        assert (again, frames) == (peer, [b"", b"MDPC01", b"echo", b""])  # the same connection, free again


def test_mdp2_partials_through_libzmq(router: Router) -> None:
    with Client(router.url, "mdp2") as client:
        future = client.submit("count", "2")
        peer, frames = router.expect()
        assert frames == [b"MDPC02", b"\x01", b"count", b"2"]
        router.send(peer, b"MDPC02", b"\x02", b"count", b"0")
        router.send(peer, b"MDPC02", b"\x02", b"count", b"1")
        router.send(peer, b"MDPC02", b"\x03", b"count", b"end")
        assert future.result(WAIT) == [b"0", b"1", b"end"]  # partials in front of the final


def test_a_late_reply_is_not_taken_for_the_next(router: Router) -> None:
    with Client(router.url, "mdp2") as client:
        client.connect()
        with pytest.raises(CallTimeout, match="slow"):
            client.call("slow", "first", timeout=SHORT)
        first, frames = router.expect()
        assert frames[-1] == b"first"
        future = client.submit("slow", "second")
        second, frames = router.expect()
        assert frames[-1] == b"second"
        assert second != first
        with contextlib.suppress(Exception):  # the connection is gone, and libzmq may know already
            router.send(first, b"MDPC02", b"\x03", b"slow", b"late")
        router.send(second, b"MDPC02", b"\x03", b"slow", b"in time")
        assert future.result(WAIT).text == "in time"


def test_the_pool_is_bounded_and_further_calls_are_queued(router: Router) -> None:
    with Client(router.url, "mdp2", max_connections=2) as client:
        futures = {n: client.submit("echo", str(n)) for n in range(2)}
        peers = {frames[-1]: peer for peer, frames in (router.expect(), router.expect())}
        assert len(set(peers.values())) == 2
        with pytest.raises(CallTimeout, match="all 2 connections were busy"):
            client.call("echo", "no room", timeout=SHORT)
        third = client.submit("echo", "third")
        router.send(peers[b"1"], b"MDPC02", b"\x03", b"echo", b"one")
        assert futures[1].result(WAIT).text == "one"
        peer, frames = router.expect()
        assert (peer, frames[-1]) == (peers[b"1"], b"third")  # in the place that became free
        router.send(peer, b"MDPC02", b"\x03", b"echo", b"three")
        router.send(peers[b"0"], b"MDPC02", b"\x03", b"echo", b"zero")
        assert third.result(WAIT).text == "three"
        assert futures[0].result(WAIT).text == "zero"


def test_a_cancelled_place_goes_to_the_next_queued_call(router: Router) -> None:
    with Client(router.url, "mdp1", max_connections=1) as client:
        client.connect()
        first = client.submit("echo", "first", timeout=SHORT)
        router.expect()
        second = client.submit("echo", "second")
        with pytest.raises(CallTimeout):
            first.result(WAIT)
        peer, frames = router.expect()
        assert frames[-1] == b"second"
        router.send(peer, b"", b"MDPC01", b"echo", b"done")
        assert second.result(WAIT).text == "done"


def test_broker_killed_ends_each_open_call_at_once(router: Router) -> None:
    with Client(router.url, "mdp2", timeout=600) as client:
        futures = [client.submit("echo", str(n)) for n in range(3)]
        for _ in futures:
            router.expect()
        router.unbind()
        for future in futures:
            with pytest.raises(ConnectionLost):
                future.result(WAIT)


def test_no_call_is_repeated_unless_it_is_declared_safe(router: Router) -> None:
    with Client(router.url, "mdp2") as client:
        future = client.submit("pay", "once")
        router.expect()
        router.unbind()
        with pytest.raises(ConnectionLost):
            future.result(WAIT)
        router.bind()
        future = client.submit("pay", "another")
        peer, frames = router.expect()
        assert frames[-1] == b"another"  # and not "once", which was sent before
        router.send(peer, b"MDPC02", b"\x03", b"pay", b"paid")
        assert future.result(WAIT).text == "paid"


def test_a_safe_call_is_sent_again(router: Router) -> None:
    with Client(router.url, "mdp2") as client:
        future = client.submit("look", "up", retries=3)
        router.expect()
        router.unbind()
        router.bind()
        peer, frames = router.expect()
        assert frames == [b"MDPC02", b"\x01", b"look", b"up"]
        router.send(peer, b"MDPC02", b"\x03", b"look", b"found")
        assert future.result(WAIT).text == "found"


def test_retries_run_out(router: Router) -> None:
    with Client(router.url, "mdp2", retries=Retries(attempts=2, first=0.01)) as client:
        future = client.submit("look", "up")
        for _ in range(2):
            router.expect()
            router.unbind()
            router.bind()
        with pytest.raises(ConnectionLost):
            future.result(WAIT)


def test_an_attempt_may_have_a_timeout_of_its_own(router: Router) -> None:
    with Client(router.url, "mdp1") as client:
        retries = Retries(attempts=1000, first=0.01, attempt_timeout=SHORT)
        future = client.submit("look", "up", retries=retries, timeout=WAIT)
        first, _ = router.expect()
        while not future.done():
            later, _ = router.expect()  # the second, or where this answer comes too late on a slow machine, another
            assert later != first
            with contextlib.suppress(zmq.ZMQError):  # too late: that attempt's connection is gone
                router.send(later, b"", b"MDPC01", b"look", b"found")
            futures.wait([future], SHORT)
        assert future.result(WAIT).text == "found"


@pytest.mark.parametrize(
    "reply", [[b"nonsense"], [b"MDPC02", b"\x03", b"other", b"x"], [b"MDPC02", b"\x09", b"echo", b"x"]]
)
def test_a_broker_that_breaks_the_protocol(router: Router, reply: list[bytes]) -> None:
    with Client(router.url, "mdp2") as client:
        future = client.submit("echo", "x")
        bad, _ = router.expect()
        router.send(bad, *reply)
        with pytest.raises(ProtocolViolation):
            future.result(WAIT)
        future = client.submit("echo", "again")
        peer, _ = router.expect()
        assert peer != bad
        router.send(peer, b"MDPC02", b"\x03", b"echo", b"fine")
        assert future.result(WAIT).text == "fine"


def test_a_broker_that_disconnects(router: Router) -> None:
    with Client(router.url, "emqp") as client:
        future = client.submit("echo", "x")
        peer, _ = router.expect()
        router.send(peer, b"", b"eMQP/1.0", b"DISCONNECT", b"1")
        with pytest.raises(ConnectionLost, match="DISCONNECT"):
            future.result(WAIT)


def test_the_peer_is_not_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Client(url) as client:
            future = client.submit("echo", "x")
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                with pytest.raises(ProtocolViolation, match="not a ZMTP greeting"):
                    future.result(WAIT)


def test_the_peer_sends_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with (
            Client(url, connect_timeout=SHORT) as client,
            pytest.raises(NotConnected, match="did not answer") as caught,
        ):
            client.call("echo", "x")
    assert caught.value.accepted and not caught.value.refused


@pytest.mark.parametrize("protocol", ["mdp1", "mdx"])
def test_no_program_listens(protocol: str) -> None:
    with refusing_port() as port:
        with Client(f"tcp://127.0.0.1:{port}", protocol, connect_timeout=SHORT) as client:
            with pytest.raises(NotConnected):
                client.connect()
            with pytest.raises(NotConnected):
                client.call("echo", "x")
        with Client(f"tcp://127.0.0.1:{port}", protocol, timeout=SHORT) as client, pytest.raises(NotConnected):
            client.call("echo", "x")  # the deadline passes before the connection's time does


@pytest.mark.parametrize("protocol", ["mdp1", "mdx"])
def test_refused_connections_are_retried_at_increasing_intervals(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float] = []

    async def counted(*arguments: Any) -> BrokerConnection:
        attempts.append(time.monotonic())
        return await connect(*arguments)

    monkeypatch.setattr(pool, "connect", counted)
    with refusing_port() as port, Client(f"tcp://127.0.0.1:{port}", protocol, refused_timeout=3.0) as client:
        with pytest.raises(NotConnected) as failed:
            client.call("echo", "x")
    assert failed.value.refused, "no program listens there"
    assert 2 <= len(attempts) <= 20


def test_only_a_refused_connection_has_the_shorter_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Client(url, connect_timeout=2 * SHORT, refused_timeout=0.001) as client:
            started = time.monotonic()
            with pytest.raises(NotConnected) as failed:
                client.call("echo", "x")
            assert time.monotonic() - started >= SHORT, "the peer accepts connections, but does not answer"
            assert not failed.value.refused


def test_a_stream_broken_by_the_broker(router: Router) -> None:
    with Client(router.url, "mdp2", retries=5) as client:
        parts = client.stream("count")
        taken: list[str] = []
        thread = threading.Thread(target=lambda: taken.append(next(parts).text))
        thread.start()
        peer, _ = router.expect()
        router.send(peer, b"MDPC02", b"\x02", b"count", b"0")
        thread.join(WAIT)
        assert taken == ["0"]
        router.unbind()
        with pytest.raises(ConnectionLost):  # a part has been seen: no second stream behind it
            next(parts)


def test_a_stream_is_repeated_while_nothing_of_it_was_seen(router: Router) -> None:
    with Client(router.url, "mdp2") as client:
        taken: list[str] = []
        thread = threading.Thread(target=lambda: taken.extend(part.text for part in client.stream("count", retries=3)))
        thread.start()
        router.expect()
        router.unbind()
        router.bind()
        peer, _ = router.expect()
        router.send(peer, b"MDPC02", b"\x03", b"count", b"all")
        thread.join(WAIT)
        assert taken == ["all"]
