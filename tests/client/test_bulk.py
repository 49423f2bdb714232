"""Several jobs at once (``submit_jobs``) and several calls at once (``map``)."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from polydomo import AsyncClient, Call, CallFailed, CallTimeout, Client, SettingError, Worker, testing
from polydomo.client.bulk import parts_of
from polydomo.limits import SUBMIT_BYTES, SUBMIT_PART
from polydomo.protocols import registry

WAIT = 60.0
LONG = 500.0  # for many jobs, on a machine that is stopped again and again


@pytest.fixture(scope="module")
def jobs() -> Iterator[testing.Broker]:
    with testing.broker(jobs=True) as broker:
        worker = Worker(broker.url, concurrency=4)

        @worker.service("upper")
        def upper(call: Call) -> str:
            if call.text == "bad":
                raise CallFailed("no-luck")
            return call.text.upper()

        with worker:
            yield broker


def http(broker: testing.Broker, content: bytes) -> httpx.Response:
    url = broker.url.replace("tcp", "http") + "/v1/jobs"
    return httpx.post(url, content=content, headers={"content-type": "application/x-ndjson"}, timeout=WAIT)


# --- submit_jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", registry.names())
def test_many_jobs_over_every_protocol(jobs: testing.Broker, protocol: str) -> None:
    with Client(jobs.url, protocol, timeout=LONG) as client:
        bodies: list[Any] = ["a", b"b", ["c", b"d"], {"e": 1}, "", *(f"n{n}" for n in range(1500))]
        ids = client.submit_jobs("upper", bodies)
        assert len(set(ids)) == len(ids) == len(bodies)
        found = [client.result(id, wait=LONG).text for id in (*ids[:5], ids[-1])]
        assert found == ["A", "B", "CD", '{"E":1}', "", "N1499"]


def test_they_are_written_together(jobs: testing.Broker) -> None:
    """A thousand jobs are one message and few transactions, not a thousand."""
    groups: list[int] = []
    server = jobs._server
    assert server is not None and server.job_store is not None
    backend = server.job_store.thread.backend
    apply = backend.apply

    def counted(ops: list, epoch: int) -> None:  # type: ignore[type-arg]
        groups.append(len(ops))
        apply(ops, epoch)

    backend.apply = counted  # type: ignore[method-assign]
    try:
        with Client(jobs.url, timeout=WAIT) as client:
            client.submit_jobs("nobody", ["x"] * SUBMIT_PART)
    finally:
        backend.apply = apply  # type: ignore[method-assign]
    assert sum(groups) >= SUBMIT_PART and len(groups) < SUBMIT_PART // 10, groups


def test_keys_make_a_repeated_submission_safe(jobs: testing.Broker) -> None:
    with Client(jobs.url, timeout=WAIT) as client:
        first = client.submit_jobs("upper", ["a", "b"], keys=["k1", "k2"])
        assert client.submit_jobs("upper", ["b", "c"], keys=["k2", "k3"])[0] == first[1]
        with pytest.raises(CallFailed, match="key-reused: body 1: ") as error:
            client.submit_jobs("upper", ["d", "other"], keys=["k4", "k1"])
        assert error.value.code == "key-reused"
        for keys in (["k"], ["k", "l", "m"]):
            with pytest.raises(SettingError, match="keys: there are"):
                client.submit_jobs("upper", ["a", "b"], keys=keys)


def test_a_message_that_is_refused_stores_nothing(jobs: testing.Broker) -> None:
    with Client(jobs.url, timeout=WAIT) as client:

        def refused(header: dict[str, object], content: bytes = b"xy") -> str:
            before = len(client.list_jobs(limit=1000, service="none"))
            answer = client.call("polydomo.submit.many", json.dumps({"service": "none", **header}) + "\n", content)
            assert len(client.list_jobs(limit=1000, service="none")) == before
            return str(json.loads(answer[0])["text"])

        one = {"sizes": [1]}
        assert "must be a list" in refused({})
        assert "1,001 in one message; the limit is 1,000 (SUBMIT_PART)" in refused({"jobs": [one] * 1001}, b"x" * 1001)
        assert "number 1: sizes: 2 is not the size of a frame; 1 bytes are left" in refused(
            {"jobs": [one, {"sizes": [2]}]}
        )
        assert "the sizes add up to 1 bytes, and the bodies have 2" in refused({"jobs": [one]})
        assert "number 1: unknown field 'nmae'" in refused({"jobs": [one, {**one, "nmae": ""}]})
        assert "number 1: must be an object" in refused({"jobs": [one, 5]})
        assert "built-in service" in refused({"jobs": [one, {**one, "service": "polydomo.submit"}]})


def test_what_exceeds_the_room_for_jobs_is_refused_as_a_whole() -> None:
    with testing.broker(jobs=True, settings={"durable.max_jobs": 10}) as broker, Client(broker.url) as client:
        client.submit_jobs("nobody", ["x"] * 8)
        with pytest.raises(CallFailed, match=r"durable\.max_jobs"):
            client.submit_jobs("nobody", ["x"] * 3)
        assert len(client.list_jobs()) == 8


def test_messages_are_bounded() -> None:
    parts = list(parts_of(["x"] * (2 * SUBMIT_PART + 1), None))
    assert [len(part.rows) for part in parts] == [SUBMIT_PART, SUBMIT_PART, 1]
    assert [part.first for part in parts] == [0, SUBMIT_PART, 2 * SUBMIT_PART]
    big = b"x" * (SUBMIT_BYTES // 2 + 1)
    assert [len(part.rows) for part in parts_of([big, big, "small", b"x" * (2 * SUBMIT_BYTES)], None)] == [1, 2, 1]
    assert all(part.header < 200_000 for part in parts_of(["x"] * 2000, ["k" * 255 + str(n) for n in range(2000)]))


def test_lines_over_http(jobs: testing.Broker) -> None:
    lines = b"""
        {"service": "upper", "frames": ["a", {"base64": "Yg=="}], "key": "h1", "priority": 5}

        {"service": "upper", "args": {"a": 1}}
    """
    response = http(jobs, lines)
    assert (response.status_code, response.headers["content-type"]) == (202, "application/x-ndjson")
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert [row["repeated"] for row in rows] == [False, False]
    with Client(jobs.url, timeout=WAIT) as client:
        assert [client.result(row["job"], wait=WAIT).text for row in rows] == ["AB", '{"A":1}']
        assert client.job(rows[0]["job"])["priority"] == 5
    again = [
        json.loads(line) for line in http(jobs, b'{"service":"upper","frames":["other"],"key":"h1"}').text.splitlines()
    ]
    assert again[0]["error"] == "key-reused"
    for content, detail in (
        (b'{"service":"upper","frames":["a"]}\n{', "line 2: "),
        (b'{"service":"upper"}', "line 1: give the body"),
        (b'{"service":"upper","frames":["a"],"args":{}}', "line 1: give the body"),
        (b'{"service":"upper","args":5}', "line 1: args must be an object"),
        (b"", "the body has no jobs"),
    ):
        problem = http(jobs, content)
        assert problem.status_code == 400 and problem.json()["detail"].startswith(detail), problem.text
    assert http(jobs, b'{"service":"x","frames":[]}\n' * 1001).status_code == 413


# --- map --------------------------------------------------------------------------------------------------------------


def test_results_in_order_and_as_they_end(broker: testing.Broker) -> None:
    gates = {str(n): threading.Event() for n in range(4)}
    worker = Worker(broker.url, concurrency=4)

    @worker.service("gated")
    def gated(call: Call) -> str:
        assert gates[call.text].wait(WAIT)
        return call.text

    with worker, Client(broker.url, timeout=WAIT) as client:
        ended = client.map("gated", gates, in_order=False)
        for last in ("2", "0", "3", "1"):
            gates[last].set()
            number, result = next(ended)
            assert (number, result.text) == (int(last), last)
        assert list(ended) == []
        assert [result.text for result in client.map("gated", gates)] == list(gates)

        async def scene() -> None:
            async def bodies() -> AsyncIterator[str]:
                for name in gates:
                    yield name

            async with AsyncClient(broker.url, timeout=WAIT) as client:
                assert [result.text async for result in client.map("gated", bodies())] == list(gates)
                gates["0"].clear()
                calls = client.map("gated", gates, in_order=False)
                seen = {(await anext(calls))[0] for _ in range(3)}
                assert seen == {1, 2, 3}
                gates["0"].set()
                assert [number async for number, _ in calls] == [0]

        asyncio.run(scene())


def test_a_limited_number_of_calls_is_open(broker: testing.Broker) -> None:
    """Bodies are read only when there is room: there may be any number of them."""
    read: list[int] = []

    def bodies() -> Iterator[str]:
        n = 0
        while True:
            read.append(n)
            yield str(n)
            n += 1

    with Client(broker.url, timeout=WAIT) as client:
        worker = Worker(broker.url, concurrency=2)
        worker.add("echo", lambda call: call.body)
        with worker:
            for in_order in (True, False):
                read.clear()
                calls = client.map("echo", bodies(), outstanding=3, in_order=in_order)
                for done in range(1, 20):
                    next(calls)
                    assert len(read) <= 3 + done
                calls.close()  # type: ignore[attr-defined]
        # Closing it has cancelled what was open.
        broker.wait_until(lambda server: not server.broker.open_requests)
        with pytest.raises(SettingError, match="outstanding"):
            next(client.map("echo", ["x"], outstanding=0))


def test_errors_are_raised_or_returned(broker: testing.Broker) -> None:
    worker = Worker(broker.url, concurrency=2)

    @worker.service("upper")
    def upper(call: Call) -> str:
        if call.text == "bad":
            raise CallFailed("no-luck")
        return call.text.upper()

    def shown(outcomes: "list[object]") -> list[str]:
        return [str(outcome) if isinstance(outcome, CallFailed) else outcome.text for outcome in outcomes]  # type: ignore[attr-defined]

    async def scene() -> None:
        async with AsyncClient(broker.url, timeout=WAIT) as client:
            calls = client.map("upper", ["a", "bad", "c"])
            assert (await anext(calls)).text == "A"
            with pytest.raises(CallFailed, match="no-luck"):
                await anext(calls)
            found = [one async for one in client.map("upper", ["a", "bad", "c"], return_errors=True)]
            assert shown(found) == ["A", "no-luck", "C"]

    with worker, Client(broker.url, timeout=WAIT) as client:
        calls = client.map("upper", ["a", "bad", "c"])
        assert next(calls).text == "A"
        with pytest.raises(CallFailed, match="no-luck"):
            next(calls)
        assert shown(list(client.map("upper", ["a", "bad", "c"], return_errors=True))) == ["A", "no-luck", "C"]
        with pytest.raises(CallTimeout):
            next(client.map("nobody", ["x"], timeout=0.05))
        asyncio.run(scene())
