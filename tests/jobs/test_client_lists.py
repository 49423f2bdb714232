"""Lists of jobs, dead jobs and schedules, and schedules that a program declares, from ``Client`` and ``AsyncClient``."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from polydomo import (
    AsyncClient,
    Call,
    CallFailed,
    Client,
    ConnectionLost,
    NoSuchJob,
    NotConnected,
    Permanent,
    SettingError,
    Worker,
    testing,
)
from polydomo.client.jobs import JobClient
from polydomo.model.jobs.messages import write_message

WAIT = 60.0


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker(jobs=True) as broker:
        yield broker


@pytest.fixture
def client(broker: testing.Broker) -> Iterator[Client]:
    with Client(broker.url, timeout=WAIT) as client:
        yield client


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def broken(broker: testing.Broker) -> Worker:
    worker = Worker(broker.url)

    @worker.service("broken")
    def fails(call: Call) -> str:
        if call.text == "bad":
            raise Permanent("no good")
        return call.text

    return worker


def test_jobs_are_listed_by_state_and_service(broker: testing.Broker, client: Client) -> None:
    first, second = client.submit_job("one", "x"), client.submit_job("two", "x", delay=3600)
    assert {row["job"] for row in client.list_jobs()} == {first, second}
    assert [(row["job"], row["state"]) for row in client.list_jobs(service="one")] == [(first, "queued")]
    assert [row["job"] for row in client.list_jobs("delayed")] == [second]
    assert client.list_jobs("done") == [] and len(client.list_jobs(limit=1)) == 1
    with pytest.raises(SettingError, match="state: 'lost' must be"):
        client.list_jobs("lost")


def test_dead_jobs_are_listed_tried_again_and_dropped(broker: testing.Broker, client: Client) -> None:
    with broken(broker):
        jobs = [client.submit_job("broken", "bad") for _ in range(3)]
        wait_until(lambda: len(client.dead_jobs()) == 3)
        assert {row["reason"] for row in client.dead_jobs(service="broken")} == {"permanent: no good"}
        assert client.dead_jobs(service="other") == []
        assert client.retry_dead(jobs[0]) == 1
        wait_until(lambda: len(client.dead_jobs()) == 3)
        assert client.drop_dead(jobs[0]) == 1 and client.drop_dead(jobs[0]) == 0
        assert client.drop_dead(service="broken") == 2
        assert client.dead_jobs() == [] and client.retry_dead(all=True) == 0
    with pytest.raises(SettingError, match="give one of a job's id, service= and all=True"):
        client.retry_dead()
    with pytest.raises(SettingError, match="give one of"):
        client.drop_dead("x", all=True)


def test_schedules_are_declared_in_code(broker: testing.Broker, client: Client) -> None:
    declared = client.schedule("nightly", "30 2 * * *", "broken", "x", zone="Europe/Berlin")
    assert declared["name"] == "nightly" and declared["next"].endswith("Z")
    client.schedule("often", "every 1h", "broken", word="x", missed="skip", retries=3, run_timeout=5)
    rows = {row["name"]: row for row in client.schedules()}
    assert set(rows) == {"nightly", "often"}
    assert (rows["nightly"]["when"], rows["nightly"]["zone"]) == ("30 2 * * *", "Europe/Berlin")
    assert (rows["often"]["missed"], rows["often"]["problem"]) == ("skip", "")
    with broken(broker):
        job = client.run_schedule("often")
        assert client.result(job, wait=WAIT).json() == {"word": "x"}
    client.unschedule("nightly")
    assert [row["name"] for row in client.schedules()] == ["often"]
    for order in (client.unschedule, client.run_schedule):
        with pytest.raises(NoSuchJob, match="no such schedule: 'nightly'"):
            order("nightly")
    with pytest.raises(SettingError):
        client.schedule("wrong", "every now and then", "broken")


def test_a_schedule_that_is_declared_again_keeps_its_next_run_unless_it_changed(
    broker: testing.Broker, client: Client
) -> None:
    first = client.schedule("daily", "every 24h", "report", "x")["next"]
    time.sleep(0.01)  # an interval that began anew would be later by this
    assert client.schedule("daily", "every 24h", "report", "x")["next"] == first
    broker.stop()
    broker.start()
    assert client.schedule("daily", "every 24h", "report", "x")["next"] == first
    assert client.schedule("daily", "every 24h", "report", "y")["next"] > first
    assert client.schedule("daily", "every 23h", "report", "y")["next"] < first
    (row,) = client.schedules()
    assert row["when"] == "every 23h"


def test_the_asyncio_client(broker: testing.Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url, timeout=WAIT) as client:
            job = await client.submit_job("nobody", "x")
            assert [row["job"] for row in await client.list_jobs("queued")] == [job]
            assert await client.dead_jobs() == []
            assert (await client.retry_dead(all=True), await client.drop_dead(all=True)) == (0, 0)
            await client.schedule("hourly", "every 1h", "nobody", n=1)
            assert [row["name"] for row in await client.schedules()] == ["hourly"]
            assert (await client.job(await client.run_schedule("hourly")))["schedule"] == "hourly"
            await client.unschedule("hourly")
            assert await client.schedules() == []

    asyncio.run(main())


def test_a_run_of_a_schedule_is_not_repeated_after_a_lost_connection() -> None:
    asked: list[str] = []
    errors: list[Exception] = []

    async def ask(service: str, body: list[bytes], timeout: float, on_progress: object) -> list[bytes]:
        asked.append(service)
        if errors:
            raise errors.pop()
        return write_message({"job": "01KDVDNA000000000000000000", "schedules": []})

    async def main() -> None:
        jobs = JobClient(ask, lambda leader: None)
        errors.append(ConnectionLost("the answer was lost"))
        with pytest.raises(ConnectionLost):
            await jobs.fire("nightly", WAIT)
        errors.append(NotConnected("it was not sent"))
        assert await jobs.fire("nightly", WAIT) == "01KDVDNA000000000000000000"
        errors.append(ConnectionLost("the answer was lost"))
        assert await jobs.schedules(WAIT) == []

    asyncio.run(main())
    assert asked == ["polydomo.fire"] * 3 + ["polydomo.schedules"] * 2


def test_a_broker_without_a_store_says_so() -> None:
    with testing.broker() as broker, Client(broker.url, timeout=WAIT) as client:
        with pytest.raises(CallFailed, match="no job store"):
            client.list_jobs()
        with pytest.raises(CallFailed, match="no job store"):
            client.schedule("x", "every 1h", "y")
