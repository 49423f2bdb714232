"""What people use the dashboard for, in a real browser: why a service is slow, which worker fails, why a job died, what a client
sent; and acting on services, jobs and schedules. docs/dashboard.md lists the clicks."""

import contextlib
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from polydomo import Backoff, Call, Client, Flow, Permanent, PolydomoError, Worker, testing
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

    def scan(self, call: Call) -> bytes:
        call.progress(0.4, "page 4 of 10")
        return self.slow(call)

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
        scanner = Worker(broker.url, name="scanner", concurrency=8)
        scanner.add("scan", plant.scan)
        for worker in (good, bad, only, scanner):
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
            calls = [pool.submit(client.call, "render", f"scene {number}", timeout=WAIT / 100) for number in range(4)]
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
        one.page.wait_for_selector(".verdict >> text=/3 requests wait, the oldest for .*: its only worker is busy/")
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


def test_why_a_job_died(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        from_overview(one)
        one.page.locator('.problem[data-kind="dead-jobs"]').get_by_role("link", name="Look").click()
        one.page.wait_for_selector('.filters a[aria-current] >> text="Dead"')
        row = one.page.locator("tbody tr").first
        row.wait_for()
        assert "no such customer" in row.inner_text()
        row.get_by_role("link").first.click()
        one.page.wait_for_selector(".verdict >> text=no such customer")
        assert '"customer": 2' in one.page.locator("section", has_text="Body").locator("pre").inner_text()
        assert "bad-1" in one.page.locator("section", has_text="Failed attempts").inner_text()
        one.check("task-job")


def test_what_a_client_sent(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one:
        one.open("overview")
        one.page.click("#nav >> text=Requests")
        one.page.click(".filters >> text=Finished")
        rows = one.page.locator("tbody tr")
        rows.first.wait_for()
        client = rows.filter(has_text="paint").locator('[data-title="Client"]').first.inner_text()
        one.page.get_by_label(re.compile("^Client")).fill(client)
        one.page.get_by_label("Service").fill("paint")
        one.page.get_by_role("button", name="Search").click()
        one.until(lambda: "service=paint" in one.page.url, "the filter is part of the address")
        rows.first.wait_for()
        assert rows.count() == 20 and {row.split("\n")[0] for row in rows.all_inner_texts()}
        earlier = datetime.now() - timedelta(minutes=30)  # in the zone of the browser
        one.page.get_by_label("until").fill(earlier.strftime("%Y-%m-%dT%H:%M"))
        one.page.wait_for_selector("main >> text=No request in this time matches.")
        one.page.get_by_label("until").fill((earlier + timedelta(minutes=60)).strftime("%Y-%m-%dT%H:%M"))
        rows.first.wait_for()
        assert rows.count() == 20
        one.page.click(".filters >> text=Failed")
        one.until(lambda: "show=failed" in one.page.url, "the filter is part of the address")
        rows.first.wait_for()
        assert all("failed" in text for text in rows.all_inner_texts())
        one.check("task-client")


def test_how_far_a_flow_is_and_which_node_failed(browser: Any, plant: Plant) -> None:
    flow = Flow("billing")
    bills = flow.map("invoice", [str(number) for number in range(10)])
    flow.call("render", bills)
    with Client(plant.broker.url) as client:
        started = client.start(flow)
        assert started.wait(WAIT / 1000) == "failed"
    with Page(browser, plant.broker) as one:
        one.open("overview")
        problem = one.page.locator('.problem[data-kind="failed-flows"]')
        problem.wait_for()
        assert "the flow billing failed" in problem.inner_text()
        one.page.click("#nav >> text=Jobs")
        one.page.click("#pages >> text=Flows")
        row = one.page.locator("tbody tr", has_text="billing")
        row.wait_for()
        assert "failed" in row.inner_text() and "0 of 11" in row.inner_text()
        row.get_by_role("link", name="billing").click()
        one.page.wait_for_selector('.node[data-state="dead"] >> text=10 dead')
        one.page.locator("tbody tr", has_text="no such customer").first.wait_for()


def test_why_a_request_waits_and_how_far_a_job_is(browser: Any, plant: Plant) -> None:
    """A limit is not a lack of workers, and the page says which it is."""
    with Client(plant.broker.url) as client, Page(browser, plant.broker) as one:
        client.call("polydomo.limit", '{"service": "scan", "running": 1, "per": "group"}')
        job = client.submit_job("scan", "a.pdf", group="customer-7")
        plant.broker.wait_until(lambda server: any(worker.held for worker in server.broker.services[b"scan"].workers))
        waits = client.submit("scan", "b.pdf", timeout=WAIT / 1000, group="customer-7")
        one.open("overview")
        one.page.click("#nav >> text=Requests")
        row = one.page.locator("tbody tr", has_text="group customer-7: 1 of 1 running")
        row.wait_for()
        runs = one.page.locator("tbody tr", has_text="page 4 of 10")
        assert runs.get_by_role("img", name="40 %").count() == 1
        assert runs.locator('[data-title="Group"]').inner_text() == "customer-7"
        row.get_by_role("link", name="scan").click()
        one.page.wait_for_selector(
            ".verdict >> text=/1 request waits, the oldest for .*: group customer-7: 1 of 1 running. Its limit/"
        )
        one.page.wait_for_selector("main >> text=Limit: 1 running per group")
        one.check("task-limit")
        one.page.click("#nav >> text=Jobs")
        one.page.locator("tbody tr", has_text="page 4 of 10").get_by_role("link", name=job).click()
        facts = one.page.locator(".facts", has_text="page 4 of 10")
        facts.wait_for()
        shown = facts.inner_text().split("\n")
        assert {"customer-7", "scanner", "1 of 5"} <= set(shown) and facts.get_by_role("img", name="40 %").count() == 1
        # What has the focus keeps it when the page is brought up to date.
        button = one.page.locator("button:not(.small)", has_text=re.compile("^Cancel$"))  # not those of the list
        one.page.click("#nav >> text=Requests")
        assert runs.get_by_role("button", name="Cancel").count() == 0  # the job is cancelled, not its attempt
        row.get_by_role("link").first.click()
        button.focus()
        button.evaluate("(one) => { one.dataset.old = true; }")
        kept = "document.activeElement.textContent === 'Cancel' && !document.activeElement.dataset.old"
        one.until(lambda: bool(one.page.evaluate(kept)), "the new button has the focus")
        one.page.keyboard.press("Enter")
        one.page.get_by_role("dialog").get_by_role("button", name="Cancel it").press("Enter")
        with pytest.raises(PolydomoError, match="cancelled by an operator"):
            waits.result()
        client.call("polydomo.limit", '{"service": "scan", "remove": true}')


def test_finished_requests_have_pages(browser: Any) -> None:
    with testing.broker(settings=SETTINGS) as broker:
        worker = Worker(broker.url)
        worker.add("echo", lambda call: call.body)
        with worker, Client(broker.url) as client, Page(browser, broker) as one:
            broker.wait_for("echo")
            for number in range(60):
                client.call("echo", str(number))
            one.open("requests?show=finished")
            rows = one.page.locator("tbody tr")
            one.until(lambda: rows.count() == 50, "the first page")
            newest = rows.first.locator("th").inner_text()
            one.page.get_by_role("button", name="Older").click()
            one.until(lambda: rows.count() == 10, "the second page")
            one.page.get_by_role("button", name="Newer").click()
            one.until(lambda: rows.count() == 50, "the first page again")
            assert rows.first.locator("th").inner_text() == newest
            one.page.get_by_label(re.compile("^Any id")).fill(newest)
            one.page.get_by_label(re.compile("^Any id")).press("Enter")
            one.until(lambda: rows.count() == 1, "the request with the id")


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


def test_dead_jobs_are_retried_and_dropped_together(browser: Any) -> None:
    with testing.broker(settings=SETTINGS, jobs=True) as broker, Client(broker.url) as client:
        worker = Worker(broker.url)
        healed = threading.Event()

        def sick(call: Call) -> bytes:
            if not healed.is_set():
                raise Permanent("not well")
            return call.body

        worker.add("sick", sick)
        with worker:
            jobs = [client.submit_job("sick", str(number), retries=Backoff(attempts=1)) for number in range(3)]
            for job in jobs:
                end_of(client, job)
            healed.set()
            with Page(browser, broker) as one:
                one.open("jobs")
                one.page.wait_for_selector('.filters a[data-key="dead"] .count >> text=3')
                one.page.click(".filters >> text=Dead")
                one.page.get_by_label(f"Select job {jobs[0]}").check()
                one.page.get_by_label(f"Select job {jobs[1]}").check()
                one.page.get_by_role("button", name="Retry").click()
                one.page.get_by_role("dialog").get_by_role("button", name="Retry").click()
                one.until(lambda: all(client.job(job)["state"] == "done" for job in jobs[:2]), "both are done")
                one.page.get_by_label(f"Select job {jobs[0]}").wait_for(state="detached")
                one.page.get_by_label("Select all dead jobs shown").check()
                one.page.get_by_role("button", name="Drop").click()
                one.page.get_by_role("dialog").get_by_role("button", name="Drop").click()
                one.page.wait_for_selector("main >> text=No job matches.")
                one.open(f"job/{jobs[0]}")
                one.page.wait_for_selector("section:has-text('Result') pre >> text=0")


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
        one.page.get_by_role("link", name="nightly").click()
        runs = one.page.locator("section.card", has_text="Next runs of nightly").locator("time")
        one.until(lambda: runs.count() == 10, "the next runs are listed")
        assert all(re.search(" 02:30:00 Asia/Tokyo$", text) for text in runs.all_inner_texts())
        assert len(set(runs.all_inner_texts())) == 10


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
        one.until(lambda: "range=15m" in one.page.url, "the filter is part of the address")
        one.page.reload()
        one.page.wait_for_selector('button[aria-pressed="true"] >> text=15 min')


def test_requests_appear_live_and_can_be_paused(browser: Any, plant: Plant) -> None:
    with Page(browser, plant.broker) as one, Client(plant.broker.url) as client:

        def call() -> None:
            with contextlib.suppress(PolydomoError):
                client.call("paint", "7")

        def lanes() -> bool:
            call()
            shown = " ".join(one.page.locator(".lanes li").all_inner_texts())
            return "good-1" in shown and "bad-1" in shown

        one.open("live")
        one.until(lanes, "a lane for each worker")
        one.check("live")
        one.page.get_by_role("button", name="Pause").click()
        one.page.get_by_role("button", name="Continue").wait_for()
        one.open("traffic")

        def boxes() -> bool:
            call()
            shown = " ".join(one.page.locator(".traffic a").all_text_contents())
            return "paint" in shown and "good-1" in shown

        one.until(boxes, "a box for the service and its worker")
        one.check("traffic")
