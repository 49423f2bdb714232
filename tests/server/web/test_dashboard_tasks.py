"""What people use the dashboard for, in a real browser: why a service is slow, which worker fails, why a job died, what a client
sent; and acting on services, jobs and schedules. docs/dashboard.md lists the clicks."""

import contextlib
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polydomo import Call, Client, Permanent, PolydomoError, Worker, testing
from tests.server.web.browsing import WAIT, Page, open_browser

pytestmark = pytest.mark.xdist_group("browser")

SETTINGS = {"journal.level": "requests", "durable.backoff_first": "10ms"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


class Plant:
    """A broker with services of every kind of health."""

    def __init__(self, broker: testing.Broker) -> None:
        self.broker = broker
        self.go_on = threading.Event()  # lets the slow service answer

    def slow(self, call: Call) -> bytes:
        self.go_on.wait(WAIT / 1000)
        return b"done"

    def fail(self, call: Call) -> bytes:
        raise ValueError(f"no such colour {call.text}")

    def reject(self, call: Call) -> bytes:
        raise Permanent("no such customer")


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    with testing.broker(settings=SETTINGS, jobs=True) as broker, contextlib.ExitStack() as stack:
        plant = Plant(broker)
        good, bad, only = (Worker(broker.url, name=name) for name in ("good-1", "bad-1", "only-1"))
        good.add("paint", lambda call: call.body)
        bad.add("paint", plant.fail)
        bad.add("invoice", plant.reject)
        only.add("render", plant.slow)
        for worker in (good, bad, only):
            stack.enter_context(worker)
        broker.wait_for("paint", workers=2)
        client = stack.enter_context(Client(broker.url))
        for number in range(20):
            with contextlib.suppress(PolydomoError):
                client.call("paint", str(number))
        for number in range(3):
            job = client.submit_job("invoice", f'{{"customer": {number}}}', key=f"invoice-{number}")
            end_of(client, job)
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(client.call, "render", f"scene {number}", timeout=WAIT / 1000) for number in range(4)]
            broker.wait_until(lambda server: server.broker.services[b"render"].queue_length == 3)
            yield plant
            plant.go_on.set()
            for call in calls:
                call.result()


def end_of(client: Client, job: str) -> None:
    """Waits until a job has failed for good."""
    with pytest.raises(PolydomoError):
        client.result(job, wait=WAIT / 1000)
    assert client.job(job)["state"] == "dead"


def from_overview(one: Page) -> None:
    one.open("overview")
    one.page.wait_for_selector(".problem")


def test_why_a_service_is_slow(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        one.open("overview")
        one.page.click("#nav >> text=Services")
        row = one.page.locator("tbody tr", has_text="render")
        assert "all busy" in row.inner_text()
        row.get_by_role("link", name="render").click()
        one.page.wait_for_selector(".verdict >> text=Its only worker is busy, and 3 requests wait")
        slots = one.page.locator("tbody tr", has_text="only-1").locator('[data-title="Slots used"]')
        slots.wait_for()
        assert slots.inner_text() == "1 of 1"
        one.check("task-slow")


def test_which_worker_fails_and_why(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        from_overview(one)
        problem = one.page.locator('.problem[data-kind="failing"]', has_text="paint")
        assert "no such colour" in problem.inner_text()
        problem.get_by_role("link", name="paint").click()
        one.page.wait_for_selector("h1 >> text=failing")
        errors = one.page.locator("section", has_text="Errors by reason")
        row = errors.locator("tbody tr")
        row.first.wait_for()
        assert row.count() == 1 and "no such colour #" in row.inner_text() and "bad-1" in row.inner_text()
        workers = one.page.locator("section", has_text="Slots used")
        failed = {
            name: workers.locator("tbody tr", has_text=name).locator('[data-title="Failed"]').inner_text()
            for name in ("good-1", "bad-1")
        }
        assert failed["good-1"] == "0" and int(failed["bad-1"]) >= 5
        row.get_by_role("link").last.click()  # the last example
        one.page.wait_for_selector("main >> text=/ValueError: no such colour [0-9]+/")
        one.page.wait_for_selector("svg.waterfall")
        one.check("task-fails")


def test_one_button_pauses_and_resumes_and_one_drains(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        one.open("service/paint")
        one.page.get_by_role("button", name="Pause").click()
        one.page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        one.page.wait_for_selector("h1 >> text=paused")
        one.page.get_by_role("button", name="Resume").click()
        one.page.get_by_role("button", name="Pause").wait_for()
        one.page.get_by_role("button", name="Drain").first.click()
        one.page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        one.page.wait_for_selector("h1 >> text=drained")
        one.page.get_by_role("button", name="Resume").click()
        one.page.get_by_role("button", name="Pause").wait_for()


def test_a_schedule_is_added_and_shows_its_next_run_in_its_own_zone(browser: Any) -> None:
    with testing.broker(jobs=True) as broker, Page(browser, broker) as one:
        one.open("schedules")
        one.page.get_by_label("Name").fill("nightly")
        one.page.get_by_label("Service").fill("backup")
        one.page.get_by_label("When").fill("30 2 * * * * *")
        one.page.get_by_label("Time zone").fill("Asia/Tokyo")
        one.page.get_by_role("button", name="Add", exact=True).click()
        one.page.wait_for_selector("form .error:not(:empty)")
        one.page.get_by_label("When").fill("30 2 * * *")
        one.page.get_by_role("button", name="Add", exact=True).click()
        cell = one.page.locator("tr", has_text="nightly").locator('[data-title="Next run"]')
        cell.wait_for()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 02:30:00 Asia/Tokyo", cell.inner_text())


def test_charts_show_the_past_and_read_values(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        one.open("service/paint")
        chart = one.page.locator("figure.chart").first
        chart.locator("polyline, circle.single").first.wait_for(state="attached")
        plot = chart.locator("svg.plot")
        plot.focus()
        one.page.keyboard.press("ArrowLeft")
        chart.locator(".when:not(:empty)").wait_for()
        assert re.search(r"ended [0-9.,]+, failed", chart.locator("[role=status]").inner_text())
        one.page.keyboard.press("Escape")
        chart.locator(".when:empty").wait_for(state="attached")
        plot.hover()
        one.page.locator("figure.chart").nth(1).locator(".when:not(:empty)").wait_for()  # all charts share the cursor
        one.page.get_by_role("button", name="15 min").click()
        one.page.wait_for_function("location.hash.includes('range=15m')")
        one.page.reload()
        one.page.wait_for_selector('button[aria-pressed="true"] >> text=15 min')
