"""The disk is an account: a store that has used up its share rejects more, and the others continue."""

import json
from pathlib import Path

import pytest

import polydomo
from polydomo import testing
from polydomo.errors import CallFailed
from tests.plain_http import http_client

WAIT = 60.0
LIMIT = 4 * 1024 * 1024  # of the data directory: 1 MiB for the memo store, 2 MiB for jobs


def settings(tmp_path: Path) -> dict[str, object]:
    return {"data": str(tmp_path / "data"), "limits.max_disk": str(LIMIT), "store": "sqlite"}


def test_a_client_that_fills_the_memo_store_does_not_stop_jobs(tmp_path: Path) -> None:
    with testing.broker(settings=settings(tmp_path), jobs=True) as broker:
        with http_client(broker.url, timeout=WAIT) as http:
            answers = [http.post("/cid", content=json.dumps(f"{n:04}" * 8192)) for n in range(60)]
            full = [answer for answer in answers if answer.status_code != 201]
            assert {answer.status_code for answer in full} == {503}
            assert "its share of the disk is 1.0 MiB (`limits.max_disk`)" in full[0].text
            first = answers[0].headers["location"]
            assert http.get(first).json() == "0000" * 8192  # what was stored is served
        worker = polydomo.Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with polydomo.Client(broker.url, timeout=WAIT) as client, worker:
            job = client.submit_job("upper", "still here")
            assert client.result(job, wait=WAIT).text == "STILL HERE"
    assert (tmp_path / "data" / "memo.db").stat().st_size <= LIMIT / 4


def test_jobs_beyond_their_share_are_rejected_and_the_memo_store_continues(tmp_path: Path) -> None:
    with testing.broker(settings=settings(tmp_path), jobs=True) as broker:
        with polydomo.Client(broker.url, timeout=WAIT) as client:
            with pytest.raises(CallFailed, match=r"its share of the disk is 2\.0 MiB") as caught:
                submit(client)
            assert caught.value.code == "store-full"
        with http_client(broker.url, timeout=WAIT) as http:
            assert http.post("/cid", json="x" * 100).status_code == 201


def submit(client: polydomo.Client) -> None:
    for n in range(2000):
        client.submit_job("never", f"{n:04}" * 8192)
