"""Real brokers on damaged stores: clients get errors that say so, workers get no wrong body, and everything else works."""

import logging
from pathlib import Path

import psycopg
import pytest

import polydomo.testing
from polydomo import Client, Worker
from polydomo.errors import CallFailed
from polydomo.testing import Broker
from tests.jobs.test_end_to_end import PATIENCE, wait_for
from tests.jobs.test_outside import health, leader_and_second
from tests.plain_http import http_client
from tests.postgres import Postgres


def upper(broker: Broker, seen: "list[str]") -> Worker:
    worker = Worker(broker.url)

    def run(call: polydomo.Call) -> str:
        seen.append(call.text)
        return call.text.upper()

    worker.add("upper", run)
    return worker


def check_jobs(broker: Broker, jobs: "dict[str, str]") -> None:
    """``right`` has its result; the result of ``wrong`` and the body of ``waiting`` have changed."""
    seen: list[str] = []
    with Client(broker.url, timeout=PATIENCE) as client, upper(broker, seen):
        assert client.result(jobs["right"], wait=PATIENCE).text == "RIGHT"
        for name, reason in (("wrong", "the stored result is damaged"), ("waiting", "the stored body is damaged")):
            with pytest.raises(CallFailed, match=reason) as caught:
                client.result(jobs[name], wait=PATIENCE)
            assert caught.value.code == "damaged"
            found = client.job(jobs[name])
            assert (found["state"], found["outcome"]) == ("dead", "damaged")
        assert client.result(jobs["later"], wait=PATIENCE).text == "LATER"
    assert seen == ["later"]
    with http_client(broker.url, timeout=PATIENCE) as http:
        answer = http.get(f"/v1/jobs/{jobs['wrong']}/result")
        assert answer.status_code == 502 and "the stored result is damaged" in answer.text
        dead = http.get("/v1/dead").json()
        rows = dead["jobs"] if isinstance(dead, dict) else dead
        assert {row["job"] for row in rows} == {jobs["wrong"], jobs["waiting"]}


def submit(broker: Broker) -> "dict[str, str]":
    """Two jobs with results, and two that wait for a worker."""
    seen: list[str] = []
    with Client(broker.url, timeout=PATIENCE) as client:
        with upper(broker, seen):
            jobs = {name: client.submit_job("upper", name) for name in ("right", "wrong")}
            for id in jobs.values():
                client.result(id, wait=PATIENCE)
        return jobs | {name: client.submit_job("upper", name) for name in ("waiting", "later")}


def test_a_broker_on_a_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"data": str(tmp_path / "data"), "store": "sqlite"}
    with polydomo.testing.broker(settings=settings, jobs=True) as broker:
        jobs = submit(broker)
    path = tmp_path / "data" / "jobs.db"
    content = path.read_bytes()
    for old, new in ((b"WRONG", b"WRONh"), (b"waiting", b"waitinf")):
        assert content.count(old) >= 1
        content = content.replace(old, new)
    path.write_bytes(content)
    with polydomo.testing.broker(settings=settings, jobs=True) as broker:
        check_jobs(broker, jobs)
    assert "a stored job is damaged; it is dead now" in caplog.text
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.ERROR]
    with polydomo.testing.broker(settings=settings, jobs=True) as broker, Client(broker.url) as client:
        assert client.job(jobs["waiting"])["outcome"] == "damaged"  # recorded


@pytest.mark.xdist_group("postgres")
def test_two_brokers_on_a_database_that_was_changed_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    server = Postgres()
    try:
        server.start()
        with leader_and_second(server) as (first, second):
            jobs = submit(first)
            with psycopg.connect(server.url) as database:
                epoch = database.execute("SELECT epoch FROM polydomo.lease").fetchone()
                change = "UPDATE polydomo.jobs SET {0} = overlay({0} placing '!' from octet_length({0})) WHERE id = %s"
                for name, column in (("wrong", "result"), ("waiting", "body")):
                    assert database.execute(change.format(column).encode(), (jobs[name],)).rowcount == 1
            first.kill()
            server.expire_lease()
            wait_for(lambda: health(second) == 200)
            check_jobs(second, jobs)
            with psycopg.connect(server.url) as database:
                after = database.execute("SELECT epoch FROM polydomo.lease").fetchone()
                assert epoch is not None and after is not None and after[0] > epoch[0]
                rows = database.execute(
                    "SELECT state, octet_length(body) + octet_length(result) FROM polydomo.jobs WHERE outcome = 'damaged'"
                ).fetchall()
            assert rows == [("dead", 0), ("dead", 0)]
        assert not [record for record in caplog.records if record.exc_info]
    finally:
        server.remove()
