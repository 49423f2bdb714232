"""The pages of flows in a real browser: the list of runs, and the graph of one, while it runs, after it failed and after a retry."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from polydomo import Call, Client, Flow, Permanent, Worker, testing
from polydomo.client.flows import FlowRun
from tests.server.web.browsing import LOOKS, WAIT, Page, open_browser
from tests.server.web.test_charts import BLANK, run

pytestmark = pytest.mark.xdist_group("browser")

HOSTILE = '<img src=x onerror="document.title=1">' + "y" * 80
SETTINGS = {"journal.level": "requests", "durable.backoff_first": "10ms"}


class Plant:
    """A broker with the services of flows. ``broken`` is what makes the service ``ocr`` fail."""

    def __init__(self, broker: testing.Broker, client: Client) -> None:
        self.broker = broker
        self.client = client
        self.broken = True
        self.go_on = threading.Event()

    def ocr(self, call: Call) -> bytes:
        if self.broken and call.text.startswith("bad"):
            raise Permanent("not an image")
        return call.body

    def slow(self, call: Call) -> bytes:
        self.go_on.wait(WAIT / 1000)
        return b"done"

    def start(self, flow: Flow) -> FlowRun:
        return self.client.start(flow)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    with testing.broker(settings=SETTINGS, jobs=True) as broker, Client(broker.url) as client:
        plant = Plant(broker, client)
        worker = Worker(broker.url, concurrency=4, name="pool")
        worker.add("ocr", plant.ocr)
        worker.add("slow", plant.slow)
        worker.add("join", lambda call: b"".join(call.frames))
        with worker:
            yield plant
            plant.go_on.set()


def fold(page: Any, services: str, needs: str) -> Any:
    return run(page, "charts/fold", f"m.fold({services}, {needs})")


def test_nodes_of_a_graph_are_in_layers_and_those_that_are_alike_in_one_box(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        one.page.goto(one.home + BLANK)
        # A node that a later one must precede, as in a flow that has grown.
        assert run(one.page, "charts/fold", "m.layersOf([[], [0, 3], [1], [0]])") == [0, 2, 3, 1]
        few = fold(one.page, "['a', 'a', 'b']", "[[], [], [0, 1]]")
        assert [(box["column"], box["numbers"]) for box in few["boxes"]] == [(0, [0]), (0, [1]), (1, [2])]
        assert sorted(few["links"]) == [[0, 2], [1, 2]]
        # 100 lines of two steps and a join; one more node of the first service is apart, because nothing else is like it.
        lines = "[...Array(100).fill([]), ...Array.from({length: 100}, (_, i) => [i]), Array.from({length: 100}, (_, i) => 100 + i), [200]]"
        services = "[...Array(100).fill('a'), ...Array(100).fill('b'), 'join', 'a']"
        wide = fold(one.page, services, lines)
        assert [(box["column"], len(box["numbers"])) for box in wide["boxes"]] == [(0, 100), (1, 100), (2, 1), (3, 1)]
        # A chain is longer than a page is wide: several layers share a column.
        chain = fold(one.page, "Array(1000).fill('a')", "Array.from({length: 1000}, (_, i) => (i ? [i - 1] : []))")
        assert chain["per"] == 25 and [len(box["numbers"]) for box in chain["boxes"]] == [25] * 40
        assert len(chain["links"]) == 39
        # 2,000 nodes of 2,000 services in one layer are one box, not 2,000.
        crowd = fold(one.page, "Array.from({length: 2000}, (_, i) => `s${i}`)", "Array(2000).fill([])")
        assert [len(box["numbers"]) for box in crowd["boxes"]] == [2000]


@pytest.mark.parametrize("look", ["light", *(pytest.param(look, marks=pytest.mark.long) for look in [*LOOKS][1:])])
def test_a_run_is_seen_while_it_runs_fails_and_is_retried(browser: Any, plant: Plant, look: str) -> None:
    plant.broken, plant.go_on = True, threading.Event()
    flow = Flow("scan")
    pages = flow.map("ocr", [*(f"page {number}" for number in range(19)), "bad page"])
    joined = flow.call("join", pages, name=HOSTILE)
    flow.call("slow", "x", name="waits")
    flow.call("join", joined, name="last")
    started = plant.start(flow)
    with Page(browser, plant.broker, look) as one:
        one.open("flows")
        row = one.page.locator("tbody tr", has_text="scan").first
        row.wait_for()
        one.until(lambda: "19 of 23" in row.inner_text(), "all nodes but one have ended")
        assert "running" in row.inner_text() and row.get_by_text("3", exact=True).count()  # dead and skipped
        one.check("flows")
        row.get_by_role("link", name="scan").click()
        boxes = one.page.locator(".node")
        boxes.first.wait_for()
        found = {box.locator(".name").get_attribute("title"): box for box in boxes.all()}
        assert [*found] == ["ocr × 20", "waits", HOSTILE, "last"]
        assert found["ocr × 20"].locator(".bar").get_attribute("aria-label") == "19 done, 1 dead of 20"
        assert "1 dead" in found["ocr × 20"].inner_text() and "running" in found["waits"].inner_text()
        assert "skipped" in found[HOSTILE].inner_text() and one.page.locator("main img").count() == 0
        one.check("run")
        # What failed, and why: the box, the state, the node.
        found["ocr × 20"].click()
        one.page.click('.filters >> text="Dead"')
        rows = one.page.locator("tbody tr")
        one.until(lambda: rows.count() == 1, "the list has the dead node of the box")
        assert "ocr-20" in rows.inner_text() and "not an image" in rows.inner_text()
        assert "box=0" in one.page.url and "state=dead" in one.page.url
        one.page.get_by_role("button", name="Show all nodes").click()
        # Live: a node ends, and with it the flow.
        plant.go_on.set()
        one.page.wait_for_selector('.node[data-state="done"] >> text=waits')
        one.page.wait_for_selector("h1 >> text=failed")
        rows.get_by_role("link", name="ocr-20").click()
        one.page.wait_for_selector(".verdict >> text=not an image")
        one.page.locator(".facts").get_by_role("link", name=started.id).click()  # from the job back to its flow
        plant.broken = False
        one.page.get_by_role("button", name="Retry").click()
        one.page.wait_for_selector("h1 >> text=done")
        one.page.wait_for_selector('.node[data-state="done"] >> text=last')
        trace = one.page.locator("tbody tr", has_text="waits").get_by_role("link", name="requests")
        trace.click()
        one.page.wait_for_selector("tbody tr >> text=slow")


def test_a_running_flow_is_cancelled_from_its_page(browser: Any, plant: Plant) -> None:
    plant.go_on = threading.Event()
    flow = Flow("stopped")
    flow.call("join", flow.call("slow", "x"))
    started = plant.start(flow)
    with Page(browser, plant.broker) as one:
        one.open(f"run/{started.id}")
        one.page.wait_for_selector('.node[data-state="running"]')
        one.page.get_by_role("button", name="Cancel").click()
        one.page.get_by_role("button", name="Cancel it").click()
        one.page.wait_for_selector("h1 >> text=cancelled")
        one.until(lambda: one.page.locator('.node[data-state="cancelled"]').count() == 2, "both nodes are cancelled")
        one.open("run/01M7QPS33XKC77ZRMFDVR23843")
        one.page.wait_for_selector("main >> text=no such flow")
    plant.go_on.set()


def test_the_graph_is_read_with_the_keyboard(browser: Any, plant: Plant) -> None:
    flow = Flow("keys")
    flow.call("join", flow.map("join", [str(number) for number in range(30)]), name="all")
    started = plant.start(flow)
    started.wait(WAIT / 1000)
    with Page(browser, plant.broker) as one:
        one.open("jobs")
        one.page.keyboard.press("g")
        one.page.keyboard.press("f")
        one.page.wait_for_selector('body[data-page="flows"]')
        one.open(f"run/{started.id}")
        one.page.wait_for_selector(".node")
        one.page.focus(".graph")
        one.page.keyboard.press("Tab")
        assert one.page.evaluate("document.activeElement.title") == "join × 30"
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector(".node.chosen >> text=join × 30")
        one.until(lambda: one.page.locator("tbody tr").count() == 30, "the list has the nodes of the box")
        one.page.keyboard.press("Tab")
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector('body[data-page="job"]')


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes", [500, 20_000])
def test_a_large_flow_stays_smooth(browser: Any, plant: Plant, nodes: int) -> None:
    """The graph of a large flow is fetched in pages and folded; no update of it holds the page for half a second."""
    flow = Flow("large")
    first = flow.map("ocr", [str(number) for number in range(nodes - 11)])
    parts = [flow.call("join", first[place::10], by_reference=True) for place in range(10)]
    flow.call("join", parts, name="end")
    started = plant.start(flow)
    with Page(browser, plant.broker) as one:
        one.open(f"run/{started.id}")
        one.page.wait_for_selector(".node")
        assert one.page.locator(".node").count() == 3
        script = """() => new Promise((done) => {
          const long = [];
          const note = (list) => long.push(...list.getEntries().map((entry) => entry.duration));
          new PerformanceObserver(note).observe({entryTypes: ["longtask"]});
          setTimeout(() => done(Math.max(0, ...long)), 5000);
        })"""
        longest = one.page.evaluate(script)
        print(f"{nodes} nodes: longest task {longest:.0f} ms")
        assert longest < 500
        started.wait(10 * WAIT / 1000)
        one.page.wait_for_selector("h1 >> text=done")
        one.check(f"run-{nodes}")
