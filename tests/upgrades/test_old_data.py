"""Data directories that polydomo 0.1 and 0.2 wrote, opened by this version: ``data-0.1`` (commit 08ff42f) and ``data-0.2`` (2369a3e).

Each broker served ``upper`` three times; that of 0.2 also has a job that is done (with the key ``invoice-7``), one that is open and one
that is dead, a schedule, a paused service, and a value of MemoDB.
"""

import json
import shutil
from pathlib import Path

import pytest

import polydomo
from tests.cli.shell import Broker, complaint, run
from tests.plain_http import http_client

PLACE = Path(__file__).parent
DONE, OPEN, DEAD = "01M7QRTFZFRAPBB9XPQJREZVRT", "01M7QRTJYE8YJ0GCB7D9YJ3P79", "01M7QRTM8H8JMJ4M79WDBD3AEQ"


def copy_of(version: str, to: Path) -> Path:
    shutil.copytree(PLACE / f"data-{version}", to / "data")
    return to / "data"


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_journals_are_read(version: str, tmp_path: Path) -> None:
    journal = str(copy_of(version, tmp_path) / "journal")
    found = json.loads(run("requests", "--journal", journal, "--service", "upper", "--json").stdout)
    rows = [row for row in found if row["client_protocol"] == "mdx"]
    assert [(row["outcome"], row["client_id"]) for row in rows] == [("ok", "")] * 3
    story = run("trace", rows[0]["request"], "--journal", journal)
    assert story.returncode == 0 and b"upper" in story.stdout, story


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_a_broker_continues_in_the_directory(version: str, tmp_path: Path) -> None:
    data = copy_of(version, tmp_path)
    with Broker(data, "--journal=messages", "--journal-keep-age=3650d") as broker:
        with broker.worker("upper", "--", "tr", "a-z", "A-Z"), polydomo.Client(broker.url) as client:
            assert client.call("upper", "new").text == "NEW"
    found = json.loads(run("requests", "--journal", str(data / "journal"), "--service", "upper", "--json").stdout)
    assert len([row for row in found if row["client_protocol"] == "mdx"]) == 4
    checked = run("doctor", "--data", str(data), "--listen", "tcp://127.0.0.1:0")
    assert checked.returncode == 0, checked


def test_jobs_schedules_pauses_and_values_of_0_2(tmp_path: Path) -> None:
    with Broker(copy_of("0.2", tmp_path)) as broker:
        with polydomo.Client(broker.url) as client:
            assert client.result(DONE).text == "A JOB"
            assert client.submit_job("upper", "a job", key="invoice-7") == DONE
            assert client.job(OPEN)["state"] == "queued" and client.job(DEAD)["state"] == "dead"
            assert [row["name"] for row in client.schedules()] == ["daily"]
            with broker.worker("later", "--echo"):
                assert client.result(OPEN, wait=60).text == "waits"
            waiting = client.submit_job("rest", "x")
        assert "its service is paused" in complaint(run("result", waiting, "--to", broker.url))
        with http_client(broker.url) as http:
            assert http.get("/cid/uAXEACGdhIHZhbHVl", headers={"Accept": "application/json"}).json() == "a value"
