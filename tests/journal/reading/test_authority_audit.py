"""The audit judges by the principal that caused something: what older brokers recorded of requests without a principal is found, and the
journal of a broker that carries principals is in order."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from polydomo.journal import schema
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.authority.place import Place, Worker, schedule, wait_for

Row = dict[str, Any]


def journal(*rows: Row) -> list[Row]:
    """A run with access control: the broker has granted alice `echo`, and then these rows."""
    numbers = count(1)
    first: Row = {"event": schema.STARTED}
    granted: Row = {"event": schema.ACCESS, "outcome": "call", "principal": "alice", "service": "echo", "allowed": 1}
    made = []
    for row in (first, granted, *rows):
        made.append({**schema.row(MESSAGES, **row), "run": 1, "broker": "b", "seq": next(numbers), "time": 0})
    return made


# What the broker recorded before requests carried their principals, for each case of which it recorded anything.
FIRED: Row = {
    "event": schema.JOB,
    "outcome": "fired",
    "service": "secret",
    "schedule": "emqp-0123456789abcdef",
    "job": "A",
}
ATTEMPT: Row = {
    "event": schema.ACCEPTED,
    "protocol": "job",
    "service": "secret",
    "client": 9,
    "connection": 9,
    "number": 1,
}
SCHEDULER: Row = {"event": schema.REGISTERED, "protocol": "emqp", "principal": "mallory", "worker": 3, "connection": 4}
EVALUATED: Row = {
    "event": schema.ACCESS,
    "outcome": "call",
    "principal": "mallory",
    "service": "polydomo.pause",
    "allowed": 1,
}
EVALUATION = {**ATTEMPT, "protocol": "memodb"}
FALLBACK = {**ATTEMPT, "protocol": "emqp", "principal": "mallory", "service": "topsecret", "allowed": 2}
KEYED = {**ATTEMPT, "protocol": "keyed"}
FORWARDED: Row = {"event": schema.FORWARDED, "service": "topsecret", "client": 9, "number": 1, "allowed": 2}
UNASKED: Row = {"event": schema.JOB, "outcome": "accepted", "service": "secret", "principal": "mallory", "job": "A"}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (FIRED, "job-with-the-right"),
        (ATTEMPT, "origin-known"),
        (SCHEDULER, "registered-with-the-right"),
        (EVALUATED, "no-call-of-built-in"),
        (EVALUATION, "origin-known"),
        (FALLBACK, "called-with-the-right"),
        (KEYED, "origin-known"),
        (FORWARDED, "forwarded-with-the-right"),
        (UNASKED, "job-with-the-right"),
    ],
    ids="schedule attempt scheduler evaluate evaluation fallback keyed forward unasked".split(),
)
def test_what_older_brokers_recorded_is_found(row: Row, rule: str) -> None:
    found = audit(journal(row))
    assert [breach.rule for breach in found] == [rule]
    assert str(found[0])


def test_without_access_control_nothing_is_judged() -> None:
    rows = [row for row in journal(FIRED, ATTEMPT, EVALUATION, KEYED) if row["event"] != schema.ACCESS]
    for number, row in enumerate(rows, 1):
        row["seq"] = number
    assert audit(rows) == []


def test_a_job_of_its_principal_is_in_order() -> None:
    job: Row = {"event": schema.JOB, "outcome": "accepted", "service": "echo", "principal": "alice", "job": "A"}
    assert audit(journal(job)) == []
    revoked: Row = {"event": schema.ACCESS, "outcome": "call", "principal": "alice", "service": "echo", "allowed": 2}
    assert [breach.rule for breach in audit(journal(revoked, job))] == ["job-with-the-right"]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_journal_of_a_broker_with_access_control(tmp_path: Path, processes: int) -> None:
    with Place(tmp_path, processes, "--journal-level=messages") as place:
        workers = [Worker(place, "open"), Worker(place, "secret"), Worker(place, "chain", forwards="open")]
        wait_for(lambda: sum(bool(row["workers"]) for row in place.ask("services")) == 3, "workers")
        place.change('call = ["open", "default", "secret",', 'call = ["chain", "open", "default", "secret",')
        alice = place.http("alice")
        for headers in ({}, {"idempotency-key": "k"}, {"prefer": "respond-async"}):
            # 502: a request that crossed to another process is not forwarded back to its own
            assert alice.post("/v1/call/chain", content=b"x", headers=headers).status_code in (200, 202, 502)
            assert place.http("bob").post("/v1/call/chain", content=b"x", headers=headers).status_code in (202, 403)
            assert place.call("alice", "secret", b"y") == [b"secret:y"]
        stored = alice.post("/cid", content=b"argument", headers={"content-type": "application/octet-stream"})
        cid = stored.headers["location"].rpartition("/")[2]
        assert alice.post(f"/call/open/{cid}/evaluate", headers={"prefer": "wait=10"}).status_code == 200
        with place.emqp("alice") as client:
            schedule(client, b"secret", b"payload")
            wait_for(lambda: len(place.ask("schedules", {})["schedules"]) == 1, "the schedule")
            place.ask("fire", {"name": place.ask("schedules", {})["schedules"][0]["name"]})
            wait_for(lambda: b"payload" in workers[1].heard, "its run")
        wait_for(lambda: not place.ask("jobs", {"state": "open"})["jobs"], "the jobs end")
        for worker in workers:
            worker.close()
    reader = Reader([tmp_path / "data" / "journal"])
    rows = [row for kind in (MESSAGES, REQUESTS) for row in reader.rows(kind)]
    jobs = {row["principal"] for row in rows if row.get("event") == schema.JOB and row["outcome"] == "accepted"}
    assert jobs == {"alice"}
    inside = {row["principal"] for row in rows if row.get("event") == schema.ACCEPTED and row["protocol"] == "keyed"}
    assert inside == {"alice"}
    assert audit(rows) == []
