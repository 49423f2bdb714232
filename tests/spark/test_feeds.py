"""What a live broker has, read into a spool: results of durable jobs and log records, each once, gaps noted. Without a JVM."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.logs
import polydomo.testing
from polydomo.errors import SettingError
from polydomo.spark.feeds import JobFeed, Logs, PagedFeed
from polydomo.spark.live_source import JOBS, LOGS, SCHEMAS, DataLoss, LiveReader, SpooledRows, Wanted, arrow_schema
from polydomo.spark.spool import Entry, Spool


def read(feed: PagedFeed, last: int) -> list[Entry]:
    """Reads pages until there are no more, as the thread would, and returns rows with numbers above ``last``."""
    feed.spool = Spool(*feed._place)

    async def all_pages() -> None:
        async with polydomo.AsyncClient(feed.to) as client:
            while await feed.page(client):
                pass

    try:
        asyncio.run(asyncio.wait_for(all_pages(), 60))
        return feed.spool.between(last, 10**9)
    finally:
        feed.spool.close()


def work(call: polydomo.Call) -> str:
    if call.text == "bad":
        raise polydomo.CallFailed("bad", "no such thing")
    return f"<{call.text}>"


def test_results_of_jobs_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    with polydomo.testing.broker(jobs=True, settings={"durable.attempts": 1}) as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("wanted.a", work)
        worker.add("other", work)
        feed = JobFeed(broker.url, ("wanted.",), str(tmp_path / "spool"), "jobs", {})
        with worker, polydomo.Client(broker.url) as client:
            assert read(feed, 0) == []
            jobs = [client.submit_job("wanted.a", str(n), key=f"key-{n}") for n in range(5)]
            ignored = client.submit_job("other", "x")
            failed = client.submit_job("wanted.a", "bad")
            for job in (*jobs, ignored):
                client.result(job, wait=60)
            with pytest.raises(polydomo.CallFailed):
                client.result(failed, wait=60)
            rows = read(feed, 0)
            done = [row for row in rows if row.more["state"] == "done"]
            assert sorted((row.body, row.more["key"]) for row in done) == [
                (f"<{n}>".encode(), f"key-{n}") for n in range(5)
            ]
            assert [row.time for row in rows] == sorted(row.time for row in rows)
            (dead,) = [row for row in rows if row.more["state"] == "dead"]
            assert dead.more["job"] == failed and "no such thing" in dead.more["reason"] and dead.body is None
            assert not any(row.gap for row in rows) and len(rows) == 6
            # read again, as after a restart: nothing twice; and again when another broker leads, from a minute before
            assert read(feed, rows[-1].n) == []
            spool = Spool(tmp_path / "spool", "jobs")
            spool.set_state("epoch", "another")
            spool.close()
            assert read(feed, rows[-1].n) == []
            # it was not read for longer than results are kept
            spool = Spool(tmp_path / "spool", "jobs")
            spool.set_state("read", repr(float(spool.state("read") or 0) - 1e7))
            spool.close()
            (gap,) = read(feed, rows[-1].n)
            assert gap.gap is not None and "results are kept for" in gap.gap


def test_pages_of_ended_jobs_go_on_where_the_last_one_ended() -> None:
    with polydomo.testing.broker(jobs=True) as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("paged", work)

        async def pages() -> list[str]:
            found: list[str] = []
            async with polydomo.AsyncClient(broker.url) as client:
                after = ""
                while (page := await client.jobs.ended(after, limit=3))["jobs"]:
                    assert len(page["jobs"]) <= 3
                    found += [row["job"] for row in page["jobs"]]
                    after = page["next"]
                with pytest.raises(SettingError, match="position"):
                    await client.jobs.ended("nonsense")
            return found

        with worker, polydomo.Client(broker.url) as client:
            jobs = [client.submit_job("paged", str(n)) for n in range(10)]
            for job in jobs:
                client.result(job, wait=60)
            found = asyncio.run(pages())
        assert len(found) == 10 and sorted(found) == sorted(jobs)


def test_log_records_and_their_gaps(tmp_path: Path) -> None:
    with polydomo.testing.broker() as broker:

        def keep_fifty(server: Any) -> bool:
            server.broker.publishing.log_records.max_records = 50
            return True

        broker.wait_until(keep_fifty)
        feed = Logs(broker.url, ("billing",), str(tmp_path / "spool"), "logs", {})
        assert read(feed, 0) == []

        def publish(*numbers: int) -> None:
            """All records of ``other`` first, then all of ``billing``: which of them the broker still has is known then."""
            for service in ("other", "billing"):
                handler = polydomo.logs.Handler(broker.url, service=service)
                for number in numbers:
                    handler.handle(
                        logging.makeLogRecord({"msg": f"number {number}", "levelno": 30, "levelname": "WARNING"})
                    )
                    published.append(number)

                def here(server: Any) -> bool:
                    records = server.broker.publishing.log_records.records
                    return bool(records) and records[-1].number == len(published)

                broker.wait_until(here)
                handler.close()

        published: list[int] = []  # since the broker was started
        publish(1, 2, 3)
        rows = read(feed, 0)
        assert [row.more["message"] for row in rows] == ["number 1", "number 2", "number 3"]
        assert {row.more["level"] for row in rows} == {"warning"} and not any(row.gap for row in rows)
        publish(*range(4, 104))  # more than the broker keeps
        later = read(feed, rows[-1].n)
        gaps = [row.gap for row in later if row.gap]
        assert len(gaps) == 1 and "log records are missing" in gaps[0]
        assert later[-1].more["message"] == "number 103"
        broker.stop()
        broker.start()
        published.clear()
        publish(104)
        last = read(feed, later[-1].n)
        assert [row.more.get("message") for row in last] == [None, "number 104"]
        assert last[0].gap is not None and "restarted" in last[0].gap


def test_rows_have_the_columns_of_their_schema(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    moment = datetime(2026, 1, 31, tzinfo=UTC)
    options = {"to": "tcp://127.0.0.1:1", "spool": str(tmp_path)}
    more = {"job": "J", "key": "", "state": "done", "outcome": "ok", "reason": "", "attempts": 1}
    reader = LiveReader(Wanted.of({**options, "jobs": "a.*"}))
    (batch,) = reader.read(
        SpooledRows([Entry(1, moment, "a.b", b"x", None, more), Entry(2, moment, None, None, "gap", {})])
    )
    assert batch.schema == arrow_schema(JOBS)
    assert batch.to_pylist()[0] == {"n": 1, "time": moment, "service": "a.b", "body": b"x", "gap": None, **more}
    assert batch.to_pylist()[1]["gap"] == "gap"
    reader = LiveReader(Wanted.of({**options, "logs": ""}))
    (batch,) = reader.read(
        SpooledRows([Entry(1, moment, "a", None, None, {"message": "m", "record": 7, "fields": json.dumps({"a": 1})})])
    )
    assert [field.name for field in batch.schema] == [part.split()[0] for part in SCHEMAS[LOGS].split(", ")]
    with pytest.raises(SettingError, match="one of the options"):
        Wanted.of({**options, "jobs": "a", "logs": "b"})


def test_a_gap_fails_the_query_where_that_is_wanted(tmp_path: Path) -> None:
    options = {"to": "tcp://127.0.0.1:1", "spool": str(tmp_path), "subscribe": "a.", "failOnDataLoss": "true"}
    reader = LiveReader(Wanted.of(options))
    reader._spool = Spool(tmp_path, reader.wanted.name)
    reader._spool.add_publications([("a.x", b"1")], set())
    assert len(reader.partitions({"n": 0}, {"n": 1})) == 1
    reader._spool.add_gap("not connected")
    with pytest.raises(DataLoss, match="not connected"):
        reader.partitions({"n": 0}, {"n": 2})
    reader._spool.close()
