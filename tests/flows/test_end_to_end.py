"""Flows with a real broker, workers and clients."""

import asyncio
import json
import threading
import time
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
from polydomo.limits import MAX_FLOW_LEVELS
from polydomo.testing import Broker
from polydomo.worker.call import Then


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
        flow.call("join", many, name="some")
        run = client.start(flow)
        assert run.wait(120) == "done"
        assert run.result("some").text == "|".join(f"text of {n}" for n in range(1200))
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


def test_watching_shows_the_progress_of_running_nodes(broker: Broker) -> None:
    go_on = threading.Event()

    def scan(call: Call) -> str:
        call.progress(0.25, "page 1 of 4")
        go_on.wait(60)
        return "scanned"

    worker = Worker(broker.url)
    worker.add("scan", scan)
    flow = Flow("f")
    flow.call("scan", name="book")
    with worker, Client(broker.url) as client:
        steps = client.start(flow).watch()
        first = next(steps)
        assert (first.node, first.state, first.done, first.share, first.text) == (
            "book",
            "running",
            0,
            0.25,
            "page 1 of 4",
        )
        go_on.set()
        (last,) = [step for step in steps if step.state != "running"]
        assert (last.node, last.state, last.done, last.share) == ("book", "done", 1, None)


def test_waiting_for_the_end_reads_no_steps(broker: Broker) -> None:
    with workers(broker), Client(broker.url) as client:
        run = client.start(nightly())
        assert run.wait(60) == "done"
        body = json.dumps({"flow": run.id, "only_end": True, "wait_us": 60_000_000})
        found = client.call("polydomo.flow.steps", body).json()
        assert (found["state"], found["done"], found["steps"]) == ("done", 5, [])
    flow = Flow("never")
    flow.call("nobody")
    with Client(broker.url) as client:
        run = client.start(flow)
        with pytest.raises(CallTimeout, match="0 of 1 nodes are done"):
            run.wait(0.05)
        run.cancel()
        assert run.wait(60) == "cancelled"


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


def growing(broker: Broker, protocol: str) -> Worker:
    """``sum`` splits its work until one number is left; ``countdown`` calls itself."""

    def sum(call: Call) -> "str | Then":
        numbers = call.json()
        if len(numbers) == 1:
            return str(numbers[0])
        flow = Flow("part")
        halves = flow.map("sum", [numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]])
        flow.call("add", halves)
        return call.then(flow)

    async def countdown(call: Call) -> "str | Then":
        if call.text == "0":
            return "over"
        flow = Flow("again")
        flow.call("countdown", str(int(call.text) - 1))
        return call.then(flow)

    worker = workers(broker, protocol)
    worker.add("sum", sum)
    worker.add("add", lambda call: str(int(call[0]) + int(call[1])))
    worker.add("countdown", countdown)
    return worker


def test_workers_answer_with_more_work(broker: Broker) -> None:
    with growing(broker, "mdx"), Client(broker.url) as client:
        flow = Flow("recursive")
        total = flow.call("sum", list(range(10)), name="total")
        flow.call("join", "the sum:", total, "end", name="text")
        flow.call("join", flow.call("countdown", "20"), total, name="ids", by_reference=True)
        run = client.start(flow)
        assert run.result("text", 60).text == "the sum:|45|end"
        assert run.wait(60) == "done"
        assert run.result("total").text == "45"
        jobs = run.result("ids").text.split("|")
        assert [client.result(job).text for job in jobs] == ["over", "45"]
        info = run.info()
        assert (info["total"], info["added"], info["done"]) == (4 + 27 + 20, 27 + 20, 51)
        names = [row["node"] for row in run.nodes()]
        assert names[:4] == ["total", "text", "countdown", "ids"] and f"{names.index('total')}/sum" in names
        assert len(list(run.watch())) == 51


def test_a_flow_that_a_worker_answered_with_fails_and_is_retried(broker: Broker) -> None:
    luck = threading.Event()
    begun: list[str] = []

    def begin(call: Call) -> Then:
        begun.append(call.job)
        flow = Flow("part")
        flow.call("join", flow.call("moody", "x"), "!")
        return call.then(flow)

    def moody(call: Call) -> str:
        if not luck.is_set():
            raise Permanent("not today")
        return "luck"

    def wrong(call: Call) -> bytes:
        return b"polydomo-then " + call.job.encode() + b'\n{"node": [{"service": "x", "args": [{"node": "y"}]}]}'

    def endless(call: Call) -> Then:
        flow = Flow("again")
        flow.call("endless")
        return call.then(flow)

    def builtin(call: Call) -> Then:
        flow = Flow("f")
        flow.call("polydomo.shutdown")
        return call.then(flow)

    worker = workers(broker)
    for name, function in (
        ("begin", begin),
        ("moody", moody),
        ("wrong", wrong),
        ("endless", endless),
        ("builtin", builtin),
    ):
        worker.add(name, function)
    worker.add("foreign", lambda call: b"polydomo-then 01KDVDNA000000000000000000\n{}")
    with worker, Client(broker.url) as client:
        flow = Flow("f")
        flow.call("join", flow.call("begin", allow_failure=True, name="b"), name="value")
        flow.call("join", flow.call("begin", name="c"), "?", name="last")
        flow.call("wrong", name="wrong")
        flow.call("foreign", retries=1)
        flow.call("builtin", retries=1)
        run = client.start(flow)
        assert run.wait(60) == "failed"
        states = {row["node"]: row["state"] for row in run.nodes()}
        assert (states["b"], states["c"], states["last"], states["value"]) == ("skipped", "skipped", "skipped", "done")
        with pytest.raises(CallFailed, match="which is not a node of the flow"):
            run.result("wrong")
        with pytest.raises(CallFailed, match="answered another job with a flow"):
            run.result("foreign")
        with pytest.raises(CallFailed, match="is a built-in service"):
            run.result("builtin")
        luck.set()
        run.retry()
        assert run.result("last", 60).text == "luck|!|?"
        assert run.wait(60) == "failed"
        assert len(begun) == 2  # what has answered with a flow is kept
        deep = Flow("deep")
        deep.call("endless", name="first")
        run = client.start(deep)
        assert run.wait(120) == "failed"
        with pytest.raises(CallFailed, match="MAX_FLOW_LEVELS"):
            run.result("first")
        assert run.info()["total"] == MAX_FLOW_LEVELS + 1


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_workers_of_other_protocols_answer_with_more_work(broker: Broker, protocol: str) -> None:
    with growing(broker, protocol), workers(broker), Client(broker.url) as client:
        flow = Flow("f")
        flow.call("join", flow.call("countdown", "3"), name="last")
        assert client.start(flow).result("last", 60).text == "over"


def test_a_schedule_starts_a_flow(broker: Broker) -> None:
    with workers(broker), Client(broker.url) as client:
        client.schedule("often", "every 0.5s", flow=nightly())
        while not client.flows("done"):
            time.sleep(0.05)
        row = client.flows("done")[-1]
        assert (row["name"], row["key"].split()[0], row["total"]) == ("nightly", "often", 5)
        client.unschedule("often")
        assert client.flow(row["flow"]).result("join").text == "text of a.png|text of b.png|text of c.png"
        keys = [row["key"] for row in client.flows()]
        assert len(set(keys)) == len(keys)
        client.schedule("rarely", "@yearly", flow=nightly())
        (planned,) = client.schedules()
        assert (planned["flow"], planned["service"], planned["problem"]) == (True, "", "")
        assert client.flow(client.run_schedule("rarely")).wait(30) == "done"
        wrong = Flow("wrong")
        wrong.call("polydomo.status")
        with pytest.raises(CallFailed, match="is a built-in service"):
            client.schedule("wrong", "@yearly", flow=wrong)
        with pytest.raises(SettingError, match="a cron expression has 5"):
            client.schedule("wrong", "never", flow=nightly())
        with pytest.raises(SettingError, match="not both"):
            client.schedule("wrong", "@yearly", "ocr", flow=nightly())


@pytest.mark.long
def test_a_join_of_10_000_nodes(broker: Broker) -> None:
    with workers(broker), Client(broker.url) as client:
        flow = Flow("join")
        flow.call("join", flow.map("ocr", ["x"] * 10_000), name="last")
        assert len(client.start(flow).result("last", 300).text.split("|")) == 10_000


def test_typed_services_get_their_parameters(broker: Broker) -> None:
    def add(a: int, b: int = 1) -> int:
        return a + b

    def total(label: str, values: list[int]) -> dict[str, int]:
        return {label: sum(values)}

    def size(data: dict[str, int], text: str = "", raw: bytes = b"") -> list[int]:
        return [len(data), len(text), len(raw)]

    worker = workers(broker)
    for function in (add, total, size):
        worker.add(function.__name__, function)
    with worker, Client(broker.url) as client:
        flow = Flow("typed")
        three = flow.call("add", 1, 2, name="three")
        named = flow.call("add", a=three, b=flow.call("add", 4, name="five"), name="named")
        both = flow.call("total", "sum", [three, named], name="both")
        flow.call("total", label="x", values=[three, named, three], name="listed")
        flow.call("total", "one", [three], name="one")
        flow.call("size", both, "12", b"\xff\x00", name="size")
        flow.call("size", data={"a": 1, "b": 2}, text=flow.call("ocr", "x"), name="texts")
        flow.call("add", {"a": 7}, name="object")
        flow.call("join", a=three, b=flow.call("ocr", "x"), name="raw")
        flow.call("add", 1, 2, 3, name="many")
        run = client.start(flow)
        assert run.wait(30) == "failed"
        results = {name: result.text for name, result in run.results().items()}
        assert (results["three"], results["named"], results["object"]) == ("3", "8", "8")
        assert (results["both"], results["listed"], results["one"]) == ('{"sum":11}', '{"x":14}', '{"one":3}')
        assert (results["size"], results["texts"]) == ("[1,2,2]", "[2,9,0]")
        assert results["raw"] == '{"a":3,"b":"text of x"}'
        with pytest.raises(CallFailed, match="3 arguments for 2 parameters"):
            run.result("many")
        with pytest.raises(SettingError, match="by position or by name"):
            flow.call("add", 1, b=2)
