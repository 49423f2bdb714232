"""The client library with polydomo's own broker."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
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
    Result,
    SettingError,
    Worker,
    testing,
)
from polydomo.client.security import target, targets
from polydomo.limits import FRAME_HEAD, FREE_HEADS, MAX_BODY, MAX_BODY_FRAMES, MAX_MESSAGE, MAX_SERVICE_NAME
from polydomo.protocols import registry
from polydomo.server.settings.sections import LimitsSection
from polydomo.server.settings.settings import Settings
from polydomo.wire import frames
from tests.server.raw import dealer

WAIT = 60.0  # seconds: far more than anything here takes
LONG = 500.0  # ... for thousands of calls, on a machine that is stopped again and again
SHORT = 0.2  # a timeout that is meant to pass

every_protocol = pytest.mark.parametrize("protocol", registry.names())


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


@every_protocol
def test_call_and_stream(broker: testing.Broker, protocol: str) -> None:
    with serving(broker, protocol), Client(broker.url, protocol) as client:
        assert client.call("echo", "hello").text == "hello"
        assert client.call("echo").body == b""
        assert "".join(part.text for part in client.stream("count", "3")) == "012"
        assert client.call("count", "3") == ([b"012"] if protocol in ("memo", "emqp") else [b"0", b"1", b"2"])
        assert client.call("count", "0").body == b""
        assert client.offered("echo") is True
        assert client.offered("nothing") is False


@every_protocol
def test_check_asks_first_whether_a_worker_offers_the_service(broker: testing.Broker, protocol: str) -> None:
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
    many = 1500

    async def scenario() -> None:
        async with AsyncClient(broker.url, protocol, timeout=LONG, connect_timeout=LONG) as client:
            calls = [asyncio.ensure_future(client.call("echo", str(n))) for n in range(many)]
            await asyncio.to_thread(broker.wait_until, lambda server: server.broker.open_requests == many, LONG)
            await asyncio.to_thread(broker.wait_until, lambda server: len(server.connections) == 1, LONG)
            worker = AsyncWorker(broker.url, concurrency=8)

            @worker.service("echo")
            async def echo(call: Call) -> Call:
                return call

            async with worker:
                results = await asyncio.gather(*calls)
            assert [result.text for result in results] == [str(n) for n in range(many)]

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", ["mdx", "mdp1", "mdp2", "memo"])
def test_a_name_must_not_be_empty(broker: testing.Broker, protocol: str) -> None:
    with Client(broker.url, protocol) as client:
        for _ in range(2):
            with pytest.raises(NoSuchService, match=r"cannot (call a|express the) service"):
                client.call("")


def test_headers_reach_the_worker(broker: testing.Broker) -> None:
    worker = AsyncWorker(broker.url, "emqp")
    seen: list[dict[str, str]] = []

    @worker.service("mail")
    async def mail(call: Call) -> str:
        seen.append(call.headers)
        return "sent"

    async def scenario() -> None:
        async with worker, AsyncClient(broker.url, "emqp", timeout=WAIT) as client:
            assert (
                await client.call("mail", headers={"x-order": "17", "retry-count": 2, "guarantee": True})
            ).text == "sent"
            assert [part.text async for part in client.stream("mail", headers={"x-order": "18"})] == ["sent"]
            assert (await client.call("mail")).text == "sent"

    asyncio.run(scenario())
    own = [
        {name: value for name, value in headers.items() if name not in ("reply-requested", "timeout")}
        for headers in seen
    ]
    assert own == [{"x-order": "17", "retry-count": "2", "guarantee": ""}, {"x-order": "18"}, {}]


def test_the_header_retry_count_bounds_the_attempts(broker: testing.Broker) -> None:
    runs: list[str] = []

    def fail(call: Call) -> str:
        runs.append(call.text)
        raise CallFailed("no", "it never works")

    worker = Worker(broker.url, "emqp")
    worker.add("never", fail)
    with worker, Client(broker.url, "emqp", timeout=WAIT) as client:
        broker.wait_for("never")
        future = client.submit("never", "once", headers={"retry-count": 0})
        broker.wait_until(lambda server: bool(runs) and server.broker.open_requests == 0)
        assert runs == ["once"]
        future.cancel()


@pytest.mark.parametrize("protocol", ["mdx", "mdp1", "mdp2", "dcp", "memo"])
def test_headers_over_a_protocol_without_them_are_refused(protocol: str) -> None:
    with (
        Client("tcp://127.0.0.1:1", protocol) as client,
        pytest.raises(SettingError, match=r"has no headers; use eMQP"),
    ):
        client.call("echo", headers={"x": "y"})


def test_a_broker_that_does_not_read_slows_the_client_down() -> None:
    """40 MB for a broker that takes ten requests at a time: callers wait, everything arrives, nothing is dropped."""
    settings = Settings(limits=LimitsSection(max_outstanding=10))
    with testing.broker(settings=settings) as broker, serving(broker):

        async def scenario() -> None:
            async with AsyncClient(broker.url, timeout=60) as client:
                body = bytes(200_000)
                results = await asyncio.gather(*(client.call("echo", str(n), body) for n in range(200)))
                assert [result[0] for result in results] == [str(n).encode() for n in range(200)]

        asyncio.run(scenario())


def test_waiting_for_a_broker_that_does_not_read_ends_at_the_deadline() -> None:
    settings = Settings(limits=LimitsSection(max_outstanding=1))
    with testing.broker(settings=settings) as broker:

        async def scenario() -> None:
            async with AsyncClient(broker.url, timeout=WAIT) as client:
                await client.connect()
                calls = [client.call("nobody", bytes(1_000_000), timeout=1.0) for _ in range(40)]
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, CallTimeout)

        asyncio.run(scenario())


def test_no_such_service_is_reported_if_the_protocol_can() -> None:
    with testing.broker(settings=Settings(queue_expiry=0.1)) as broker:
        with Client(broker.url) as client, pytest.raises(NoSuchService, match="nothing"):
            client.call("nothing", "x")
        with Client(broker.url, "mdp2") as client:
            client.connect()
            with pytest.raises(CallTimeout):
                client.call("nothing", "x", timeout=0.5)


def test_a_stream_yields_each_part_as_it_arrives(broker: testing.Broker) -> None:
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
        client.connect()
        with pytest.raises(CallTimeout):
            list(client.stream("endless", timeout=0.5))  # on a slow machine maybe without a part
        over.set()


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


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_one_event_loop_after_the_other(broker: testing.Broker, protocol: str) -> None:
    with serving(broker):
        client = AsyncClient(broker.url, protocol, timeout=WAIT)

        async def call(text: str) -> str:
            return (await client.call("echo", text)).text

        assert [asyncio.run(call(text)) for text in "abc"] == ["a", "b", "c"]

        async def call_from_another_loop() -> None:
            await call("d")
            with pytest.raises(RuntimeError, match="one event loop at a time"):
                await asyncio.to_thread(asyncio.run, call("e"))

        asyncio.run(call_from_another_loop())
        asyncio.run(client.close())
        with pytest.raises(NotConnected, match="closed"):
            asyncio.run(call("f"))


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


def test_a_client_in_a_forked_process_raises_and_closes_without_waiting(broker: testing.Broker) -> None:
    script = """
import os, sys
from polydomo import Client
from polydomo.client.publisher import Publisher
client, publisher = Client(sys.argv[1]), Publisher(sys.argv[1])
assert not client.offered("echo")
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert not client.offered("echo")  # the first process has lost nothing
else:
    for call in (client.call, client.submit, lambda name: next(client.stream(name))):
        try:
            call("echo")
        except RuntimeError as error:
            print(error)
    assert not publisher.flush()
client.close()
publisher.close()
"""
    command = [sys.executable, "-W", "ignore", "-c", script, broker.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.splitlines()
        == ["polydomo-client was created before this process was forked; create a new one in this process"] * 3
    )


def test_ipc(tmp_path: Path) -> None:
    with testing.broker(f"ipc://{tmp_path}/broker.sock") as broker:
        assert broker.url.startswith("ipc://")
        for protocol in registry.names():
            with serving(broker, protocol), Client(broker.url, protocol) as client:
                assert client.call("echo", "hello").text == "hello"


def test_a_failure_reported_by_the_worker(broker: testing.Broker) -> None:
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
            outcomes = await asyncio.gather(
                *(client.call("nobody", "x", timeout=0.3) for _ in range(2000)), return_exceptions=True
            )
            assert all(isinstance(outcome, CallTimeout) for outcome in outcomes)

    asyncio.run(scenario())


def test_big_bodies(broker: testing.Broker) -> None:
    with serving(broker), Client(broker.url, timeout=60) as client:
        body = bytes(range(256)) * 64 * 1024  # 16 MiB
        assert client.call("echo", body, "and", body).frames == [body, b"and", body]


def test_bodies_that_no_broker_would_take(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        with pytest.raises(CallFailed, match="too-large"):
            client.call("echo", bytes(MAX_BODY), b"x")
        with pytest.raises(CallFailed, match="too-large"):
            client.call("echo", *[b"x"] * (MAX_BODY_FRAMES + 1))
        with pytest.raises(TypeError, match=r"json\.dumps"):
            client.call("echo", {"a": 1})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the name of a service must be str or bytes, not int"):
            client.call(1)  # type: ignore[arg-type]


def test_the_largest_body_passes(broker: testing.Broker) -> None:
    with serving(broker), Client(broker.url, timeout=WAIT) as client:
        for count in (FREE_HEADS, MAX_BODY_FRAMES):
            heads = FRAME_HEAD * (count - FREE_HEADS)
            body = [bytes(MAX_BODY - heads - count + 1), *[b"x"] * (count - 1)]
            assert client.call("echo", *body) == body


def test_the_largest_reply_of_any_worker_passes(broker: testing.Broker) -> None:
    """It fills the bound with the short envelope of MDP/0.1, and comes in a longer one."""
    service = b"s" * MAX_SERVICE_NAME
    with (
        dealer(("127.0.0.1", int(broker.url.rpartition(":")[2]))) as worker,
        Client(broker.url, protocol="mdx", timeout=WAIT) as client,
    ):
        worker.send(b"", b"MDPW01", b"\x01", service)
        broker.wait_for(service.decode())
        with futures.ThreadPoolExecutor(1) as beside:
            answer = beside.submit(client.call, service, "x")
            *_, token, _, _ = worker.receive()
            head = [b"", b"MDPW01", b"\x03", token, b""]
            body = bytes(MAX_MESSAGE - len(frames.join([*head, b""])) - 7)  # a long frame's length has seven bytes more
            assert len(frames.join([*head, body])) == MAX_MESSAGE
            worker.send(*head, body)
            assert answer.result() == [body]


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
def test_invalid_settings_are_rejected_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AsyncClient(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("to", [["tcp://127.0.0.1:5246"], ("tcp://127.0.0.1:5246",), 5246, b"tcp://127.0.0.1:5246"])
def test_an_address_that_is_not_a_string_is_a_setting_error(to: object) -> None:
    for kind in (Client, AsyncClient, Worker):
        with pytest.raises(SettingError, match="an address must be a string"):
            kind(to)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [float("nan"), -1.0])
def test_a_timeout_that_is_not_a_duration_is_rejected(timeout: float) -> None:
    with Client("tcp://127.0.0.1:1") as client, pytest.raises(SettingError, match="timeout: must be 0 seconds or more"):
        client.call("echo", timeout=timeout)


def test_without_an_address_the_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYDOMO_TO", raising=False)
    assert [str(address) for address in targets(None)] == ["tcp://127.0.0.1:5246"]
    monkeypatch.setenv("POLYDOMO_TO", "tcp://127.0.0.1:7, tcp://127.0.0.1:8")
    assert [str(address) for address in targets(None)] == ["tcp://127.0.0.1:7", "tcp://127.0.0.1:8"]
    assert [str(address) for address in targets("tcp://127.0.0.1:9")] == ["tcp://127.0.0.1:9"]
    monkeypatch.setenv("POLYDOMO_TO", "tcp://127.0.0.1:7")
    assert str(target(None)) == "tcp://127.0.0.1:7"
