"""The dashboard in a real browser: every page in light, dark and on a phone, with and without services, names that try to inject
markup, the keyboard, calls made from the page, and a broker that goes away.

Screenshots are written to build/screenshots, to be looked at.
"""

import enum
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from polydomo import Client, Worker, logs, testing
from tests.server.web.browsing import LOOKS, ROOT, Page, open_browser

pytestmark = pytest.mark.xdist_group("browser")

WEB = ROOT / "src" / "polydomo" / "server" / "web"
TABS = "overview services requests jobs logs more".split()
PAGES = (
    "overview services workers try requests requests?show=finished live jobs schedules logs more traffic clients topics "
    "catalog bridges events"
).split()
HOSTILE = '<img src=x onerror="document.title=1">\u202egnp.exe'
LONG = "billing.invoices.european-union.value-added-tax.reverse-charge.monthly-summary." + "x" * 100


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings={"journal.level": "requests"}, jobs=True) as broker:
        worker = Worker(broker.url, concurrency=2, name="pool")
        worker.add("upper", lambda call: call.text.upper())
        worker.add(HOSTILE, lambda call: call.body)
        worker.add(LONG, lambda call: call.body)
        worker.add("order", order)
        with worker, Client(broker.url) as client:
            for number in range(20):
                client.call("upper", f"call {number}")
            client.call(HOSTILE, "<script>document.title=2</script>")
            client.call(LONG, "x")
            yield broker


@pytest.fixture(scope="module")
def empty() -> Iterator[testing.Broker]:
    with testing.broker(jobs=True) as broker:
        yield broker


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    street: str
    number: int | None = None


def order(name: str, to: Address, size: Size, count: int = 1, gift: bool = False, tags: list[str] | None = None) -> str:
    """Orders something.

    The reply repeats the order.
    """
    return f"{count} {size.value} {name} to {to.street} {to.number}, gift {gift}, tags {tags}"


def test_all_of_it_is_small_and_loads_nothing_from_elsewhere() -> None:
    files = [path for path in WEB.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if "ui" in path.parts) < 200_000  # what a page loads
    for path in files:
        text = path.read_text()
        assert "innerHTML" not in text and "eval(" not in text, path


@pytest.mark.parametrize("look", ["light", *(pytest.param(look, marks=pytest.mark.long) for look in [*LOOKS][1:])])
def test_every_page_opens(browser: Any, broker: testing.Broker, look: str) -> None:
    with Page(browser, broker, look) as one:
        for page in [*PAGES, "service/upper", "service/order?tab=settings", "service/order?tab=try"]:
            one.open(page)
            one.page.wait_for_load_state("networkidle")
            one.check(f"some-{page.replace('/', '-').replace('?', '-')}")


@pytest.mark.parametrize("look", ["phone", *(pytest.param(look, marks=pytest.mark.long) for look in ("light", "dark"))])
def test_pages_of_an_empty_broker_say_what_to_do(browser: Any, empty: testing.Broker, look: str) -> None:
    with Page(browser, empty, look) as one:
        for page in PAGES:
            one.open(page)
            one.page.wait_for_load_state("networkidle")
            one.check(f"empty-{page.replace('?', '-')}")
        one.open("services")
        command = one.page.locator(".command code").first
        command.wait_for()
        assert command.inner_text() == f"polydomo work upper --to {empty.url} -- tr a-z A-Z"
        one.open("overview")
        one.page.wait_for_selector(".verdict.good >> text=Nothing is wrong")


def test_tabs_and_pages_under_them(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        one.page.goto(one.home)
        one.page.wait_for_selector('#nav a[data-tab="overview"][aria-current="page"]')
        assert [link.lower() for link in one.page.locator("#nav a").all_inner_texts()] == TABS
        one.page.click("#nav >> text=More")
        one.page.click("#pages >> text=Traffic")
        one.page.wait_for_selector('body[data-page="traffic"]')
        one.page.wait_for_selector('#pages a[data-view="traffic"][aria-current="page"]')
        one.page.goto(f"{one.home}#/flow")  # its earlier address
        one.page.wait_for_selector('#pages a[data-view="traffic"][aria-current="page"]')


def test_unknown_pages_and_services_say_so(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        one.page.goto(f"{one.home}#/nonsense")
        one.page.wait_for_selector("main >> text=There is no page “nonsense”.")
        one.open("service/nobody")
        one.page.wait_for_selector("main >> text=There is no service “nobody”")
        assert one.page.locator("main figure").locator("visible=true").count() == 0
        one.open("request/01M7QPS33XKC77ZRMFDVR23843")
        one.page.wait_for_selector("main .empty")


def test_a_long_name_is_cut_and_shown_whole_on_hover(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "small") as one:
        one.open("services")
        link = one.page.locator("tbody th a", has_text="billing.invoices")
        link.wait_for()
        assert link.get_attribute("title") == LONG
        assert link.evaluate("(one) => one.scrollWidth > one.clientWidth && one.clientHeight < 40")
        button = one.page.locator("tr", has_text="billing.invoices").get_by_role("button", name="Pause")
        box = button.bounding_box()
        assert box is not None and box["x"] + box["width"] <= LOOKS["small"][0]


def test_a_call_made_from_the_page(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        one.open("services")
        one.page.click("tbody >> text=upper")
        one.page.click(".filters >> text=Try")
        one.page.fill("textarea", "hello from the page")
        one.page.click("form.call button")
        one.page.wait_for_selector("output pre")
        assert one.page.inner_text("output pre") == "HELLO FROM THE PAGE"


def test_a_typed_service_is_tried_with_a_form_of_its_parameters(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        one.page.goto(one.home + "try")
        one.page.wait_for_url("**/#/try")
        one.page.click("summary >> text=order")
        form = one.page.locator("details.service[open] form")
        form.get_by_label("name text, required").fill("ink")
        form.get_by_label("street").fill("Elm Street")
        form.get_by_label("size").select_option("large")
        form.get_by_label("count").fill("many")
        form.get_by_role("button", name="Call").click()
        form.locator("output >> text=count: many is not an integer").wait_for()
        form.get_by_label("count").fill("12345678901234567890")
        form.get_by_label("tags").fill('["a"]')
        form.get_by_role("button", name="Call").click()
        form.locator("output pre >> text=12345678901234567890 large ink to Elm Street None, gift False").wait_for()
        form.locator("output summary").click()
        assert "curl 'http" in form.locator("output details pre").inner_text()


def test_any_service_is_tried_from_the_page(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "phone") as one:
        one.open("try")
        one.page.get_by_label("Service", exact=True).fill("upper")
        one.page.locator("form", has_text="Service").locator("textarea").fill("from the page")
        one.page.locator("form", has_text="Service").get_by_role("button", name="Call").click()
        one.page.wait_for_selector("output pre >> text=FROM THE PAGE")
        one.page.get_by_label("Service", exact=True).fill(HOSTILE)
        one.page.get_by_label("Show partial replies").last.check()
        one.page.locator("form", has_text="Service").locator("textarea").fill("<script>document.title=2</script>")
        one.page.locator("form", has_text="Service").get_by_role("button", name="Call").click()
        one.page.wait_for_selector("output pre >> text=final")
        assert one.page.locator("main script").count() == 0 and one.page.title() != "2"


def test_a_worker_that_dies_while_the_page_is_open(browser: Any, broker: testing.Broker) -> None:
    code = (
        "import sys; from polydomo import Worker; w = Worker(sys.argv[1]); "
        "w.add('fragile', lambda call: call.body); w.run()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, broker.url], env={**os.environ}, stderr=subprocess.DEVNULL)
    try:
        broker.wait_for("fragile")
        with Page(browser, broker) as one:
            one.open("services")
            row = one.page.locator("tr", has_text="fragile")
            row.wait_for()
            process.kill()
            row.wait_for(state="detached")  # the service has gone with its last worker
            one.open("events")
            one.page.wait_for_selector("li:has-text('fragile') >> text=/lost|its last worker/")
    finally:
        process.kill()
        process.wait()


def test_a_log_record_has_the_fields_that_the_command_line_shows(browser: Any, broker: testing.Broker) -> None:
    handler = logs.Handler(broker.url, service="resize")
    logger = logging.getLogger("tests.dashboard")
    logger.addHandler(handler)
    try:
        logger.error("it broke", extra={"size": 7, "file": "a.png"}, exc_info=ValueError("no such colour"))
        logger.warning("it is slow")
        handler.flush()
        with Page(browser, broker) as one:
            one.open("logs")
            line = one.page.locator("li.log", has_text="it broke")
            line.wait_for()
            one.page.locator("li.log", has_text="it is slow").wait_for()
            fields = line.locator(".field").all_inner_texts()
            assert {"size=7", "file=a.png"} <= set(fields) and not any("exception" in field for field in fields)
            assert "ValueError: no such colour" in line.locator("pre").inner_text()
            one.page.get_by_label("Lowest level").select_option("error")
            one.page.locator("li.log", has_text="it is slow").wait_for(state="detached")
            one.page.get_by_label("Lowest level").select_option("info")
            one.page.get_by_label("Filter log records").fill("a.png")
            one.page.locator("li.log", has_text="it is slow").wait_for(state="detached")
            assert one.page.locator("li.log").count() == 1
            one.page.get_by_label("Filter log records").fill("")
            one.page.get_by_label("Service").fill("another")
            one.page.get_by_label("Service").press("Enter")
            one.page.wait_for_selector("main >> text=No log record matches.")
            one.page.get_by_label("Service").fill("resize")
            one.page.get_by_label("Service").press("Enter")
            line.wait_for()
            logger.error("a new one")
            handler.flush()
            one.page.locator("li.log", has_text="a new one").wait_for()  # it follows
    finally:
        logger.removeHandler(handler)
        handler.close()


def test_names_and_bodies_cannot_inject_markup(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        for view in ("services", "workers", "catalog"):
            one.open(view)
            one.page.wait_for_selector("main >> text=onerror", state="attached")
            assert one.page.locator("main img").count() == 0
        one.open("services")
        one.page.click("text=onerror")
        one.page.click(".filters >> text=Try")
        one.page.fill("textarea", "<script>document.title=2</script>")
        one.page.click("form.call button")
        one.page.wait_for_selector("output pre")
        assert one.page.locator("main script").count() == 0
        assert one.page.title() not in ("1", "2")


def test_the_keyboard_reaches_everything(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker) as one:
        one.open("services")
        one.page.keyboard.press("g")
        one.page.keyboard.press("w")
        one.page.wait_for_selector('#pages a[data-view="workers"][aria-current="page"]')
        one.page.wait_for_selector("main input[type=search]")
        one.page.keyboard.press("/")
        one.page.wait_for_selector("main input[type=search]:focus")
        one.page.evaluate("document.activeElement.blur()")
        one.page.keyboard.press("?")
        one.page.wait_for_selector("dialog[open] >> text=Keyboard shortcuts")
        one.page.keyboard.press("Escape")
        one.page.click("#help")  # who does not know the key
        one.page.wait_for_selector("dialog[open] >> text=Keyboard shortcuts")
        one.page.keyboard.press("Escape")
        one.open("services")
        one.page.locator("tbody tr", has_text="upper").wait_for()
        one.page.focus("thead button")
        for _ in range(60):  # through the heads of the columns to the rows
            one.page.keyboard.press("Tab")
            if one.page.evaluate("document.activeElement.textContent") == "upper":
                break
        one.page.keyboard.press("Enter")
        one.page.wait_for_selector('body[data-page="service"]')


# The page may draw a row anew while the test walks, so what was reached is known by this key.
KEY = """const key = (one) => [one.tagName, one.getAttribute("href"), one.getAttribute("aria-label") || one.title || one.name,
  one.childElementCount ? "" : one.textContent.trim()].join("|");
window.reached ??= new Set();"""
# What has the focus: its name, and whether it can be seen that it has the focus. Null at the end of the page.
FOCUSED = (
    f"() => {{{KEY}"
    + """
  const one = document.activeElement;
  if (one === document.body || one.dataset.walked) return null;
  one.dataset.walked = true;
  window.reached.add(key(one));
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const inside = box.width && box.height && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  const label = one.labels && one.labels.length ? one.labels[0].textContent : "";
  const name = one.getAttribute("aria-label") || one.title || one.textContent.trim() || label;
  return [name, Boolean(name && inside && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)];
}"""
)
START = """() => {
  document.querySelectorAll("[data-walked]").forEach((one) => delete one.dataset.walked);
  document.activeElement.blur();
  getSelection().removeAllRanges();
}"""
WALKS = 5  # a row that appears behind the focus is reached by the next walk
LEFT_OUT = (
    f"() => {{{KEY}"
    + """
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((one) => one.checkVisibility() && !one.disabled && !one.dataset.walked && !window.reached.has(key(one)))
    .map((one) => one.outerHTML);
}"""
)


def test_the_tab_key_walks_through_every_page(browser: Any, broker: testing.Broker) -> None:
    """Everything that can be clicked is reached, has a name, is on the screen, and shows that it has the focus."""
    with Page(browser, broker) as one:
        for page in ("overview", "service/upper", "requests", "jobs", "schedules", "logs"):
            one.page.goto("about:blank")
            one.open(page)
            one.page.wait_for_load_state("networkidle")
            for left in reversed(range(WALKS)):
                assert walk(one, page) > 9, page
                left_out = one.page.evaluate(LEFT_OUT)
                if not left_out:
                    break
                assert left, (page, left_out)


def walk(one: Page, page: str) -> int:
    """The number of elements that the Tab key reaches."""
    one.page.evaluate(START)
    for reached in range(200):
        one.page.keyboard.press("Tab")
        found = one.page.evaluate(FOCUSED)
        if found is None:
            return reached
        assert found[1], f"{page}: {found[0]}"
    raise AssertionError(f"{page}: the Tab key does not come to an end")


def test_the_page_shows_that_the_broker_is_unreachable(browser: Any) -> None:
    with testing.broker() as broker, Page(browser, broker) as one:
        one.open("services")
        broker.stop()
        one.page.wait_for_selector("#connection.lost")
        broker.start()
        one.page.wait_for_selector("#connection.live")
        one.errors = [
            error for error in one.errors if "ERR_CONNECTION_REFUSED" not in error and "WebSocket" not in error
        ]


# 100 connections with 100 memo01 workers each; ten services per connection
CROWD = """
import asyncio, sys
from polydomo import AsyncWorker

async def main():
    workers = []
    for first in range(0, 1_000, 10):
        worker = AsyncWorker(sys.argv[1], "memo", concurrency=100)
        for number in range(first, first + 10):
            worker.add(f"service-{number:04}", lambda call: call.body)
        workers.append(worker)
    await asyncio.gather(*(worker.run() for worker in workers))

asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_services_and_ten_thousand_workers_stay_smooth(browser: Any) -> None:
    """No update of the page holds its main thread for a quarter of a second."""
    script = """() => new Promise((done) => {
      const long = [];
      const note = (list) => long.push(...list.getEntries().map((entry) => entry.duration));
      new PerformanceObserver(note).observe({entryTypes: ["longtask"]});
      setTimeout(() => done(Math.max(0, ...long)), 5000);
    })"""
    with testing.broker() as broker:
        crowd = subprocess.Popen([sys.executable, "-c", CROWD, broker.url], stderr=subprocess.DEVNULL)
        try:
            broker.wait_until(lambda server: len(server.broker.workers) == 10_000, 200)
            with Page(browser, broker) as one:
                for view in ("services", "workers"):
                    one.open(view)
                    one.page.wait_for_selector("tbody tr")
                    longest = one.page.evaluate(script)
                    print(f"{view}: longest task {longest:.0f} ms")
                    assert longest < 250
                    one.check(f"thousand-{view}")
        finally:
            crowd.kill()
            crowd.wait()
