"""The worker library with polydomo's own broker."""

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from polydomo import (
    AsyncClient,
    AsyncWorker,
    Call,
    CallFailed,
    CallTimeout,
    Client,
    SettingError,
    Worker,
    testing,
)
from polydomo.protocols import registry
from polydomo.protocols.dcp.ends import DcpWorkerEnd
from polydomo.server.settings.settings import Settings
from polydomo.worker.beat_thread import LOOP_BLOCKED, NO_PYTHON
from tests.worker.services import answer

WAIT = 60.0  # seconds: far more than anything here takes

READY, BEAT, LEAVE = b"\x01", b"\x05", b"\x06"  # MDP/0.2

every_protocol = pytest.mark.parametrize("protocol", registry.names())


@pytest.mark.parametrize("protocol", ["mdx", "mdp1", "mdp2", "dcp", "emqp"])
def test_beat_sets_the_interval_and_the_patience(protocol: str) -> None:
    usual, worker = registry.worker_end(protocol), AsyncWorker(protocol=protocol, beat=0.5)
    end = worker._make_end()
    assert end.interval == 0.5
    assert end.patience / end.interval == pytest.approx(usual.patience / usual.interval)


@pytest.mark.parametrize("beat", [0.0, -1.0, float("nan")])
def test_an_invalid_heartbeat(beat: float) -> None:
    with pytest.raises(SettingError, match="beat"):
        Worker(beat=beat)


class Kinds:
    """Functions of every kind; each answers "a" and "b"."""

    @staticmethod
    def plain(call: Call) -> list[str | bytes]:
        return ["a", b"b"]

    @staticmethod
    async def coroutine(call: Call) -> tuple[str, bytes]:
        await asyncio.sleep(0)
        return ("a", b"b")

    @staticmethod
    def generator(call: Call) -> Iterator[str]:
        yield "a"
        yield "b"

    @staticmethod
    def generator_that_returns(call: Call) -> Generator[str, None, str]:
        yield "a"
        return "b"

    @staticmethod
    async def async_generator(call: Call) -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(0)
        yield "b"

    @staticmethod
    def returns_awaitable(call: Call) -> Any:
        return Kinds.coroutine(call)

    partial = functools.partial(lambda first, call: [first, "b"], "a")

    class Object:
        async def __call__(self, call: Call) -> list[str]:
            asyncio.get_running_loop()
            return ["a", "b"]

    an_object = Object()


KINDS = "plain coroutine generator generator_that_returns async_generator returns_awaitable partial an_object".split()


@every_protocol
def test_functions_of_every_kind(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol)
    for kind in KINDS:
        worker.add(kind, getattr(Kinds, kind))
    with worker, Client(broker.url, timeout=WAIT) as client:
        for kind in KINDS:
            assert client.call(kind).text == "ab", kind
            assert "".join(part.text for part in client.stream(kind)) == "ab", kind


def test_arguments_and_return_values_of_a_function(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    seen: list[Call] = []

    @worker.service("give")
    def give(call: Call) -> object:
        seen.append(call)
        values: dict[str, object] = {
            "none": None,
            "empty": [],
            "bytes": b"\xff",
            "text": "ł",
            "call": call,
            "array": bytearray(b"x"),
        }
        return values.get(call[0].decode(), 42)

    with worker, Client(broker.url) as client:
        assert client.call("give", "none").body == b""
        assert client.call("give", "empty").body == b""
        assert client.call("give", "bytes") == [b"\xff"]
        assert client.call("give", "text").text == "ł"
        assert client.call("give", "array") == [b"x"]
        assert client.call("give", "call", "2") == [b"call", b"2"]
        assert (seen[-1].service, seen[-1].frames, seen[-1].body) == ("give", [b"call", b"2"], b"call2")
        with pytest.raises(
            CallFailed, match="a service function must return bytes, str, a list of those, or None, not int"
        ):
            client.call("give", "something else")


def test_failures_over_mdx(broker: testing.Broker) -> None:
    worker = Worker(broker.url)

    @worker.service("plain")
    def plain(call: Call) -> None:
        raise KeyError("x")

    @worker.service("async")
    async def coroutine(call: Call) -> None:
        raise KeyError("x")

    @worker.service("exit")
    def leave(call: Call) -> None:
        raise SystemExit(3)

    @worker.service("stop")
    def stop(call: Call) -> None:
        raise StopIteration

    @worker.service("async-exit")
    async def leave_from_the_loop(call: Call) -> None:
        raise SystemExit(3)

    @worker.service("cancelled")
    async def awaits_what_was_cancelled(call: Call) -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    @worker.service("assert")
    def without_a_word(call: Call) -> None:
        raise AssertionError

    @worker.service("exception-as-text")
    def odd(call: Call) -> None:
        raise CallFailed("odd", KeyError("x"))  # type: ignore[arg-type]

    @worker.service("midway")
    def midway(call: Call) -> Iterator[str]:
        yield "one"
        raise CallFailed("quota", "no more")

    with worker, Client(broker.url) as client:
        for service in ("plain", "async"):
            with pytest.raises(CallFailed, match="failed: KeyError: 'x'"):
                client.call(service)
        for service in ("exit", "async-exit"):
            with pytest.raises(CallFailed, match="SystemExit: 3"):
                client.call(service)
        observed = {
            "cancelled": "failed: CancelledError",
            "assert": "failed: AssertionError",
            "exception-as-text": "odd: 'x'",
        }
        for service, failure in observed.items():
            for _ in range(2):  # the first has not cost the worker its place
                with pytest.raises(CallFailed) as caught:
                    client.call(service)
                assert str(caught.value) == failure
        with pytest.raises(CallFailed, match="StopIteration"):
            client.call("stop")
        parts = client.stream("midway")
        assert next(parts).text == "one"
        with pytest.raises(CallFailed, match="quota: no more"):
            next(parts)
        with pytest.raises(CallFailed, match="KeyError"):
            client.call("plain")  # still there


@pytest.mark.parametrize("protocol", ["mdp1", "mdp2", "dcp", "memo", "emqp"])
def test_failures_elsewhere_are_attempts(protocol: str) -> None:
    with testing.broker(settings=Settings(attempts=3)) as broker:
        worker = Worker(broker.url, protocol)
        tries: list[str] = []

        @worker.service("third-time")
        def third_time(call: Call) -> str:
            tries.append(call.text)
            if len(tries) < 3:
                raise ValueError("not yet")
            return "lucky"

        @worker.service("never")
        def never(call: Call) -> str:
            raise ValueError("no")

        with worker, Client(broker.url, timeout=WAIT) as client:
            assert client.call("third-time", "x").text == "lucky"
            assert tries == ["x", "x", "x"]
            with pytest.raises(CallFailed, match="gave-up"):
                client.call("never", "x")


@every_protocol
def test_concurrency(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=3)
    together = threading.Barrier(3)

    @worker.service("meet")
    def meet(call: Call) -> str:
        together.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        broker.wait_for("meet", 3)
        futures = [client.submit("meet", str(n)) for n in range(6)]
        assert [future.result().text for future in futures] == [str(n) for n in range(6)]


@every_protocol
def test_one_at_a_time(broker: testing.Broker, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DcpWorkerEnd, "interval", 0.005)  # each of its beats asks for one more, also while it is busy
    worker = Worker(broker.url, protocol)
    alone = threading.Lock()

    @worker.service("alone")
    def work(call: Call) -> str:
        assert alone.acquire(blocking=False)
        threading.Event().wait(0.02)
        alone.release()
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        futures = [client.submit("alone", str(n)) for n in range(8)]
        assert [future.result().text for future in futures] == [str(n) for n in range(8)]


@pytest.mark.parametrize("protocol", ["dcp", "memo", "emqp"])
def test_several_services_on_one_connection(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol)
    worker.add("one", lambda call: "1")
    worker.add("two", lambda call: "2")
    with worker, Client(broker.url) as client:
        broker.wait_for("two")
        broker.wait_until(lambda server: len(server.connections) == 1)
        assert client.call("one").text == "1"
        assert client.call("two").text == "2"


def test_the_default_queue_of_emqp(broker: testing.Broker) -> None:
    worker = Worker(broker.url, "emqp")
    worker.add("default", lambda call: f"default for {call.service}")
    with worker, Client(broker.url, "emqp") as client:
        broker.wait_for("default")
        assert client.call("anything").text == "default for anything"


def test_headers_of_emqp(broker: testing.Broker) -> None:
    worker = Worker(broker.url, "emqp")
    worker.add("headers", lambda call: ",".join(sorted(call.headers)))
    with worker, Client(broker.url, "emqp", timeout=7) as client:
        assert client.call("headers").text == "reply-requested,timeout"


@every_protocol
def test_broker_killed_and_restarted(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=2)
    worker.add("echo", answer)
    # With retries: it may send a call before it has seen that the connection is lost.
    with worker, Client(broker.url, timeout=WAIT, retries=3) as client:
        for _ in range(3):
            broker.wait_for("echo", 2)
            assert client.call("echo", "x").text == "x"
            broker.kill()
            broker.start()
        broker.wait_for("echo", 2)
        broker.stop()  # this time with DISCONNECT
        broker.start()
        broker.wait_for("echo", 2)
        assert client.call("echo", "x").text == "x"


def test_waits_for_a_broker_that_starts_later(broker: testing.Broker) -> None:
    broker.kill()
    worker = Worker(broker.url)
    worker.add("echo", answer)
    thread = threading.Thread(target=worker.run)
    thread.start()
    broker.start()
    broker.wait_for("echo")
    worker.stop()
    thread.join(WAIT)
    assert not thread.is_alive()
    broker.wait_for("echo", 0)


@every_protocol
def test_stopping_finishes_what_is_held(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, grace=WAIT)
    started, go_on = threading.Event(), threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        started.set()
        assert go_on.wait(WAIT)
        return "done"

    worker.start()
    with Client(broker.url, timeout=WAIT) as client:
        future = client.submit("slow")
        assert started.wait(WAIT)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        go_on.set()
        assert future.result().text == "done"
        stopping.join(WAIT)
        broker.wait_for("slow", 0)


def test_stopping_does_not_wait_longer_than_its_grace(broker: testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    stuck = Worker(broker.url, grace=0.05)
    started, over = threading.Event(), threading.Event()

    @stuck.service("job")
    def job(call: Call) -> str:
        started.set()
        over.wait(WAIT)
        return "stuck"

    other = Worker(broker.url)
    other.add("job", lambda call: "other")
    stuck.start()
    with Client(broker.url, timeout=WAIT) as client:
        future = client.submit("job")
        assert started.wait(WAIT)
        with other:
            stuck.stop()
            assert future.result().text == "other"  # given back, and done by somebody else
    over.set()
    assert "while a call was running" in caplog.text


def test_cancelling_run_lets_go_of_everything(broker: testing.Broker) -> None:
    async def scenario() -> None:
        worker = AsyncWorker(broker.url, concurrency=2)
        cancelled = asyncio.Event()
        started = asyncio.Event()

        @worker.service("forever")
        async def forever(call: Call) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        running = asyncio.ensure_future(worker.run())
        await worker.ready()
        async with AsyncClient(broker.url) as client:
            call = asyncio.ensure_future(client.call("forever"))
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await cancelled.wait()
            await asyncio.to_thread(broker.wait_for, "forever", 0)
            call.cancel()

    asyncio.run(scenario())


def test_run_again_after_stop(broker: testing.Broker) -> None:
    before = set(threading.enumerate())  # of other tests' workers, where a fixture keeps one
    worker = Worker(broker.url)
    worker.add("echo", answer)
    with Client(broker.url, timeout=WAIT) as client:
        for _ in range(2):
            with worker:
                assert client.call("echo", "x").text == "x"
                with pytest.raises(RuntimeError):
                    worker.start()
            broker.wait_for("echo", 0)
    left = [thread for thread in threading.enumerate() if thread.name == "polydomo-worker" and thread not in before]
    assert not left


def test_a_worker_may_call_others(broker: testing.Broker) -> None:
    async def scenario() -> str:
        worker = AsyncWorker(broker.url)
        async with AsyncClient(broker.url) as client:

            @worker.service("twice")
            async def twice(call: Call) -> str:
                return 2 * (await client.call("upper", call.body)).text

            @worker.service("upper")
            def upper(call: Call) -> str:
                return call.text.upper()

            async with worker:
                return (await client.call("twice", "ab")).text

    assert asyncio.run(scenario()) == "ABAB"


def test_invalid_settings_are_rejected_at_once(broker: testing.Broker) -> None:
    with pytest.raises(SettingError, match="concurrency"):
        Worker(concurrency=0)
    with pytest.raises(TypeError):
        Worker(protocol="mdp1", header=b"x")
    worker = Worker(broker.url, "memo")
    with pytest.raises(SettingError, match="has no services"):
        worker.start()
    for name in ("mmi.echo", "polydomo.services"):
        with pytest.raises(SettingError, match="reserved"):
            worker.add(name, answer)
    for name in ("", "x" * 256):
        with pytest.raises(SettingError, match="1 to 255 bytes"):
            worker.add(name, answer)
    with pytest.raises(SettingError, match=r'service\("echo"\)'):
        worker.service(answer)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="by a function, not by str"):
        worker.add("echo", "cat")  # type: ignore[arg-type]
    worker.add(b"\xff", answer)
    with pytest.raises(SettingError, match="already"):
        worker.add(b"\xff", answer)
    with pytest.raises(ValueError, match="UTF-8"):
        worker.start()  # memo01's names are text


def test_only_the_caller_learns_of_a_timeout(broker: testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(broker.url)
    go_on = threading.Event()
    worker.add("slow", lambda call: "late" if go_on.wait(WAIT) else "")
    with worker, Client(broker.url) as client, caplog.at_level(logging.WARNING, "polydomo.worker"):
        client.connect()
        with pytest.raises(CallTimeout):
            client.call("slow", timeout=0.1)
        go_on.set()
        assert client.call("slow").text == "late"
    machine = (LOOP_BLOCKED, NO_PYTHON)  # a slow machine's warnings
    assert [
        record for record in caplog.records if record.levelno >= logging.WARNING and record.msg not in machine
    ] == []
