"""Progress from workers of every kind to clients, lists and jobs, through a real broker."""

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import pytest

import polydomo.testing
from polydomo import AsyncClient, AsyncWorker, Call, Client, SettingError, Worker
from polydomo.limits import MAX_PROGRESS_TEXT
from polydomo.server.server import BrokerServer
from polydomo.testing import Broker

PATIENCE = 60.0
Reports = list[tuple[float, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with polydomo.testing.broker(settings={"service": "kept.durable"}, jobs=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url, timeout=PATIENCE) as client:
        yield client


class Pages:
    """A function that reports two pages, and waits in between until the test has seen the first."""

    def __init__(self) -> None:
        self.seen = threading.Event()

    def __call__(self, call: Call) -> str:
        call.progress(0.25, "page 1 of 4")
        assert self.seen.wait(PATIENCE)
        for share in range(26, 100):
            call.progress(share / 100, "more")
        call.progress(1, "page 4 of 4")
        return "done"


def serving(
    broker: Broker, protocol: str = "mdx", *, service: str, function: Callable[[Call], str], processes: int = 0
) -> Worker:
    worker = Worker(broker.url, protocol, processes=processes)
    worker.add(service, function)
    return worker


def http_of(broker: Broker) -> http.client.HTTPConnection:
    parts = urlsplit(broker.url.replace("tcp://", "http://"))
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)


def test_a_caller_gets_the_first_report_at_once_and_the_last_one_before_the_reply(
    broker: Broker, client: Client
) -> None:
    pages, reports = Pages(), Reports()

    def take(share: float, text: str) -> None:
        reports.append((share, text))
        pages.seen.set()

    with serving(broker, service="pages", function=pages):
        assert client.call("pages", on_progress=take).text == "done"
    assert reports[0] == (0.25, "page 1 of 4")
    assert reports[-1] == (1.0, "page 4 of 4")
    assert len(reports) < 10, "reports within a moment are passed on together"


def test_lists_of_requests_show_the_last_report(broker: Broker, client: Client) -> None:
    pages, arrived = Pages(), threading.Event()
    with serving(broker, service="listed", function=pages):
        future = client.submit("listed", on_progress=lambda share, text: arrived.set())
        assert arrived.wait(PATIENCE)
        rows = [row for row in client.call("polydomo.requests").json() if row["service"] == "listed"]
        connection = http_of(broker)
        connection.request("GET", "/v1/requests")
        shown = [row for row in json.loads(connection.getresponse().read()) if row["service"] == "listed"]
        connection.close()
        pages.seen.set()
        assert future.result().text == "done"
    assert [row["progress"] for row in rows] == [{"share": 0.25, "text": "page 1 of 4"}]
    assert [row["progress"] for row in shown] == [{"share": 0.25, "text": "page 1 of 4"}]


def has_waiter(server: BrokerServer) -> bool:
    durable = server.broker.parts.durable
    return durable is not None and any(True for _ in durable.waiters)


@pytest.mark.parametrize("service", ["job", "kept"])
def test_a_job_shows_its_progress_to_those_that_wait_for_it(broker: Broker, client: Client, service: str) -> None:
    """``kept`` is a durable service: a plain call of it is a job, too."""
    pages, arrived, reports = Pages(), threading.Event(), Reports()

    def take(share: float, text: str) -> None:
        reports.append((share, text))
        arrived.set()

    if service == "job":
        id = client.submit_job(service)
        waiting = threading.Thread(target=lambda: client.result(id, wait=PATIENCE, on_progress=take))
    else:
        waiting = threading.Thread(target=lambda: client.call(service, on_progress=take))
    waiting.start()
    broker.wait_until(has_waiter)
    with serving(broker, service=service, function=pages):
        assert arrived.wait(PATIENCE)
        (row,) = client.list_jobs("running", service)
        assert row["progress"] == {"share": 0.25, "text": "page 1 of 4"}
        assert client.job(row["job"])["progress"] == row["progress"]
        pages.seen.set()
        waiting.join(PATIENCE)
        assert client.job(row["job"])["progress"] is None
    assert reports[0] == (0.25, "page 1 of 4") and reports[-1] == (1.0, "page 4 of 4")


def test_async_functions_and_generators_report(broker: Broker) -> None:
    async def main() -> None:
        worker = AsyncWorker(broker.url)

        @worker.service("async.once")
        async def once(call: Call) -> str:
            call.progress(0.5, "half")
            return "once"

        @worker.service("async.parts")
        async def parts(call: Call) -> AsyncIterator[str]:
            yield "a"
            call.progress(0.5, "x" * (MAX_PROGRESS_TEXT + 1))
            yield "b"

        running = asyncio.create_task(worker.run())
        reports = Reports()
        async with AsyncClient(broker.url, timeout=PATIENCE) as client:
            await client.call("async.once", on_progress=lambda *report: reports.append(report))
            found = [
                part.text
                async for part in client.stream("async.parts", on_progress=lambda *report: reports.append(report))
            ]
        worker.stop()
        await running
        assert found == ["a", "b"]
        assert reports == [(0.5, "half"), (0.5, "x" * MAX_PROGRESS_TEXT)]

    asyncio.run(main())


def in_a_process(call: Call) -> str:
    for share in range(101):
        call.progress(share / 100, f"{share} %")
    return "done"


def test_a_process_of_a_pool_reports(broker: Broker, client: Client) -> None:
    reports = Reports()
    with serving(broker, processes=1, service="pooled", function=in_a_process):
        assert client.call("pooled", on_progress=lambda *report: reports.append(report)).text == "done"
    assert reports[-1] == (1.0, "100 %")
    assert len(reports) < 10


def test_a_share_outside_of_0_to_1_is_refused_in_the_function(broker: Broker, client: Client) -> None:
    errors: list[str] = []

    def wrong(call: Call) -> str:
        for share in (-0.1, 1.1, float("nan")):
            try:
                call.progress(share)
            except SettingError as error:
                errors.append(str(error))
        return "done"

    with serving(broker, service="wrong", function=wrong):
        client.call("wrong")
    assert len(errors) == 3


def test_a_function_of_the_caller_that_fails_does_not_end_the_call(broker: Broker, client: Client) -> None:
    def report(call: Call) -> str:
        call.progress(0.5)
        return "done"

    def fails(share: float, text: str) -> None:
        raise ValueError("no")

    with serving(broker, service="shown", function=report):
        assert client.call("shown", on_progress=fails).text == "done"


@pytest.mark.parametrize("protocol", ["mdp1", "mdp2", "memo"])
def test_protocols_without_a_message_for_it_go_on_as_before(broker: Broker, protocol: str) -> None:
    def report(call: Call) -> str:
        call.progress(0.5)
        return "done"

    with (
        serving(broker, protocol, service=f"old.{protocol}", function=report),
        Client(broker.url, protocol, timeout=PATIENCE) as client,
    ):
        assert client.call(f"old.{protocol}", on_progress=lambda *report: pytest.fail("no message")).text == "done"


def test_server_sent_events_have_progress(broker: Broker) -> None:
    def report(call: Call) -> str:
        call.progress(0.5, "half")
        return "done"

    with serving(broker, service="events", function=report):
        connection = http_of(broker)
        connection.request("POST", "/v1/call/events", b"", {"Accept": "text/event-stream"})
        text = connection.getresponse().read().decode()
        connection.close()
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert names == ["progress", "final"]
    assert 'data: {"share":0.5,"text":"half"}' in text.replace(", ", ",").replace(": ", ":").replace(
        "data:{", "data: {"
    )


def test_an_http_worker_reports_with_its_token(broker: Broker, client: Client) -> None:
    reports = Reports()
    future = client.submit("by-http", on_progress=lambda *report: reports.append(report))
    connection = http_of(broker)
    connection.request("POST", "/v1/work/by-http?wait=30")
    response = connection.getresponse()
    response.read()
    token = {"Polydomo-Token": response.headers["Polydomo-Token"]}
    statuses = []
    for path, headers, body in (
        ("?progress=0.4", token, "page 3 of 8"),
        ("?progress=2", token, ""),
        ("?progress=0.5", {"Polydomo-Token": "no-token"}, ""),
        ("", token, "done"),
        ("?progress=0.5", token, "late"),
    ):
        connection.request("POST", f"/v1/reply{path}", body, headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [204, 400, 409, 204, 409]
    assert future.result().text == "done"
    assert reports == [(0.4, "page 3 of 8")]
