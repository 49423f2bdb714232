"""Records of durable jobs of a real broker: journal, ``trace``, ``watch``, ``/metrics``, the pipeline's tables and the report."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

import polydomo
from polydomo import Backoff
from polydomo.pipeline.report import load, page
from polydomo.pipeline.report.tables import Tables
from tests.cli.shell import Broker, run
from tests.pipeline.comparing import table_rows
from tests.pipeline.shared import load as load_tables

pytestmark = pytest.mark.xdist_group("spark")  # one process has the session

PATIENCE = 60.0
FAST = Backoff(attempts=2, first=0.05, most=0.05, jitter=0.0)


class Lived:
    """A broker that has run jobs, and their ids."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.done = self.dead = self.planned = ""


def flaky(call: polydomo.Call) -> bytes:
    if call.attempt < 2 or call.body == b"never":
        raise RuntimeError("out of paint")
    return call.body.upper()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    directory = tmp_path_factory.mktemp("records")
    flags = ("--journal", "requests", "--service", "kept.durable")
    with Broker(directory, *flags) as broker:
        made = Lived(broker, directory)
        worker = polydomo.Worker(broker.url, "mdx")
        worker.add("paint", flaky)
        worker.add("kept", lambda call: call.body)
        with worker, polydomo.Client(broker.url, timeout=PATIENCE) as client:
            made.done = client.submit_job("paint", "red", key="one", retries=FAST)
            made.dead = client.submit_job("paint", "never", retries=FAST)
            assert client.result(made.done, wait=PATIENCE).text == "RED"
            with pytest.raises(polydomo.CallFailed):
                client.result(made.dead, wait=PATIENCE)
            assert run("schedule", "add", "often", "every 1s", "kept", "x", "--to", broker.url).returncode == 0
            fired = run("schedule", "run", "often", "--to", broker.url)
            made.planned = fired.stdout.decode().split()[0]
            client.result(made.planned, wait=PATIENCE)
            assert client.call("kept", "hello").text == "hello"
        assert run("schedule", "rm", "often", "--to", broker.url).returncode == 0
        yield made


def traced(lived: Lived, job: str) -> Any:
    result = run("trace", job, "--to", lived.broker.url, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_trace_shows_every_step_of_a_job(lived: Lived) -> None:
    story = traced(lived, lived.done)
    assert story["summary"].startswith("job for `paint`: done after") and "2 attempts" in story["summary"]
    events = [step["event"] for step in story["steps"]]
    assert events[0] == "accepted" and events[-1] == "done"
    assert events.count("attempt") == 2 and events.count("retry") == 1
    retry = next(step["text"] for step in story["steps"] if step["event"] == "retry")
    assert "out of paint" in retry and "the next one in 50 ms" in retry
    assert "dead: ended as failed" in traced(lived, lived.dead)["steps"][-1]["text"]


def test_watch_and_metrics_count_jobs(lived: Lived) -> None:
    shown = run("watch", "--once", "--to", lived.broker.url).stdout.decode()
    assert "dead 1" in shown and "retried 2" in shown and " done" in shown
    url = lived.broker.url.replace("tcp://", "http://")
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        page = answer.read().decode()
    assert "polydomo_jobs_backoff_seconds_total 0.1\n" in page
    assert "polydomo_jobs_attempts_total" in page and 'polydomo_jobs_ended_total{state="dead"} 1\n' in page


def test_tables_and_report_have_the_jobs(lived: Lived) -> None:
    run("journal", "flush", "--to", lived.broker.url)
    traced(lived, lived.done)  # has everything written
    tables = lived.directory / "tables"
    summary = load_tables([str(next(lived.directory.rglob("journal")))], str(tables))
    assert not summary.breaches and not summary.problems
    jobs = {row["job"]: row for row in table_rows(tables, "jobs")}
    done, dead = jobs[lived.done], jobs[lived.dead]
    assert (done["state"], done["outcome"], done["attempts"], done["key"], done["origin"]) == (
        "done",
        "ok",
        2,
        "one",
        "job",
    )
    assert done["backoff_us"] == 50_000 and done["total_us"] >= 50_000 and done["submitted"] < done["ended"]
    assert (dead["state"], dead["outcome"], dead["attempts"]) == ("dead", "failed", 2) and "out of paint" in dead[
        "reason"
    ]
    assert jobs[lived.planned]["schedule"] == "often"
    requests = table_rows(tables, "requests")
    attempts = [row for row in requests if row["job"] == lived.done]
    assert [row["client_protocol"] for row in attempts] == ["job", "job"]
    assert sorted(row["outcome"] for row in attempts) == ["failed", "ok"]
    (asked,) = [row for row in requests if row["service"] == "kept" and row["client_protocol"] not in ("job", "")]
    plain = jobs[asked["job"]]
    assert plain["origin"] == "request" and plain["state"] == "done"
    found = load.load(Tables(tables))
    views = {view.service: view for view in found.jobs.services}
    assert (views["paint"].accepted, views["paint"].done, views["paint"].dead, views["paint"].open) == (2, 1, 1, 0)
    text = page.render(found)
    assert "<h2>Durable jobs</h2>" in text and lived.dead in text and "out of paint" in text
