"""Durable jobs through a real broker: clients and workers of the libraries, restarts and crashes."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

import polydomo.testing
from polydomo import (
    Backoff,
    Call,
    CallError,
    CallFailed,
    CallTimeout,
    Client,
    NoSuchJob,
    Retry,
    SettingError,
    Worker,
)
from polydomo.testing import Broker

PATIENCE = 60.0
PROTOCOLS = ["mdx", "mdp1", "mdp2", "dcp", "memo", "emqp"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"service": "durable.durable; kept.*.durable", "durable.backoff_first": "10ms"}
    with polydomo.testing.broker(settings=settings, jobs=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url, timeout=PATIENCE) as client:
        yield client


class Served:
    """A worker whose function counts its calls."""

    def __init__(self, url: str, *services: str, protocol: str = "mdx", fail: int = 0) -> None:
        self.calls: list[tuple[str, int, str]] = []
        self.fail = fail
        self.hold: threading.Event | None = None
        self.worker = Worker(url, protocol)
        for service in services:
            self.worker.add(service, self.run)

    def run(self, call: Call) -> str:
        self.calls.append((call.text, call.attempt, call.key))
        if self.hold is not None:
            assert self.hold.wait(PATIENCE)
        if len(self.calls) <= self.fail:
            raise CallFailed("broken", f"attempt {len(self.calls)}")
        return call.text.upper()

    def __enter__(self) -> "Served":
        self.worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.hold is not None:
            self.hold.set()
        self.worker.stop()


def test_a_job_and_its_result(broker: Broker, client: Client) -> None:
    job = client.submit_job("upper", "hello", key="greeting")
    assert client.job(job)["state"] == "queued"
    with pytest.raises(CallTimeout):
        client.result(job)
    with Served(broker.url, "upper") as served:
        assert client.result(job, wait=PATIENCE).text == "HELLO"
        assert served.calls == [("hello", 1, "greeting")]
        assert client.submit_job("upper", "hello", key="greeting") == job
        with pytest.raises(CallFailed, match="another body") as refused:
            client.submit_job("upper", "again", key="greeting")
        assert refused.value.code == "key-reused"
    row = client.job(job)
    assert (row["state"], row["attempts"], row["outcome"], row["result_bytes"]) == ("done", 1, "ok", 5)
    with Client(broker.url) as another:
        assert another.result(job).text == "HELLO"


def test_bodies_of_several_frames(broker: Broker, client: Client) -> None:
    worker = Worker(broker.url)
    worker.add("frames", lambda call: [*call, b"", b"end"])
    with worker:
        job = client.submit_job("frames", "one", b"\x00two")
        assert list(client.result(job, wait=PATIENCE)) == [b"one", b"\x00two", b"", b"end"]
        empty = client.submit_job("frames")
        assert list(client.result(empty, wait=PATIENCE)) == [b"", b"end"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_jobs_over_every_protocol(broker: Broker, protocol: str) -> None:
    with (
        Served(broker.url, "upper", protocol=protocol) as served,
        Client(broker.url, protocol, timeout=PATIENCE) as client,
    ):
        job = client.submit_job("upper", "line\nbreak", key="k")
        assert client.result(job, wait=PATIENCE).text == "LINE\nBREAK"
        assert client.job(job)["state"] == "done"
        assert served.calls == [
            ("line\nbreak", 0 if protocol == "memo" else 1, "k" if protocol in ("mdx", "emqp", "dcp") else "")
        ]


def test_jobs_survive_a_crash_of_the_broker(broker: Broker, client: Client) -> None:
    jobs = [client.submit_job("upper", f"job {n}") for n in range(50)]
    delayed = client.submit_job("upper", "later", delay=0.2)
    broker.kill()
    broker.start()
    with Served(broker.url, "upper") as served:
        assert [client.result(job, wait=PATIENCE).text for job in jobs] == [f"JOB {n}" for n in range(50)]
        assert client.result(delayed, wait=PATIENCE).text == "LATER"
        assert len(served.calls) == 51
        broker.kill()
        broker.start()
        assert client.result(jobs[7], wait=PATIENCE).text == "JOB 7"
        assert len(served.calls) == 51


def test_a_job_whose_broker_dies_while_it_runs_is_run_again(broker: Broker, client: Client) -> None:
    with Served(broker.url, "upper") as served:
        served.hold = threading.Event()
        job = client.submit_job("upper", "twice")
        broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
        broker.kill()
        broker.start()
        served.hold.set()
        assert client.result(job, wait=PATIENCE).text == "TWICE"
        assert len(served.calls) == 2


def test_failed_attempts_are_repeated_then_the_job_is_dead(broker: Broker, client: Client) -> None:
    with Served(broker.url, "flaky", fail=2) as served:
        job = client.submit_job("flaky", "x", retries=Backoff(attempts=3, first=0.01))
        assert client.result(job, wait=PATIENCE).text == "X"
        assert [attempt for _, attempt, _ in served.calls] == [1, 2, 3]
        story = client.job(job)["story"]
        assert [(row["attempt"], row["reason"]) for row in story] == [
            (1, "broken: attempt 1"),
            (2, "broken: attempt 2"),
        ]
    with Served(broker.url, "flaky", fail=99):
        job = client.submit_job("flaky", "y", retries=1)
        with pytest.raises(CallFailed, match="attempt 2"):
            client.result(job, wait=PATIENCE)
        assert client.job(job)["state"] == "dead"


def test_dead_jobs_are_retried_and_dropped(broker: Broker, client: Client) -> None:
    with Served(broker.url, "flaky", fail=3):
        jobs = [client.submit_job("flaky", str(n), retries=0) for n in range(3)]
        for job in jobs:
            with pytest.raises(CallFailed):
                client.result(job, wait=PATIENCE)
        assert len(client_run(client, "dead")) == 3
        assert order(client, "retry", job=jobs[0]) == 1
        assert client.result(jobs[0], wait=PATIENCE).text == "0"
        assert order(client, "drop", job=jobs[0]) == 0  # it is not dead any more
        assert order(client, "drop", job=jobs[1]) == 1
        with pytest.raises(NoSuchJob):
            client.job(jobs[1])
        assert order(client, "retry", service="flaky") == 1
        assert client.result(jobs[2], wait=PATIENCE).text == "2"


def client_run(client: Client, state: str) -> list[str]:
    return [row["job"] for row in client.list_jobs(state)]


def order(client: Client, what: str, job: str = "", service: str = "") -> int:
    return (client.retry_dead if what == "retry" else client.drop_dead)(job, service=service)


def test_a_worker_can_set_the_retry_delay(broker: Broker, client: Client) -> None:
    calls: list[float] = []

    def busy(call: Call) -> str:
        calls.append(time.monotonic())
        if call.attempt == 1:
            raise Retry("not now", after=0.5)
        return "done"

    worker = Worker(broker.url)
    worker.add("busy", busy)
    with worker:
        job = client.submit_job("busy", retries=Backoff(attempts=2, first=3600.0, most=3600.0))
        assert client.result(job, wait=PATIENCE).text == "done"
        assert calls[1] - calls[0] >= 0.5
        with pytest.raises(CallFailed, match="not now"):
            client.call("busy", timeout=PATIENCE)  # an ordinary request is not repeated


def test_jobs_are_cancelled(broker: Broker, client: Client) -> None:
    job = client.submit_job("nobody", "x")
    assert client.cancel(job)["state"] == "cancelled"
    assert client.cancel(job)["state"] == "cancelled"
    with pytest.raises(CallFailed, match="cancelled"):
        client.result(job, wait=PATIENCE)
    with Served(broker.url, "upper") as served:
        served.hold = threading.Event()
        job = client.submit_job("upper", "x")
        broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
        assert client.cancel(job)["state"] == "cancelled"
        served.hold.set()
        assert client.result(client.submit_job("upper", "next"), wait=PATIENCE).text == "NEXT"
        assert client.job(job)["state"] == "cancelled"


def test_an_open_request_is_cancelled_by_its_id(broker: Broker, client: Client) -> None:
    waiting = client.submit("nobody", "x")
    broker.wait_until(lambda server: b"nobody" in server.broker.services)
    (row,) = [row for row in client.call("polydomo.requests", timeout=PATIENCE).json() if row["service"] == "nobody"]
    assert client.cancel(row["request"])["state"] == "cancelled"
    with pytest.raises(CallFailed, match="cancelled"):
        waiting.result(PATIENCE)
    with pytest.raises(NoSuchJob):
        client.cancel("01KDVDNA000000000000000000")


def test_a_time_to_live_and_priorities(broker: Broker, client: Client) -> None:
    short = client.submit_job("upper", "short", ttl=0.1)
    with pytest.raises(CallFailed, match="expired"):
        client.result(short, wait=PATIENCE)
    jobs = [client.submit_job("upper", str(priority), priority=priority) for priority in (0, 5, -5, 9)]
    with Served(broker.url, "upper") as served:
        for job in jobs:
            client.result(job, wait=PATIENCE)
        assert [text for text, _, _ in served.calls] == ["9", "5", "0", "-5"]


def test_an_attempt_that_exceeds_its_timeout_is_ended(broker: Broker, client: Client) -> None:
    with Served(broker.url, "slow") as served:
        served.hold = threading.Event()
        job = client.submit_job("slow", "x", run_timeout=0.1, retries=0)
        with pytest.raises(CallFailed, match="timeout"):
            client.result(job, wait=PATIENCE)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key": "k" * 300}, "key"),
        ({"delay": -1.0}, "delay"),
        ({"priority": 10**9}, "priority"),
        ({"retries": 10**6}, "attempts"),
    ],
)
def test_invalid_values_are_refused(client: Client, wrong: dict[str, object], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        client.submit_job("upper", "x", **wrong)  # type: ignore[arg-type]


def test_names_and_ids_that_are_not_there(client: Client) -> None:
    with pytest.raises(NoSuchJob):
        client.result("01KDVDNA000000000000000000")
    with pytest.raises(SettingError, match="26 letters"):
        client.job("nonsense")
    with pytest.raises(SettingError, match="built-in service"):
        client.submit_job("polydomo.status", "x")


def test_a_broker_without_a_store_reports_it() -> None:
    with (
        polydomo.testing.broker() as broker,
        Client(broker.url) as client,
        pytest.raises(CallError, match="has no job store"),
    ):
        client.submit_job("upper", "x")


# --- plain requests to durable services ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_plain_request_to_a_durable_service(broker: Broker, protocol: str) -> None:
    with Served(broker.url, "kept.upper") as served, Client(broker.url, protocol, timeout=PATIENCE) as client:
        headers = {"guarantee": True} if protocol == "emqp" else None
        assert client.call("kept.upper", "hello", headers=headers).text == "HELLO"
        assert client.call("kept.upper", "hello", headers=headers).text == "HELLO"
        assert len(served.calls) == 2  # two requests of one client are two requests
        assert len(client_run(client, "done")) == 2


@pytest.mark.parametrize("protocol", ["emqp", "mdx"])
def test_a_durable_request_keeps_its_headers_and_trace(broker: Broker, protocol: str) -> None:
    """A job has its id over every worker protocol; an eMQP worker also gets the headers of the request."""
    seen: list[Call] = []

    def run(call: Call) -> str:
        seen.append(call)
        return "done"

    worker = Worker(broker.url, protocol)
    worker.add("kept.mail", run)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with worker, Client(broker.url, "emqp", timeout=PATIENCE) as client:
        headers: dict[str, str | int | float | bool] = {"x-order": "17", "x-rush": True, "traceparent": trace}
        assert client.call("kept.mail", "now", headers=headers).text == "done"
    (call,) = seen
    assert len(call.job) == 26 and call.attempt == 1
    if protocol == "emqp":
        assert (call.headers["x-order"], call.headers["x-rush"], call.headers["traceparent"]) == ("17", "", trace)
        assert (call.headers["job"] == call.job and "timeout" not in call.headers) or float(call.headers["timeout"]) > 0


def test_the_guarantee_header_makes_one_request_durable(broker: Broker) -> None:
    with Served(broker.url, "plain"), Client(broker.url, "emqp", timeout=PATIENCE) as client:
        assert client.call("plain", "a").text == "A"
        assert client_run(client, "done") == []
        assert client.call("plain", "b", headers={"guarantee": True}).text == "B"
        assert len(client_run(client, "done")) == 1


@pytest.mark.parametrize("protocol", ["mdx", "mdp1"])
def test_a_repeat_after_a_crash_gets_the_stored_result(broker: Broker, protocol: str) -> None:
    with Served(broker.url, "durable") as served:
        served.hold = threading.Event()
        with Client(broker.url, protocol, timeout=PATIENCE) as client:
            first = client.submit("durable", "work")
            broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
            broker.kill()
            with pytest.raises(CallError):
                first.result()
        broker.start()
        served.hold.set()
        broker.wait_for("durable", timeout=PATIENCE)
        with Client(broker.url, protocol, timeout=PATIENCE) as client:
            assert client.call("durable", "work").text == "WORK"
            assert len(served.calls) == 2  # once before the crash, once after it
            assert client.call("durable", "work").text == "WORK"  # a new request
            assert len(served.calls) == 3


def test_a_failure_of_a_plain_durable_request_is_reported_at_once(broker: Broker, client: Client) -> None:
    with Served(broker.url, "durable", fail=1) as served:
        with pytest.raises(CallFailed, match="attempt 1"):
            client.call("durable", "x")
        assert len(served.calls) == 1
        assert len(client_run(client, "dead")) == 1


def test_a_plain_durable_request_outlives_its_client(broker: Broker, client: Client) -> None:
    with Client(broker.url, timeout=PATIENCE) as first:
        first.submit("durable", "left behind")
        broker.wait_until(lambda server: len(server.broker.durable.jobs.open) == 1)  # type: ignore[union-attr]
        rows = client.call("polydomo.requests").json()
        assert [row["state"] for row in rows if row["protocol"] == "mdx"] == ["waiting"]
    with Served(broker.url, "durable") as served:
        broker.wait_until(lambda server: not server.broker.durable.jobs.open)  # type: ignore[union-attr]
        assert client.call("durable", "left behind").text == "LEFT BEHIND"
        assert len(served.calls) == 1


# --- schedules ---------------------------------------------------------------------------------------------------------------


def test_a_schedule_submits_jobs_also_after_a_restart(broker: Broker, client: Client) -> None:
    with Served(broker.url, "upper") as served:
        client.schedule("tick", "every 0.2s", "upper", "tick")
        wait_for(lambda: len(served.calls) >= 3)
        broker.kill()
        broker.start()
        count = len(served.calls)
        wait_for(lambda: len(served.calls) >= count + 2)
        rows = client.schedules()
        assert [(row["name"], row["when"]) for row in rows] == [("tick", "every 0.2s")]
        client.unschedule("tick")
        with pytest.raises(NoSuchJob):
            client.unschedule("tick")
        with pytest.raises(SettingError, match="zone"):
            client.schedule("bad", "@daily", "upper", zone="Mars/Base")


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- control ---------------------------------------------------------------------------------------------------------------


def test_a_paused_service_queues_requests_until_it_resumes(broker: Broker, client: Client) -> None:
    run = client._background.run
    jobs = client._client.jobs
    with Served(broker.url, "upper") as served:
        broker.wait_for("upper")
        run(jobs.order("pause", {"service": "upper"}, PATIENCE))
        plain = client.submit("upper", "plain")
        job = client.submit_job("upper", "job")
        broker.wait_until(lambda server: len(server.broker.paused[b"upper"]) == 1)
        assert served.calls == []
        (listed,) = client.call("polydomo.services").json()
        assert (listed["state"], listed["queued"]) == ("paused", 1)
        (waiting,) = client.call("polydomo.requests").json()
        assert (waiting["state"], waiting["why"]) == ("queued", "the service is paused")
        row = run(jobs.order("resume", {"service": "upper"}, PATIENCE))
        assert not row["paused"] and row["known"]
        (listed,) = client.call("polydomo.services").json()
        assert listed["state"] in ("ready", "busy")
        assert plain.result(PATIENCE).text == "PLAIN"
        assert client.result(job, wait=PATIENCE).text == "JOB"


def test_a_worker_is_drained_by_its_name(broker: Broker, client: Client) -> None:
    run = client._background.run
    jobs = client._client.jobs
    first, second = Worker(broker.url, name="gpu-1"), Worker(broker.url, name="gpu-2")
    first.add("who", lambda call: "one")
    second.add("who", lambda call: "two")
    with first, second:
        broker.wait_for("who", 2)
        row = run(jobs.order("drain", {"worker": "gpu-1"}, PATIENCE))
        assert [worker["name"] for worker in row["workers"]] == ["gpu-1"]
        assert {client.call("who", timeout=PATIENCE).text for _ in range(6)} == {"two"}
        run(jobs.order("resume", {"worker": "gpu-1"}, PATIENCE))
        assert {client.call("who", timeout=PATIENCE).text for _ in range(6)} == {"one", "two"}
        listed = client.call("polydomo.workers", timeout=PATIENCE).json()
        assert {row["name"] for row in listed} == {"gpu-1", "gpu-2"}


def test_a_drained_service_takes_nothing_new(broker: Broker, client: Client) -> None:
    run = client._background.run
    jobs = client._client.jobs
    with Served(broker.url, "upper"):
        broker.wait_for("upper")
        run(jobs.order("drain", {"service": "upper"}, PATIENCE))
        with pytest.raises(CallFailed, match="drained"):
            client.call("upper", "x")
        run(jobs.order("resume", {"service": "upper"}, PATIENCE))
        assert client.call("upper", "x").text == "X"


def test_a_jump_of_the_wall_clock_is_logged(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker._server is not None and broker._server.job_store is not None
    store = broker._server.job_store
    monkeypatch.setattr(store, "tick", lambda: None)  # the real clock has not jumped
    with caplog.at_level(logging.WARNING, "polydomo"):
        for shift in (0.0, 30.0, 3_600.0, -86_400.0, -86_410.0):
            store.follow_clock(shift)
    lines = [record for record in caplog.records if "the clock was set" in record.getMessage()]
    assert ["forward" in line.getMessage() for line in lines] == [True, False]
    assert [line.__dict__["fields"]["seconds"] for line in lines] == [3_570.0, -90_000.0]
    assert store.durable.wall_shift == -86_410.0
