"""The client library against a ROUTER of libzmq, played by hand, and against polydomo's own broker."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo import (
    AsyncClient,
    AsyncWorker,
    Call,
    CallFailed,
    CallTimeout,
    Client,
    ConnectionLost,
    NoSuchService,
    NotConnected,
    ProtocolViolation,
    Result,
    Retry,
    SettingError,
    Worker,
    testing,
)
from polydomo.limits import MAX_BODY_FRAMES, MAX_MESSAGE
from polydomo.protocols import registry
from polydomo.server.settings import Limits, Settings
from tests.client.zmq_broker import Router

WAIT = 10.0  # seconds: far more than anything here takes
SHORT = 0.2  # a timeout that is meant to pass

every_protocol = pytest.mark.parametrize("protocol", registry.names())


@pytest.fixture
def router() -> Iterator[Router]:
    with Router() as router:
        yield router


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        yield broker


@contextlib.contextmanager
def serving(broker: testing.Broker, protocol: str = "mdx", concurrency: int = 1) -> Iterator[Worker]:
    """A worker of ``echo`` and ``count``."""
    worker = Worker(broker.url, protocol, concurrency=concurrency)
    worker.add("echo", lambda call: call)

    @worker.service("count")
    def count(call: Call) -> Iterator[str]:
        for n in range(int(call.text)):
            yield str(n)

    with worker:
        broker.wait_for("echo", concurrency)
        broker.wait_for("count", concurrency)
        yield worker


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# --- by the letter, with libzmq at the other end -----------------------------------------------------------------------


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


def test_the_pool_is_bounded_and_waits_in_line(router: Router) -> None:
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


def test_a_given_up_place_goes_to_the_next_in_line(router: Router) -> None:
    with Client(router.url, "mdp1", max_connections=1) as client:
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


def test_no_call_is_repeated_unless_it_is_said_to_be_safe(router: Router) -> None:
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
    with Client(router.url, "mdp2", retries=Retry(attempts=2, first=0.01)) as client:
        future = client.submit("look", "up")
        for _ in range(2):
            router.expect()
            router.unbind()
            router.bind()
        with pytest.raises(ConnectionLost):
            future.result(WAIT)


def test_an_attempt_may_have_a_timeout_of_its_own(router: Router) -> None:
    with Client(router.url, "mdp1") as client:
        future = client.submit("look", "up", retries=Retry(attempts=2, first=0.01, attempt_timeout=SHORT))
        first, _ = router.expect()
        second, _ = router.expect()
        assert second != first
        router.send(second, b"", b"MDPC01", b"look", b"found")
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


def test_a_broker_that_says_goodbye(router: Router) -> None:
    with Client(router.url, "emqp") as client:
        future = client.submit("echo", "x")
        peer, _ = router.expect()
        router.send(peer, b"", b"eMQP/1.0", b"DISCONNECT", b"1")
        with pytest.raises(ConnectionLost, match="DISCONNECT"):
            future.result(WAIT)


def test_what_answers_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Client(url) as client:
            future = client.submit("echo", "x")
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                with pytest.raises(ProtocolViolation, match="not a ZMTP greeting"):
                    future.result(WAIT)


def test_what_answers_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with Client(url, connect_timeout=SHORT) as client, pytest.raises(NotConnected, match="no answer"):
            client.call("echo", "x")


@pytest.mark.parametrize("protocol", ["mdp1", "mdx"])
def test_nobody_is_there(protocol: str) -> None:
    with Client(f"tcp://127.0.0.1:{free_port()}", protocol, connect_timeout=SHORT) as client:
        with pytest.raises(NotConnected):
            client.connect()
        with pytest.raises(NotConnected):
            client.call("echo", "x")
    with Client(f"tcp://127.0.0.1:{free_port()}", protocol, timeout=SHORT) as client, pytest.raises(NotConnected):
        client.call("echo", "x")  # the deadline passes before the connection's time does


# --- with polydomo's own broker ----------------------------------------------------------------------------------------


@every_protocol
def test_call_and_stream(broker: testing.Broker, protocol: str) -> None:
    with serving(broker, protocol), Client(broker.url, protocol) as client:
        assert client.call("echo", "hello").text == "hello"
        assert client.call("echo").body == b""
        assert "".join(part.text for part in client.stream("count", "3")) == "012"
        assert client.offered("echo") is True
        assert client.offered("nothing") is False


@every_protocol
def test_asking_first_whether_anybody_offers_it(broker: testing.Broker, protocol: str) -> None:
    with serving(broker), Client(broker.url, protocol) as client:
        assert client.call("echo", "x", check=True).text == "x"
        with pytest.raises(NoSuchService, match="nothing"):
            client.call("nothing", "x", check=True)
        with pytest.raises(NoSuchService, match="nothing"):
            next(iter(client.stream("nothing", "x", check=True)))


@every_protocol
def test_broker_restarted(broker: testing.Broker, protocol: str) -> None:
    with serving(broker, protocol), Client(broker.url, protocol, timeout=600) as client:
        assert client.call("echo", "before").text == "before"
        open_call = client.submit("nobody", "x")
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        broker.kill()
        with pytest.raises(ConnectionLost):
            open_call.result(WAIT)
        broker.start()
        assert client.call("echo", "after", timeout=WAIT).text == "after"


@pytest.mark.parametrize("protocol", ["mdx", "dcp", "memo", "emqp"])
def test_thousands_outstanding_on_one_connection(broker: testing.Broker, protocol: str) -> None:
    many = 3000

    async def scenario() -> None:
        async with AsyncClient(broker.url, protocol, timeout=60) as client:
            calls = [asyncio.ensure_future(client.call("echo", str(n))) for n in range(many)]
            await asyncio.to_thread(broker.wait_until, lambda server: server.broker.open_requests == many)
            await asyncio.to_thread(broker.wait_until, lambda server: len(server.connections) == 1)
            worker = AsyncWorker(broker.url, concurrency=8)

            @worker.service("echo")
            async def echo(call: Call) -> Call:
                return call

            async with worker:
                results = await asyncio.gather(*calls)
            assert [result.text for result in results] == [str(n) for n in range(many)]

    asyncio.run(scenario())


def test_a_broker_that_does_not_read_slows_the_client_down() -> None:
    """40 MB for a broker that takes ten requests at a time: callers wait, everything arrives, nothing is dropped."""
    settings = Settings(limits=Limits(max_outstanding=10))
    with testing.broker(settings=settings) as broker, serving(broker):

        async def scenario() -> None:
            async with AsyncClient(broker.url, timeout=60) as client:
                body = bytes(200_000)
                results = await asyncio.gather(*(client.call("echo", str(n), body) for n in range(200)))
                assert [result[0] for result in results] == [str(n).encode() for n in range(200)]

        asyncio.run(scenario())


def test_waiting_for_a_broker_that_does_not_read_ends_at_the_deadline() -> None:
    settings = Settings(limits=Limits(max_outstanding=1))
    with testing.broker(settings=settings) as broker:

        async def scenario() -> None:
            async with AsyncClient(broker.url, timeout=1.0) as client:
                calls = [client.call("nobody", bytes(1_000_000)) for _ in range(40)]
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, CallTimeout)

        asyncio.run(scenario())


def test_no_worker_is_told_where_the_protocol_can() -> None:
    with testing.broker(settings=Settings(queue_expiry=0.1)) as broker:
        with Client(broker.url) as client, pytest.raises(NoSuchService, match="nothing"):
            client.call("nothing", "x")
        with Client(broker.url, "mdp2") as client, pytest.raises(CallTimeout):
            client.call("nothing", "x", timeout=0.5)


def test_a_stream_gives_each_part_as_it_comes(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    go_on = threading.Semaphore(0)

    @worker.service("slow")
    def slow(call: Call) -> Iterator[str]:
        for n in range(3):
            yield str(n)
            assert go_on.acquire(timeout=WAIT)

    with worker, Client(broker.url) as client:
        seen = []
        for part in client.stream("slow"):
            seen.append((part.text, part.final))
            go_on.release()
        assert seen == [("0", False), ("1", False), ("2", False)]  # an empty final is not a part


def test_a_stream_whose_only_part_is_the_final(broker: testing.Broker) -> None:
    with serving(broker), Client(broker.url) as client:
        assert list(client.stream("echo", "")) == [Result([b""])]
        assert [(part.text, part.final) for part in client.stream("echo", "x")] == [("x", True)]


def test_a_stream_that_outlives_its_client(broker: testing.Broker) -> None:
    with serving(broker):
        with Client(broker.url) as client:
            parts = client.stream("count", "100")
            assert next(parts).text == "0"
        del parts


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_leaving_a_stream_early(broker: testing.Broker, protocol: str) -> None:
    with serving(broker, protocol), Client(broker.url, protocol, max_connections=1) as client:
        for part in client.stream("count", "100"):
            if part.text == "2":
                break
        assert client.call("echo", "still here").text == "still here"
        broker.wait_until(lambda server: server.broker.open_requests == 0)


def test_a_stream_ends_with_its_deadline(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    over = threading.Event()

    @worker.service("endless")
    def endless(call: Call) -> Iterator[str]:
        while not over.wait(0.01):
            yield "tick"

    with worker, Client(broker.url) as client:
        parts = client.stream("endless", timeout=SHORT)
        assert next(parts).text == "tick"
        with pytest.raises(CallTimeout):
            list(parts)
        over.set()


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


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_cancelling_gives_the_call_up(broker: testing.Broker, protocol: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(broker.url, protocol, max_connections=1) as client:
            call = asyncio.ensure_future(client.call("later", "cancelled"))
            await asyncio.to_thread(broker.wait_until, lambda server: server.broker.open_requests == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            worker = AsyncWorker(broker.url)
            worker.add("later", lambda call: call)
            async with worker:
                assert (await client.call("later", "wanted")).text == "wanted"

    asyncio.run(scenario())


def test_many_threads_share_one_client(broker: testing.Broker) -> None:
    with serving(broker, concurrency=4), Client(broker.url) as client:
        wrong: list[str] = []

        def ask(name: str) -> None:
            for n in range(50):
                body = f"{name}-{n}"
                if client.call("echo", body).text != body:
                    wrong.append(body)

        threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_closing_ends_open_calls(broker: testing.Broker, protocol: str) -> None:
    client = Client(broker.url, protocol, max_connections=1)
    futures = [client.submit("nobody", str(n)) for n in range(2)]  # over MDP one of them waits in line
    broker.wait_until(lambda server: server.broker.open_requests >= 1)
    client.close()
    client.close()  # twice is once
    for future in futures:
        with pytest.raises(ConnectionLost):
            future.result(WAIT)
    with pytest.raises(NotConnected):
        client.call("echo")
    assert not [thread for thread in threading.enumerate() if thread.name == "polydomo-client"]


def test_an_unused_client_lets_its_thread_go(broker: testing.Broker) -> None:
    client = Client(broker.url)
    client.connect()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "polydomo-client"]
    del client
    thread.join(WAIT)
    assert not thread.is_alive()


def test_ipc(tmp_path: Path) -> None:
    with testing.broker(f"ipc://{tmp_path}/broker.sock") as broker:
        assert broker.url.startswith("ipc://")
        for protocol in registry.names():
            with serving(broker, protocol), Client(broker.url, protocol) as client:
                assert client.call("echo", "hello").text == "hello"


def test_a_failure_told_by_the_worker(broker: testing.Broker) -> None:
    worker = Worker(broker.url)

    @worker.service("refuse")
    def refuse(call: Call) -> None:
        raise CallFailed("quota", "come back tomorrow")

    with worker, Client(broker.url) as client:
        with pytest.raises(CallFailed, match="quota: come back tomorrow") as caught:
            client.call("refuse")
        assert (caught.value.code, caught.value.text) == ("quota", "come back tomorrow")
        with pytest.raises(CallFailed, match="quota"):
            list(client.stream("refuse", retries=5))  # the worker's own refusal is not repeated


def test_deadlines_are_kept_while_thousands_wait(broker: testing.Broker) -> None:
    async def scenario() -> None:
        async with AsyncClient(broker.url) as client:
            await client.call("mmi.service", "nobody")  # connected, so that only the deadline can end a call
            start = time.monotonic()
            outcomes = await asyncio.gather(
                *(client.call("nobody", "x", timeout=0.3) for _ in range(2000)), return_exceptions=True
            )
            assert time.monotonic() - start < WAIT
            assert all(isinstance(outcome, CallTimeout) for outcome in outcomes)

    asyncio.run(scenario())


def test_big_bodies(broker: testing.Broker) -> None:
    with serving(broker), Client(broker.url, timeout=60) as client:
        body = bytes(range(256)) * 64 * 1024  # 16 MiB
        assert client.call("echo", body, "and", body).frames == [body, b"and", body]


def test_bodies_that_no_broker_would_take(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        with pytest.raises(CallFailed, match="too-large"):
            client.call("echo", bytes(MAX_MESSAGE), b"x")
        with pytest.raises(CallFailed, match="too-large"):
            client.call("echo", *[b"x"] * (MAX_BODY_FRAMES + 1))
        with pytest.raises(TypeError, match=r"json\.dumps"):
            client.call("echo", {"a": 1})  # type: ignore[arg-type]


def test_the_most_frames_pass(broker: testing.Broker) -> None:
    with serving(broker), Client(broker.url) as client:
        assert client.call("echo", *["x"] * MAX_BODY_FRAMES) == [b"x"] * MAX_BODY_FRAMES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "127.0.0.1:5246"}, "tcp://127.0.0.1:5246"),
        ({"to": "tcp://*:5246"}, "only for listening"),
        ({"protocol": "amqp"}, "protocol"),
        ({"max_connections": 0}, "max_connections"),
    ],
)
def test_wrong_settings_are_told_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AsyncClient(**arguments)  # type: ignore[arg-type]
