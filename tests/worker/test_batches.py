"""Functions that get several calls at once: ``@worker.service("embed", batch=32, wait="5ms")``."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from polydomo import Call, CallFailed, CallTimeout, Client, Permanent, Result, SettingError, Worker, testing
from polydomo.protocols import registry

WAIT = 60.0  # seconds: far more than anything here takes
NEVER = "60s"  # a batch begins because it is complete
FORMS = ["thread", "loop", "process"]  # where a function runs


def shout(calls: list[Call]) -> list[object]:
    """Each call's text and the size of its batch."""
    return [ValueError("bad text") if call.text == "bad" else [call.text.upper(), f"/{len(calls)}"] for call in calls]


async def shout_later(calls: list[Call]) -> list[object]:
    await asyncio.sleep(0.001)
    return shout(calls)


@contextlib.contextmanager
def serving(broker: testing.Broker, form: str, batch: int, protocol: str = "mdx") -> Iterator[None]:
    worker = Worker(broker.url, protocol, grace=0.0, processes=1 if form == "process" else 0)
    worker.add("shout", shout_later if form == "loop" else shout, batch=batch, wait=NEVER)
    with worker:
        yield


def texts(futures: "list[Future[Result]]") -> list[str]:
    return [future.result(WAIT).text for future in futures]


def test_a_batch_has_calls_of_clients_of_every_protocol(broker: testing.Broker) -> None:
    for protocol in (name for name in registry.names() if name != "dbp"):
        # The last one over HTTP completes the batch, which would not begin otherwise.
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(broker.url, each, timeout=WAIT)) for each in registry.names()]
            stack.enter_context(serving(broker, "thread", len(clients) + 1, protocol))
            futures = [client.submit("shout", f"a{n}") for n, client in enumerate(clients)]
            over_http = httpx.post(broker.url.replace("tcp", "http") + "/v1/call/shout", content="http", timeout=WAIT)
            size = len(clients) + 1
            assert texts(futures) == [f"A{n}/{size}" for n in range(len(clients))], protocol
            assert over_http.text == f"HTTP/{size}"


@pytest.mark.parametrize("form", FORMS)
def test_each_call_of_a_batch_has_its_own_outcome(broker: testing.Broker, form: str) -> None:
    with serving(broker, form, 3), Client(broker.url, timeout=WAIT) as client:
        first, bad, third = [client.submit("shout", text) for text in ("a", "bad", "c")]
        assert texts([first, third]) == ["A/3", "C/3"]
        with pytest.raises(CallFailed, match="ValueError: bad text"):
            bad.result(WAIT)


def test_a_batch_begins_when_its_first_call_has_waited(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    worker.add("shout", shout, batch=100, wait="1ms")
    worker.add("at once", shout, batch=100, wait=0)
    with worker, Client(broker.url, timeout=WAIT) as client:
        assert client.call("shout", "alone").text == "ALONE/1"
        assert client.call("at once", "alone").text == "ALONE/1"


def test_calls_gather_while_batches_run(broker: testing.Broker) -> None:
    """As many batches run as ``concurrency`` says, and a batch has no more calls than it may."""
    sizes: list[int] = []
    running, go = threading.Semaphore(0), threading.Event()
    worker = Worker(broker.url, concurrency=2)

    @worker.service("slow", batch=4, wait=NEVER)
    def slow(calls: list[Call]) -> list[str]:
        sizes.append(len(calls))
        running.release()
        assert go.wait(WAIT)
        return ["done"] * len(calls)

    with worker, Client(broker.url, timeout=WAIT) as client:
        futures = [client.submit("slow") for _ in range(16)]
        assert running.acquire(timeout=WAIT) and running.acquire(timeout=WAIT)
        # The window has room for another batch, which waits for its turn.
        broker.wait_until(lambda server: sum(len(each.held) for each in server.broker.services[b"slow"].workers) == 12)
        assert sizes == [4, 4]
        go.set()
        assert texts(futures) == ["done"] * 16
    assert sizes == [4, 4, 4, 4]


@pytest.mark.parametrize("form", FORMS)
def test_a_cancelled_call_leaves_its_batch(broker: testing.Broker, form: str) -> None:
    with serving(broker, form, 3), Client(broker.url, timeout=WAIT) as client:
        cancelled, *kept = [client.submit("shout", text) for text in ("x", "a")]
        broker.wait_until(lambda server: sum(len(each.held) for each in server.broker.services[b"shout"].workers) == 2)
        assert cancelled.cancel()
        with pytest.raises(CallTimeout):
            client.call("shout", "y", timeout=0.05)
        broker.wait_until(lambda server: sum(len(each.held) for each in server.broker.services[b"shout"].workers) == 1)
        kept += [client.submit("shout", text) for text in ("b", "c")]
        assert texts(kept) == ["A/3", "B/3", "C/3"]


def test_a_worker_that_stops_returns_calls_whose_batch_has_not_begun(broker: testing.Broker) -> None:
    for protocol in ("mdx", "mdp2"):
        with Client(broker.url, timeout=WAIT) as client:
            with serving(broker, "thread", 2, protocol):
                future = client.submit("shout", "a")
                broker.wait_until(lambda server: any(each.held for each in server.broker.services[b"shout"].workers))
            with serving(broker, "thread", 1):
                assert future.result(WAIT).text == "A/1"


def test_a_batch_that_fails_as_a_whole(broker: testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    def fewer(calls: list[Call]) -> list[str]:
        return ["only one"]

    def text(calls: list[Call]) -> str:
        return "ab"

    def raises(calls: list[Call]) -> list[str]:
        raise Permanent("no model")

    failures: dict[Callable[..., object], str] = {
        fewer: "failed: ValueError: the function returned 1 outcomes for a batch of 2 calls",
        text: "failed: TypeError: a function that gets batches must return a list, not str",
        raises: "permanent: no model",
    }
    for processes in (0, 1):
        worker = Worker(broker.url, processes=processes)
        for function in failures:
            worker.add(function.__name__, function, batch=2, wait=NEVER)
        with worker, Client(broker.url, timeout=WAIT) as client:
            for function, message in failures.items():
                caplog.clear()
                futures = [client.submit(function.__name__) for _ in range(2)]
                for future in futures:
                    with pytest.raises(CallFailed) as error:
                        future.result(WAIT)
                    assert str(error.value) == message
                logged = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
                assert len(logged) == 1 and "a batch of 2 calls" in logged[0]  # and not a line for each call


def test_a_batch_whose_process_dies_or_whose_calls_are_cancelled(broker: testing.Broker, tmp_path: Path) -> None:
    worker = Worker(broker.url, processes=1)

    @worker.service("pid", batch=2, wait=NEVER)
    def pid(calls: list[Call]) -> list[str]:
        if calls[0].text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if calls[0].text == "hang":
            (tmp_path / "hangs").touch()
            threading.Event().wait()
        return [str(os.getpid())] * len(calls)

    def both(text: str) -> "list[Future[Result]]":
        return [client.submit("pid", text) for _ in range(2)]

    with worker, Client(broker.url, timeout=WAIT) as client:
        [first] = set(texts(both("")))
        for future in both("die"):
            with pytest.raises(CallFailed, match="killed by SIGKILL"):
                future.result(WAIT)
        [second] = set(texts(both("")))
        futures = both("hang")
        deadline = time.monotonic() + WAIT
        while not (tmp_path / "hangs").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert all(future.cancel() for future in futures)
        [third] = set(texts(both("")))  # the process of the cancelled batch was killed
        assert len({first, second, third}) == 3


@dataclass
class Vector:
    numbers: list[float]


@pytest.mark.parametrize("form", FORMS)
def test_a_typed_function_is_a_service_of_one(broker: testing.Broker, form: str) -> None:
    worker = Worker(broker.url, processes=1 if form == "process" else 0)

    def embed(text: list[str], calls: list[Call]) -> list[Vector | Exception]:
        """Embeds a text."""
        sizes = [float(len(text)), float(len(calls))]
        return [Vector([float(len(each)), *sizes]) if each else Permanent("empty text") for each in text]

    async def embed_later(text: list[str], calls: list[Call]) -> list[Vector | Exception]:
        return embed(text, calls)

    worker.add("embed", embed_later if form == "loop" else embed, batch=3, wait=NEVER)
    with worker, Client(broker.url, timeout=WAIT) as client:
        answer: Any = client.call("polydomo.schema", "embed").json()
        deadline = time.monotonic() + WAIT
        while "input" not in (answer or {}):  # null until the worker is there
            assert time.monotonic() < deadline
            answer = client.call("polydomo.schema", "embed").json()
        assert answer["input"]["properties"] == {"text": {"type": "string"}}
        assert answer["output"]["title"] == "Vector" and answer["output"]["type"] == "object"
        futures = [client.submit("embed", text=text) for text in ("abc", "")]
        # One with a wrong argument fails alone, and the others run.
        response = httpx.post(broker.url.replace("tcp", "http") + "/v1/call/embed", json={"text": 5}, timeout=WAIT)
        assert (response.status_code, response.json()["type"]) == (422, "urn:polydomo:invalid-arguments")
        assert futures[0].result(WAIT).json() == {"numbers": [3.0, 2.0, 2.0]}
        with pytest.raises(CallFailed, match="permanent: empty text"):
            futures[1].result(WAIT)
        # A batch without a good call does not run the function.
        futures = [client.submit("embed", text=number) for number in range(3)]
        for future in futures:
            with pytest.raises(CallFailed, match="invalid-arguments"):
                future.result(WAIT)


def test_a_schema_written_by_hand(broker: testing.Broker) -> None:
    for function in (shout, shout_later):
        worker = Worker(broker.url)
        schema = {"input": {"type": "object", "required": ["text"]}}
        worker.add("shout", function, schema=schema, batch=2, wait=NEVER)
        with worker, Client(broker.url, timeout=WAIT) as client:
            good, bad = client.submit("shout", '{"text": 1}'), client.submit("shout", '{"txt": 1}')
            assert good.result(WAIT).text == '{"TEXT": 1}/1'
            with pytest.raises(CallFailed, match="invalid-arguments"):
                bad.result(WAIT)


def test_invalid_settings() -> None:
    def generator(calls: list[Call]) -> Iterator[str]:
        yield ""

    def default(a: list[int], b: list[int] = []) -> list[int]:  # noqa: B006
        return a

    def single(a: int) -> list[int]:
        return [a]

    def result(a: list[int]) -> int:
        return 0

    wrong: list[tuple[str, Callable[..., object], dict[str, Any]]] = [
        ("batch: must be 1 to 1000, not 0", shout, {"batch": 0}),
        ("batch: must be 1 to 1000, not 2000", shout, {"batch": 2000}),
        ("wait: must be 0 to 60 s", shout, {"batch": 2, "wait": "2m"}),
        ("wait: expected a number of seconds", shout, {"batch": 2, "wait": "soon"}),
        ("wait: belongs to a batch", shout, {"wait": "5ms"}),
        ("is a generator", generator, {"batch": 2}),
        ("'b' of 'x' has a default", default, {"batch": 2}),
        ("the parameter 'a' of 'x' must be annotated with a list", single, {"batch": 2}),
        ("the result of 'x' must be annotated with a list", result, {"batch": 2}),
    ]
    for message, function, options in wrong:
        with pytest.raises(SettingError, match=message):
            Worker().add("x", function, **options)
    with pytest.raises(SettingError, match="runs one call at a time"):
        Worker(protocol="dbp").add("x", shout, batch=2)
