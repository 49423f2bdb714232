"""What a page of jobs needs: counts of states, the detail of a job, dead jobs as a problem, and orders for several of them."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import polydomo
from polydomo import testing
from tests.plain_http import http_client

WAIT = 60.0


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with testing.broker(jobs=True) as broker:
        worker = polydomo.Worker(broker.url)

        @worker.service("upper")
        def upper(call: polydomo.Call) -> str:
            return call.text.upper()

        @worker.service("broken")
        def broken(call: polydomo.Call) -> str:
            raise polydomo.Permanent("not today")

        with worker, http_client(broker.url, timeout=WAIT) as client:
            yield client


def submit(http: httpx.Client, service: str, body: str) -> str:
    """A job that has ended."""
    place = http.post(f"/v1/call/{service}", content=body, headers={"prefer": "respond-async"}).headers["location"]
    http.get(f"{place}/result?wait=60")
    return place


def order(http: httpx.Client, name: str, /, **fields: object) -> Any:
    return http.post(f"/v1/call/{name}", content=json.dumps(fields)).json()


def test_the_detail_of_a_job_and_the_counts_of_all(http: httpx.Client) -> None:
    row = http.get(submit(http, "upper", '["a"]')).json()
    assert row["result"] == {"type": "application/json", "frames": 1, "size_bytes": 5, "preview": '["A"]', "cut": False}
    assert (row["principal"], row["timeout_us"], row["worker"], row["started"]) == ("", None, None, None)
    dead = http.get(submit(http, "broken", "please")).json()
    assert dead["body"]["preview"] == "please" and dead["result"] is None
    assert [attempt["reason"] for attempt in dead["story"]] and "not today" in dead["reason"]
    page = http.get("/v1/jobs?page=1&state=dead").json()
    assert [job["job"] for job in page["jobs"]] == [dead["job"]]
    assert page["stored"] == {"done": 1, "dead": 1} or (page["stored"]["done"], page["stored"]["dead"]) == (1, 1)
    assert page["open"]["queued"] == 0 and page["leads"] is True


def test_dead_jobs_are_a_problem_until_they_are_dropped(http: httpx.Client) -> None:
    ids = [submit(http, "broken", str(number)).rpartition("/")[2] for number in range(3)]
    (problem,) = http.get("/v1/problems").json()["problems"]
    assert (problem["kind"], problem["service"], problem["count"]) == ("dead-jobs", "broken", 3)
    assert "not today" in problem["cause"]
    assert order(http, "polydomo.drop", jobs=ids[:2])["dropped"] == 2
    assert http.get("/v1/problems").json()["problems"][0]["count"] == 1
    assert order(http, "polydomo.retry", jobs=ids)["jobs"] == ids[2:]
    http.get(f"/v1/jobs/{ids[2]}/result?wait=60")
    assert order(http, "polydomo.drop", all=True)["dropped"] == 1
    assert http.get("/v1/problems").json()["problems"] == []
    for wrong in ("one", [1], ["nonsense"], ["0" * 26] * 1001):
        assert "error" in order(http, "polydomo.drop", jobs=wrong)


def test_a_schedule_shows_its_next_run_in_its_zone(http: httpx.Client) -> None:
    header = {"name": "daily", "service": "upper", "when": "0 8 * * *", "zone": "Asia/Kolkata"}
    order(http, "polydomo.schedule", **header)
    (row,) = http.get("/v1/schedules").json()
    assert row["next_local"].endswith("T08:00:00+05:30") and row["next"].endswith("T02:30:00.000000Z")


def test_logs_are_filtered_by_text(http: httpx.Client) -> None:
    with polydomo.Client(str(http.base_url).replace("http", "tcp").rstrip("/")) as client:
        for message, fields in (("Disk is full", {}), ("all well", {"order": "A-17"}), ("all well", {})):
            client.publish("log.billing", json.dumps({"message": message, "fields": fields}))
        client.call("polydomo.status")

    def found(query: str) -> list[str]:
        return [row["message"] for row in http.get(f"/v1/logs?{query}").json()]

    assert found("text=disk") == ["Disk is full"]
    assert found("text=a-17") == ["all well"]
    assert len(found("")) == 3
    assert http.get("/v1/logs?level=loud").status_code == 400
