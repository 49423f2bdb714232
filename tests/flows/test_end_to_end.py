"""Flows with a real broker, workers and clients."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import polydomo.testing
from polydomo import (
    AsyncClient,
    Call,
    CallFailed,
    CallTimeout,
    Client,
    Flow,
    NoSuchJob,
    Permanent,
    SettingError,
    Worker,
)
from polydomo.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with polydomo.testing.broker(jobs=True) as broker:
        yield broker


def fail(call: Call) -> str:
    raise Permanent("no luck")


def workers(broker: Broker, protocol: str = "mdx") -> Worker:
    worker = Worker(broker.url, protocol=protocol)
    worker.add("ocr", lambda call: f"text of {call.text}")
    worker.add("join", lambda call: b"|".join(call.frames))
    worker.add("fail", fail)
    return worker


def nightly() -> Flow:
    flow = Flow("nightly")
    pages = flow.map("ocr", ["a.png", "b.png", "c.png"])
    text = flow.call("join", pages)
    flow.call("join", "ops@example.org", text, name="mail", retries=5, run_timeout=60)
    return flow


@pytest.mark.parametrize("protocol", ["mdx", "emqp", "dcp", "mdp1", "mdp2", "memo"])
def test_workers_of_every_protocol_take_part(broker: Broker, protocol: str) -> None:
    with workers(broker, protocol), Client(broker.url) as client:
        run = client.start(nightly(), key="2026-11-16")
        steps = list(run.watch())
        assert [step.done for step in steps] == [1, 2, 3, 4, 5]
        assert {step.total for step in steps} == {5}
        assert (steps[-1].node, steps[-1].state) == ("mail", "done")
        texts = [f"text of {name}.png" for name in "abc"]
        between = (
            "" if protocol in ("emqp", "memo") else "|"
        )  # their requests have one frame: the broker joins those of a body
        assert run.result("mail").text == between.join(["ops@example.org", *texts])


def test_the_same_key_is_the_same_run(broker: Broker) -> None:
    with workers(broker), Client(broker.url) as client, Client(broker.url) as other:
        run = client.start(nightly(), key="k")
        assert other.start(nightly(), key="k").id == run.id
        assert client.start(nightly()).id != run.id
        changed = nightly()
        changed.call("ocr", "more")
        with pytest.raises(CallFailed, match="key-reused"):
            client.start(changed, key="k")
        assert other.flow(run.id).wait(30) == "done"
        assert sorted(other.flow(run.id).results()) == ["join", "mail", "ocr", "ocr-2", "ocr-3"]
        assert client.start(nightly(), key="k").id == run.id


def test_failures_skip_and_are_retried(broker: Broker) -> None:
    luck = threading.Event()

    def moody(call: Call) -> str:
        if not luck.is_set():
            raise Permanent("not today")
        return "at last"

    worker = workers(broker)
    worker.add("moody", moody)
    with worker, Client(broker.url) as client:
        flow = Flow("f")
        first = flow.call("ocr", "x")
        middle = flow.call("moody", first, name="middle")
        flow.call("join", middle, first, name="last")
        flow.call("join", flow.call("fail", "y", name="may", allow_failure=True), name="value")
        run = client.start(flow)
        assert run.wait(30) == "failed"
        with pytest.raises(CallFailed, match="permanent: not today"):
            run.result("middle")
        with pytest.raises(CallFailed, match="skipped"):
            run.result("last")
        assert run.result("value").text == '{"error": "failed", "text": "permanent: no luck"}'
        info = run.info()
        assert (info["state"], info["done"], info["dead"], info["skipped"]) == ("failed", 2, 2, 1)
        luck.set()
        run.retry()
        assert run.result("last", 30).text == "at last|text of x"
        assert run.wait(30) == "done"  # the node that may fail is dead again
        with pytest.raises(SettingError, match=r"the flow .* is done: only a flow that has ended, and not every node"):
            run.retry()
        states = {row["node"]: (row["state"], row["attempts"]) for row in run.nodes()}
        assert states["last"] == ("done", 1)


def test_a_flow_is_cancelled_and_removed(broker: Broker) -> None:
    with Client(broker.url) as client:
        run = client.start(nightly())
        with pytest.raises(CallTimeout):
            run.result("mail", 0.01)
        with pytest.raises(CallTimeout):
            run.wait(0.01)
        with pytest.raises(SettingError, match="cancel it first"):
            run.remove()
        run.cancel()
        assert run.wait(30) == "cancelled"
        with pytest.raises(CallFailed, match="cancelled"):
            run.result("mail")
        assert [row["flow"] for row in client.flows()] == [run.id]
        assert client.flows("running") == []
        run.remove()
        with pytest.raises(NoSuchJob):
            run.info()


def test_a_flow_survives_a_killed_broker(broker: Broker) -> None:
    entered = threading.Event()
    proceed = threading.Event()

    def slow(call: Call) -> str:
        entered.set()
        proceed.wait(60)
        return call.text

    worker = workers(broker)
    worker.add("slow", slow)
    with worker, Client(broker.url) as client:
        flow = Flow("f")
        flow.call("join", flow.call("slow", flow.call("ocr", "x")), "!", name="last")
        run = client.start(flow)
        assert entered.wait(30)
        broker.kill()
        broker.start()
        proceed.set()
        assert run.result("last", 60).text == "text of x|!"
        assert [step.state for step in run.watch()] == ["done"] * 3


def test_a_flow_of_several_parts(broker: Broker) -> None:
    with workers(broker), Client(broker.url) as client:
        flow = Flow("wide")
        many = flow.map("ocr", [str(n) for n in range(1200)])
        flow.call("join", many, by_reference=True, name="ids")
        flow.call("join", many[:900], name="some")
        run = client.start(flow)
        assert run.wait(120) == "done"
        assert run.result("some").text == "|".join(f"text of {n}" for n in range(900))
        assert len(run.result("ids").json()) == 1200


def test_unknown_flows_and_nodes(broker: Broker) -> None:
    with Client(broker.url) as client:
        with pytest.raises(SettingError, match="is not the id of a flow"):
            client.flow("nonsense").info()
        with pytest.raises(NoSuchJob, match="no such flow"):
            client.flow("01KDVDNA000000000000000000").info()
        run = client.start(nightly())
        with pytest.raises(NoSuchJob, match="has no node 'other'"):
            run.result("other")
        with pytest.raises(SettingError, match="it has no nodes"):
            client.start(Flow("empty"))
        wrong = Flow("f")
        wrong.call("polydomo.status")
        with pytest.raises(SettingError, match="built-in service"):
            client.start(wrong)


def test_open_nodes_count_as_jobs() -> None:
    with polydomo.testing.broker(jobs=True, settings={"durable.max_jobs": 8}) as broker, Client(broker.url) as client:
        run = client.start(nightly())
        with pytest.raises(CallFailed, match="store-full"):
            client.start(nightly())
        run.cancel()
        assert run.wait(30) == "cancelled"
        client.start(nightly())


def test_the_asynchronous_client(broker: Broker) -> None:
    async def use() -> None:
        async with AsyncClient(broker.url) as client:
            run = await client.start(nightly())
            assert [step.done async for step in run.watch()] == [1, 2, 3, 4, 5]
            assert (await client.flow(run.id).result("ocr-2")).text == "text of b.png"
            assert await run.wait() == "done"
            assert len(await run.results()) == 5
            assert [row["state"] for row in await client.flows()] == ["done"]

    with workers(broker):
        asyncio.run(use())


def test_results_are_reused(broker: Broker) -> None:
    runs: list[str] = []

    def count(call: Call) -> str:
        runs.append(call.text)
        return f"<{call.text}>"

    def graph(leaf: str) -> Flow:
        flow = Flow("f", reuse=True)
        same = flow.call("count", "same")
        other = flow.call("count", leaf)
        flow.call("count", same, name="a")
        flow.call("count", other, name="b")
        flow.call("count", "always", reuse=False)
        return flow

    worker = Worker(broker.url)
    worker.add("count", count)
    with worker, Client(broker.url) as client:
        assert client.start(graph("1")).wait(30) == "done"
        assert sorted(runs) == ["1", "<1>", "<same>", "always", "same"]
        runs.clear()
        run = client.start(graph("2"))
        assert run.wait(30) == "done"
        assert run.result("a").text == "<<same>>"
        assert sorted(runs) == ["2", "<2>", "always"]
