"""Durable jobs from the shell, against a real broker."""

import json
import time
import zoneinfo
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import polydomo
from tests.cli import shell
from tests.cli.shell import complaint


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shell.Broker]:
    with shell.Broker(tmp_path_factory.mktemp("data"), "--journal-level=off") as broker:
        yield broker


def said(broker: shell.Broker, *words: str, status: int = 0) -> str:
    result = shell.run(*words, POLYDOMO_TO=broker.url)
    assert result.returncode == status, result.stderr
    return result.stdout.decode().strip()


def test_submit_each_line(broker: shell.Broker, tmp_path: Path) -> None:
    (tmp_path / "bodies").write_bytes(b"one\n\nthree\xff\n")
    words = (
        "submit",
        "lines",
        "--each-line",
        str(tmp_path / "bodies"),
        "--idempotency-key",
        "monday",
        "--priority",
        "4",
    )
    ids = said(broker, *words).split()
    assert len(ids) == 2
    assert json.loads(said(broker, *words, "--json")) == [{"job": id} for id in ids]
    rows = [json.loads(said(broker, "job", id, "--json")) for id in ids]
    assert [(row["key"], row["body_bytes"], row["priority"]) for row in rows] == [
        ("monday-1", 3, 4),
        ("monday-3", 6, 4),
    ]
    piped = shell.run("submit", "lines", "--each-line", "-", stdin=b"a\nb\nc", POLYDOMO_TO=broker.url)
    assert len(piped.stdout.split()) == 3
    wrong = shell.run("submit", "lines", "body", "--each-line", "-", POLYDOMO_TO=broker.url)
    assert wrong.returncode == 2 and "the bodies are the lines" in complaint(wrong)
    missing = shell.run("submit", "lines", "--each-line", str(tmp_path / "missing"), POLYDOMO_TO=broker.url)
    assert missing.returncode == 2 and "cannot read" in complaint(missing)


def test_submit_work_and_result(broker: shell.Broker, tmp_path: Path) -> None:
    job = said(broker, "submit", "upper", "hello", "--idempotency-key", "k1", "--priority", "3")
    assert said(broker, "submit", "upper", "hello", "--idempotency-key", "k1") == job
    reused = shell.run("submit", "upper", "other", "--idempotency-key", "k1", POLYDOMO_TO=broker.url)
    assert reused.returncode == 1 and "key-reused" in complaint(reused)
    assert complaint(shell.run("result", job, POLYDOMO_TO=broker.url)) == "the job has no outcome yet"
    with shell.Running(
        "work", "upper", "--name", "shouter", "--to", broker.url, "--log-json", "--", "tr", "a-z", "A-Z"
    ):
        assert said(broker, "result", job, "--wait", "30s") == "HELLO"
        assert "w1 (shouter)" in said(broker, "workers")
    row = json.loads(said(broker, "job", job, "--json"))
    assert (row["state"], row["priority"], row["key"], row["attempts"]) == ("done", 3, "k1", 1)
    assert job in said(broker, "jobs", "--state", "done")
    assert "1 done" in said(broker, "status")


def test_a_job_of_a_paused_service_says_so(broker: shell.Broker) -> None:
    said(broker, "pause", "resting")
    job = said(broker, "submit", "resting", "hello")
    for wait in ("0", "100ms"):
        result = shell.run("result", job, "--wait", wait, POLYDOMO_TO=broker.url)
        assert complaint(result) == "the job has no outcome yet: its service is paused"
        assert result.returncode == 3


def test_cancel_and_what_is_not_there(broker: shell.Broker) -> None:
    job = said(broker, "submit", "nobody", "x", "--delay", "1h", "--ttl", "2h", "--retries", "2", "--backoff", "5s")
    assert said(broker, "cancel", job) == f"cancelled {job}"
    said(broker, "result", job, status=1)
    said(broker, "job", "01KDVDNA000000000000000000", status=4)
    said(broker, "job", "nonsense", status=2)
    said(broker, "submit", "x", "--at", "soon", status=2)


def test_dead_jobs(broker: shell.Broker) -> None:
    with shell.Running("work", "broken", "--to", broker.url, "--log-json", "--", "false"):
        job = said(broker, "submit", "broken", "x", "--retries", "0")
        said(broker, "result", job, "--wait", "30s", status=1)
    assert job in said(broker, "dead")
    assert said(broker, "dead", "retry", job) == "retried 1"
    said(broker, "dead", "retry", job, status=4)
    said(broker, "dead", "drop", status=2)
    assert said(broker, "cancel", job) == f"cancelled {job}"
    assert said(broker, "dead", "drop", "--all") == "dropped 0"


def test_schedules(broker: shell.Broker) -> None:
    assert said(
        broker, "schedule", "add", "nightly", "30 2 * * *", "backup", "all", "--zone", "Europe/Berlin"
    ).startswith("nightly: next at")
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    (row,) = json.loads(said(broker, "schedule", "ls", "--json"))
    due = datetime.fromisoformat(row["next"]).astimezone(zone)
    assert f"{due:%Y-%m-%d} 02:30:00 Europe/Berlin" in said(broker, "schedule", "ls")
    job = said(broker, "schedule", "run", "nightly")
    assert json.loads(said(broker, "job", job, "--json"))["schedule"] == "nightly"
    assert said(broker, "schedule", "rm", "nightly") == "removed nightly"
    said(broker, "schedule", "rm", "nightly", status=4)
    said(broker, "schedule", "add", "wrong", "61 * * * *", "backup", status=2)


def test_control(broker: shell.Broker) -> None:
    assert said(broker, "pause", "upper").startswith("upper: paused")
    assert said(broker, "resume", "upper").startswith("upper: serving")
    assert said(broker, "drain", "upper").startswith("upper: drained")
    assert said(broker, "resume", "upper").startswith("upper: serving")


def test_named_arguments_of_a_typed_service(broker: shell.Broker) -> None:
    """Without a worker, the broker does not know the schema: --named says what NAME=VALUE means."""
    early = said(broker, "submit", "add", "a=40", "b=2", "--named")
    text = shell.run("submit", "later", "a=1", "--to", broker.url)
    assert text.returncode == 0 and b"no worker offers later now, so a=1 is sent as text; --named" in text.stderr
    worker = polydomo.Worker(broker.url)

    @worker.service("add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    @worker.service("later")
    def later(call: polydomo.Call) -> str:
        return call.text

    with worker, polydomo.Client(broker.url) as client:
        deadline = time.monotonic() + shell.PATIENCE
        while not client.call("polydomo.schema", "add").json():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert said(broker, "result", early, "--wait", "60") == "42"
        assert said(broker, "result", text.stdout.decode().strip(), "--wait", "60") == "a=1"
        assert said(broker, "submit", "add", "a=1", "b=2", "--wait", "60") == "3"
        assert said(broker, "submit", "later", "a=1", "--wait", "60") == "a=1"
        wrong = shell.run("submit", "add", "a=1", "b=two", POLYDOMO_TO=broker.url)
        assert wrong.returncode == 2 and "b: must be integer" in complaint(wrong)
        said(broker, "schedule", "add", "sum", "every 1h", "add", "a=3", "b=4")
        assert said(broker, "result", said(broker, "schedule", "run", "sum"), "--wait", "60") == "7"
    wrong = shell.run("submit", "add", "1", "--named", POLYDOMO_TO=broker.url)
    assert wrong.returncode == 2 and "--named: the arguments must be NAME=VALUE" in complaint(wrong)
