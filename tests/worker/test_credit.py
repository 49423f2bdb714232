"""Workers that hold several calls on one connection, and cancelled calls, over real sockets."""

import asyncio
import math
import threading
import time
from functools import partial

import pytest

from polydomo import (
    AsyncClient,
    AsyncWorker,
    Call,
    CallFailed,
    CallTimeout,
    Client,
    NotConnected,
    SettingError,
    Worker,
    testing,
)
from polydomo.client import connection as client_connection
from polydomo.model.records import DONE
from polydomo.protocols import registry
from polydomo.wire.link import Bounds

WAIT = 60.0  # seconds: far more than anything here takes
LONG = 500.0  # ... for a thousand calls, on a machine that is stopped again and again
SHARING = [name for name in registry.names() if registry.worker_end(name).slots > 1]
TOLD = ("mdx", "dcp", "emqp")  # protocols whose workers can be told of a cancellation, and can prefetch
sharing = pytest.mark.parametrize("protocol", SHARING)
every_protocol = pytest.mark.parametrize("protocol", registry.names())


def sessions_of(broker: testing.Broker, service: bytes) -> int:
    """Connections over which the service is offered."""
    count = 0

    def look(server: object) -> bool:
        nonlocal count
        known = server.broker.services.get(service)  # type: ignore[attr-defined]
        count = len({worker.session for worker in known.workers}) if known is not None else 0
        return True

    broker.wait_until(look)
    return count


@sharing
def test_one_connection_runs_all_calls_at_once(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=12)
    together = threading.Barrier(12)

    @worker.service("meet")
    def meet(call: Call) -> str:
        together.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        futures = [client.submit("meet", str(n)) for n in range(24)]
        assert [future.result().text for future in futures] == [str(n) for n in range(24)]
        assert sessions_of(broker, b"meet") == 1


@sharing
def test_a_thousand_calls_at_once_on_one_connection(broker: testing.Broker, protocol: str) -> None:
    async def main() -> None:
        worker = AsyncWorker(broker.url, protocol, concurrency=1000)
        arrived = 0
        all_here = asyncio.Event()

        @worker.service("crowd")
        async def crowd(call: Call) -> bytes:
            nonlocal arrived
            arrived += 1
            if arrived == 1000:
                all_here.set()
            await all_here.wait()
            return call.body

        async with worker, AsyncClient(broker.url, timeout=LONG) as client:
            results = await asyncio.gather(*(client.call("crowd", str(n)) for n in range(1000)))
            assert sessions_of(broker, b"crowd") == 1
        assert [result.text for result in results] == [str(n) for n in range(1000)]

    asyncio.run(main())


@sharing
def test_a_failure_does_not_disturb_other_calls(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=2)
    broken, go_on = threading.Event(), threading.Event()
    runs = 0

    @worker.service("mixed")
    def mixed(call: Call) -> str:
        nonlocal runs
        if call.text == "fail":
            runs += 1
            broken.set()
            raise KeyError("as asked")
        assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        slow = client.submit("mixed", "slow")
        failing = client.submit("mixed", "fail")
        assert broken.wait(WAIT)
        with pytest.raises(CallFailed) as caught:
            failing.result()
        assert caught.value.code == ("failed" if protocol == "mdx" else "gave-up")
        assert runs == (1 if protocol == "mdx" else 3)
        go_on.set()
        assert slow.result().text == "slow"
        assert sessions_of(broker, b"mixed") == 1


def test_a_broker_without_the_extensions_gets_one_connection_for_each_call(
    broker: testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "BOUNDS", Bounds())
    worker = Worker(broker.url, concurrency=4)
    together = threading.Barrier(4)

    @worker.service("meet")
    def meet(call: Call) -> str:
        together.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        broker.wait_for("meet", 4)
        assert sessions_of(broker, b"meet") == 4
        futures = [client.submit("meet", str(n)) for n in range(8)]
        assert [future.result().text for future in futures] == [str(n) for n in range(8)]


def test_functions_that_outlive_their_connection_count_on_the_next_one(broker: testing.Broker) -> None:
    worker = Worker(broker.url, concurrency=2)
    started, go_on = threading.Semaphore(0), threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        started.release()
        if call.text == "first":
            assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT, retries=0) as client:
        lost = client.submit("slow", "first")
        assert started.acquire(timeout=WAIT)
        broker.kill()
        broker.start()
        assert lost.exception(WAIT) is not None
        broker.wait_for("slow", 1)  # one of the two is busy with a call of the broker that is gone
        assert client.call("slow", "second").text == "second"
        go_on.set()
        broker.wait_for("slow", 2)


@pytest.mark.parametrize("protocol", TOLD)
def test_a_prefetched_call_moves_to_an_idle_worker(broker: testing.Broker, protocol: str) -> None:
    slow, quick = Worker(broker.url, protocol, prefetch=4, name="slow"), Worker(broker.url, name="quick")
    started, go_on = threading.Event(), threading.Event()

    def wait(call: Call) -> str:
        if call.text == "0":
            started.set()
            assert go_on.wait(WAIT)
        return "slow"

    slow.add("mix", wait)
    quick.add("mix", lambda call: "quick")
    with slow, Client(broker.url, timeout=WAIT) as client:
        broker.wait_for("mix")
        first = client.submit("mix", "0")
        assert started.wait(WAIT)
        behind = [client.submit("mix", str(n)) for n in range(1, 4)]
        broker.wait_until(lambda server: any(len(worker.held) == 4 for worker in server.broker.workers))
        with quick:
            assert [future.result().text for future in behind] == ["quick"] * 3  # while the slow one still runs
            assert not first.done()
            go_on.set()
            assert first.result().text == "slow"


def test_memo01_workers_do_not_prefetch(broker: testing.Broker) -> None:
    """The broker could not see which of a worker's slots only prefetch."""
    one, other = (Worker(broker.url, "memo", prefetch=4) for _ in range(2))
    together = threading.Barrier(2)
    for worker in (one, other):
        worker.add("pair", lambda call: str(together.wait(WAIT)))
    with one, other, Client(broker.url, timeout=WAIT) as client:
        broker.wait_for("pair", 2)
        assert sorted(future.result().text for future in [client.submit("pair") for _ in range(2)]) == ["0", "1"]


@pytest.mark.parametrize("protocol", TOLD)
def test_stopping_releases_what_was_not_started(broker: testing.Broker, protocol: str) -> None:
    leaving, staying = Worker(broker.url, protocol, prefetch=3, grace=WAIT), Worker(broker.url)
    started, go_on = threading.Event(), threading.Event()

    def wait(call: Call) -> str:
        started.set()
        assert go_on.wait(WAIT)
        return "leaving"

    leaving.add("work", wait)
    staying.add("work", lambda call: "staying")
    with Client(broker.url, timeout=WAIT) as client:
        leaving.start()
        first = client.submit("work")
        assert started.wait(WAIT)
        others = [client.submit("work") for _ in range(3)]
        broker.wait_until(lambda server: any(len(worker.held) == 4 for worker in server.broker.workers))
        stopping = threading.Thread(target=leaving.stop)
        stopping.start()
        with staying:
            assert [future.result().text for future in others] == ["staying"] * 3
        go_on.set()
        assert first.result().text == "leaving"
        stopping.join(WAIT)


def test_invalid_settings() -> None:
    with pytest.raises(SettingError, match="prefetch"):
        Worker(prefetch=-1)
    with pytest.raises(SettingError, match="connections"):
        Worker(connections=0)


# --- calls that nobody waits for


@every_protocol
def test_calls_that_time_out_in_the_queue_never_run(broker: testing.Broker, protocol: str) -> None:
    """One worker is busy until eight calls have timed out."""
    worker = Worker(broker.url)
    ran: list[str] = []
    go_on = threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        ran.append(call.text)
        assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, protocol, timeout=WAIT) as client:
        first = client.submit("slow", "first")
        broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
        futures = [client.submit("slow", str(n), timeout=0.5) for n in range(8)]
        for future in futures:
            with pytest.raises((CallTimeout, NotConnected)):  # no connection in time, on a slow machine
                future.result(WAIT)
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        go_on.set()
        assert first.result().text == "first"
        assert client.call("slow", "after").text == "after"
        assert ran == ["first", "after"]


@every_protocol
def test_cancelling_a_queued_call(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url)
    ran: list[str] = []
    go_on = threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        ran.append(call.text)
        assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, protocol, timeout=WAIT) as client:
        first = client.submit("slow", "first")
        broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
        second = client.submit("slow", "second")
        broker.wait_until(lambda server: server.broker.open_requests == 2)
        assert second.cancel() and second.cancelled()
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        go_on.set()
        assert first.result().text == "first"
        assert not first.cancel()
        assert client.call("slow", "third").text == "third"
        assert ran == ["first", "third"]


def test_cancel_returns_false_if_the_client_cannot_cancel(
    broker: testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "BOUNDS", Bounds())
    worker = Worker(broker.url)
    go_on = threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        running = client.submit("slow", "x")
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        assert not running.cancel()
        go_on.set()
        assert running.result().text == "x"


@pytest.mark.parametrize("protocol", TOLD)
def test_a_running_function_sees_that_its_call_was_cancelled(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol)
    started, seen = threading.Event(), threading.Event()

    @worker.service("long")
    def long(call: Call) -> str:
        started.set()
        end = time.monotonic() + WAIT
        while not call.cancelled and time.monotonic() < end:
            time.sleep(0.005)
        if call.cancelled:
            seen.set()
        return "unheard"

    with worker, Client(broker.url, timeout=WAIT) as client:
        future = client.submit("long")
        assert started.wait(WAIT)
        assert future.cancel()
        assert seen.wait(WAIT)
        broker.wait_until(lambda server: not any(worker.held for worker in server.broker.workers))


@pytest.mark.parametrize("protocol", TOLD)
@pytest.mark.parametrize("kind", ["coroutine", "async generator"])
def test_an_async_function_is_cancelled(broker: testing.Broker, kind: str, protocol: str) -> None:
    async def main() -> None:
        worker = AsyncWorker(broker.url, protocol, concurrency=2)
        started, stopped = asyncio.Event(), asyncio.Event()

        async def wait_for_ever() -> None:
            started.set()
            try:
                await asyncio.sleep(WAIT * 10)
            finally:
                stopped.set()

        @worker.service("coroutine")
        async def coroutine(call: Call) -> None:
            await wait_for_ever()

        @worker.service("async generator")
        async def generator(call: Call):  # type: ignore[no-untyped-def]
            yield "one"
            await wait_for_ever()

        @worker.service("echo")
        async def echo(call: Call) -> str:
            return call.text

        async with worker, AsyncClient(broker.url, timeout=WAIT) as client:
            call = asyncio.ensure_future(client.call(kind))
            await asyncio.wait_for(started.wait(), WAIT)
            call.cancel()
            await asyncio.wait_for(stopped.wait(), WAIT)
            again = asyncio.ensure_future(client.call(kind))  # the worker is free
            started.clear()
            await asyncio.wait_for(started.wait(), WAIT)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(again), 0.01)
            again.cancel()
            assert (await client.call("echo", "still here")).text == "still here"

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_a_prefetched_call_that_was_cancelled_is_not_started(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=1, prefetch=3)
    go_on = threading.Event()
    ran = []

    @worker.service("slow")
    def slow(call: Call) -> str:
        ran.append(call.text)
        assert go_on.wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        calls = [client.submit("slow", str(n)) for n in range(3)]
        broker.wait_until(lambda server: sum(len(worker.held) for worker in server.broker.workers) == 3)
        assert calls[1].cancel()
        broker.wait_until(lambda server: sum(len(worker.held) for worker in server.broker.workers) == 2)
        go_on.set()
        assert [calls[n].result().text for n in (0, 2)] == ["0", "2"]
        assert ran == ["0", "2"]


@pytest.mark.parametrize("protocol", TOLD)
def test_a_call_and_its_cancellation_that_arrive_together_leave_nothing_behind(
    broker: testing.Broker, protocol: str
) -> None:
    """The task of the call is cancelled before its first step."""
    ran = []

    async def slow(call: Call) -> str:
        ran.append(call.text)
        return call.text

    async def work() -> None:
        worker = AsyncWorker(broker.url, protocol)
        worker.add("slow", slow)
        async with worker:
            broker.wait_for("slow")
            # Until the next ``await`` the loop of the worker stands still, so both messages wait for it.
            with Client(broker.url, timeout=WAIT) as client:
                call = client.submit("slow", "x")
                broker.wait_until(lambda server: sum(len(worker.held) for worker in server.broker.workers) == 1)
                assert call.cancel()
                broker.wait_until(
                    lambda server: all(
                        request.state == DONE for worker in server.broker.workers for request in worker.held.values()
                    )
                )
            answered = partial(broker.wait_until, lambda server: not any(one.held for one in server.broker.workers))
            await asyncio.to_thread(answered)

    asyncio.run(work())
    assert ran == []


@every_protocol
def test_a_function_knows_how_long_its_caller_waits(broker: testing.Broker, protocol: str) -> None:
    worker = Worker(broker.url, protocol, concurrency=2)

    @worker.service("left")
    def left(call: Call) -> str:
        before = call.remaining
        time.sleep(0.01)
        assert call.remaining <= before and (not math.isfinite(before) or before - call.remaining > 0.005)
        return f"{call.timeout} {before}"

    with worker, Client(broker.url) as client:
        timeout, remaining = map(float, client.call("left", timeout=60.5).text.split())
        if protocol in ("mdp1", "mdp2"):  # a deadline does not fit in their messages
            assert (timeout, remaining) == (0.0, math.inf)
        else:
            assert 30 < remaining <= timeout <= 60.5  # also over eMQP, whose own timeouts are whole seconds


def test_a_deadline_counts_from_when_the_call_arrived(broker: testing.Broker) -> None:
    worker = Worker(broker.url, concurrency=1, prefetch=1)
    arrived = threading.Event()

    @worker.service("left")
    def left(call: Call) -> str:
        assert arrived.wait(WAIT)
        return str(call.timeout - call.remaining)

    with worker, Client(broker.url, timeout=WAIT) as client:
        first, second = client.submit("left"), client.submit("left")
        broker.wait_until(lambda server: len(worker._worker._connections[0]._work) == 2)
        time.sleep(0.2)
        arrived.set()
        first.result()
        assert float(second.result().text) > 0.1  # it waited in the worker


def test_leaving_a_stream_early_cancels_it(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    sent = 0

    @worker.service("count")
    def count(call: Call):  # type: ignore[no-untyped-def]
        nonlocal sent
        for n in range(1_000_000):
            sent = n
            yield str(n)

    with worker, Client(broker.url, timeout=WAIT) as client:
        for part in client.stream("count"):
            if part.text == "3":
                break
        broker.wait_until(lambda server: not any(worker.held for worker in server.broker.workers))
        assert sent < 999_999


# --- the largest message


@pytest.mark.parametrize("protocol", ["mdx", "memo"])
def test_the_libraries_follow_the_brokers_limit(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "LIMIT_ASKED_TIME", WAIT)
    small = {"limits.max_message": "1MiB"}
    with testing.broker(settings=small) as broker:
        worker = Worker(broker.url)
        worker.add("echo", lambda call: call.body)
        worker.add("grow", lambda call: bytes(2 << 20))
        with worker, Client(broker.url, protocol, timeout=WAIT) as client:
            assert len(client.call("echo", bytes(900_000)).body) == 900_000
            with pytest.raises(CallFailed, match="the limit is") as caught:
                client.call("echo", bytes(2 << 20))
            assert caught.value.code == "too-large"
            if protocol == "mdx":  # memo01 does not report failures
                with pytest.raises(CallFailed, match="the limit is"):
                    client.call("grow")
            assert client.call("echo", "still here").text == "still here"


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["mdx", "mdp2", "dcp", "memo"])
def test_a_limit_above_the_default(protocol: str) -> None:
    size = 80 << 20
    large = {"limits.max_message": "100MiB", "limits.max_unsent": "400MiB"}
    with testing.broker(settings=large) as broker:
        worker = Worker(broker.url, protocol)
        worker.add("echo", lambda call: call.body)
        with worker, Client(broker.url, protocol, timeout=WAIT * 4) as client:
            assert len(client.call("echo", bytes(size)).body) == size
