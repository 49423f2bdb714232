"""The dashboard in a real browser: every view in light, dark and on a phone, a worker that dies while the page is open, a call made
from the page, and names that try to inject markup.

Screenshots are written to build/screenshots, to be looked at.
"""

import asyncio
import contextlib
import enum
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from polydomo import AsyncClient, Client, Worker, logs, testing

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.xdist_group("browser")

ROOT = Path(__file__).parents[3]
SHOTS = ROOT / "build" / "screenshots"
VIEWS = "services workers clients requests flow jobs logs topics catalog bridges try".split()
LOOKS = {"light": (1300, 900, "light"), "dark": (1300, 900, "dark"), "phone": (390, 840, "light")}
HOSTILE = '<img src=x onerror="document.title=1">'
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WAIT = 60_000  # milliseconds


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no chromium is installed (on Debian: apt install chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        worker = Worker(broker.url, concurrency=2)
        worker.add("upper", lambda call: call.text.upper())
        worker.add(HOSTILE, lambda call: call.body)
        worker.add("order", order)
        with worker, Client(broker.url) as client:
            for number in range(20):
                client.call("upper", f"call {number}")
            client.call(HOSTILE, "<script>document.title=2</script>")
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


def address(broker: testing.Broker) -> str:
    return broker.url.replace("tcp://", "http://") + "/"


class Page:
    """One page, which fails its test if the browser reports an error or asks another host for anything."""

    def __init__(self, browser: Any, broker: testing.Broker, look: str) -> None:
        width, height, scheme = LOOKS[look]
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.home = address(broker)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: object) -> None:
        text = str(getattr(message, "text", ""))
        # A service without a schema, a part that is off.
        if getattr(message, "type", "") == "error" and "404" not in text:
            self.errors.append(text)

    def _request(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if not url.startswith((self.home, self.home.replace("http", "ws"))):
            self.errors.append(f"asked for {url}")

    def open(self, view: str) -> None:
        self.page.goto(f"{self.home}#/{view}")
        self.page.wait_for_selector("#connection.live")
        self.page.wait_for_selector(f'nav a[data-view="{view}"][aria-current="page"]')
        self.page.wait_for_selector("main :is(table, figure, p, ol, form)", state="attached")

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.errors == []


@pytest.mark.parametrize("look", ["light", *(pytest.param(look, marks=pytest.mark.long) for look in ("dark", "phone"))])
def test_every_view_opens(browser: Any, broker: testing.Broker, look: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    with Page(browser, broker, look) as one:
        for view in VIEWS:
            one.open(view)
            one.page.wait_for_function("document.querySelector('#summary dd').textContent !== '–'")
            wide = one.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide, f"{view} does not fit the width of the screen"
            one.page.screenshot(path=str(SHOTS / f"{view}-{look}.png"))


def test_a_call_made_from_the_page(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "light") as one:
        one.open("services")
        one.page.click("text=upper")
        one.page.fill("textarea", "hello from the page")
        one.page.click("form.call button")
        one.page.wait_for_selector("output pre")
        assert one.page.inner_text("output pre") == "HELLO FROM THE PAGE"


def test_a_typed_service_is_tried_with_a_form_of_its_parameters(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "light") as one:
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
        form.get_by_label("street").fill("")
        form.get_by_label("gift").select_option("true")
        for look in LOOKS:
            width, height, scheme = LOOKS[look]
            one.page.set_viewport_size({"width": width, "height": height})
            one.page.emulate_media(color_scheme=scheme)
            wide = one.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide
            one.page.screenshot(path=str(SHOTS / f"try-form-{look}.png"))


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
        with Page(browser, broker, "light") as one:
            one.open("services")
            row = one.page.locator("tr", has_text="fragile")
            row.wait_for()
            process.kill()
            row.wait_for(state="detached")  # the service has gone with its last worker
            one.open("bridges")
            one.page.wait_for_selector("text=/fragile.*lost|its last worker/")
    finally:
        process.kill()
        process.wait()


def test_workers_are_sorted_as_people_count(browser: Any) -> None:
    with testing.broker() as broker, contextlib.ExitStack() as stack:
        for number in range(1, 12):
            worker = Worker(broker.url)
            worker.add("many", lambda call: call.body)
            stack.enter_context(worker)
            broker.wait_for("many", workers=number)
        with Page(browser, broker, "light") as one:
            one.open("workers")
            one.page.locator("tbody tr").nth(10).wait_for()
            shown = one.page.locator("tbody tr th").all_inner_texts()
            assert shown == [f"w{number}" for number in range(1, 12)]


def test_a_log_record_has_the_fields_that_the_command_line_shows(browser: Any, broker: testing.Broker) -> None:
    handler = logs.Handler(broker.url, service="resize")
    logger = logging.getLogger("tests.dashboard")
    logger.addHandler(handler)
    try:
        logger.error("it broke", extra={"size": 7, "file": "a.png"}, exc_info=ValueError("no such colour"))
        handler.flush()
        with Page(browser, broker, "light") as one:
            one.open("logs")
            line = one.page.locator("li.log", has_text="it broke")
            line.wait_for()
            fields = line.locator(".field").all_inner_texts()
            assert {"size=7", "file=a.png"} <= set(fields) and not any("exception" in field for field in fields)
            assert "ValueError: no such colour" in line.locator("pre").inner_text()
            one.page.get_by_label("Filter log records").fill("a.png")
            assert one.page.locator("li.log").count() == 1
    finally:
        logger.removeHandler(handler)
        handler.close()


async def add_schedule(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.schedule("nightly", "30 2 * * *", "backup", zone="Asia/Tokyo")


def test_a_schedule_shows_the_date_and_its_own_zone(browser: Any) -> None:
    with testing.broker(jobs=True) as broker:
        with ThreadPoolExecutor(1) as pool:  # playwright runs an event loop in this thread
            pool.submit(asyncio.run, add_schedule(broker.url)).result(WAIT / 1000)
        with Page(browser, broker, "light") as one:
            one.open("jobs")
            cell = one.page.locator("tr", has_text="nightly").locator('[data-title="Next run"]')
            cell.wait_for()
            assert re.fullmatch(r"\d{4}-\d\d-\d\d 02:30:00 Asia/Tokyo", cell.inner_text())


def test_names_and_bodies_cannot_inject_markup(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "light") as one:
        for view in ("services", "workers", "flow"):
            one.open(view)
            one.page.wait_for_selector("main >> text=onerror", state="attached")
            assert one.page.locator("main img").count() == 0
        one.open("services")
        one.page.click("text=onerror")
        one.page.fill("textarea", "<script>document.title=2</script>")
        one.page.click("form.call button")
        one.page.wait_for_selector("output pre")
        assert one.page.locator("main script").count() == 0
        assert one.page.title() not in ("1", "2")


def test_the_keyboard_reaches_every_view(browser: Any, broker: testing.Broker) -> None:
    with Page(browser, broker, "light") as one:
        one.open("services")
        one.page.keyboard.press("g")
        one.page.keyboard.press("w")
        one.page.wait_for_selector('nav a[data-view="workers"][aria-current="page"]')
        one.page.wait_for_selector("main input[type=search]")
        one.page.keyboard.press("/")
        one.page.wait_for_selector("main input[type=search]:focus")
        one.page.evaluate("document.activeElement.blur()")
        one.page.keyboard.press("?")
        one.page.wait_for_selector("dialog[open] >> text=Keyboard")


def test_the_page_shows_that_the_broker_is_unreachable(browser: Any) -> None:
    with testing.broker() as broker, Page(browser, broker, "light") as one:
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
            with Page(browser, broker, "light") as one:
                for view in ("services", "workers"):
                    one.open(view)
                    one.page.wait_for_selector("tbody tr")
                    longest = one.page.evaluate(script)
                    print(f"{view}: longest task {longest:.0f} ms")
                    assert longest < 250
        finally:
            crowd.kill()
            crowd.wait()
