"""``GET /v1/finished`` of a real broker with a journal: filters, pages, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from polydomo import CallFailed, Client
from tests.cli.shell import PATIENCE, script
from tests.server.harness import Broker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With 30 answered requests to echo, then 5 failed ones to broken."""
    data = tmp_path_factory.mktemp("finished") / "data"
    with (
        Broker(data, "--journal=requests") as broker,
        broker.worker("echo", "--echo"),
        broker.worker("broken", *script("echo no luck >&2; exit 3")),
    ):
        with Client(broker.url, timeout=PATIENCE) as client:
            for number in range(30):
                client.call("echo", str(number))
            for _ in range(5):
                with pytest.raises(CallFailed):
                    client.call("broken", "x")
        header = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        assert (
            httpx.post(http(broker, "/v1/call/echo"), content="traced", headers=header, timeout=PATIENCE).text
            == "traced"
        )
        yield broker


def http(broker: Broker, path: str) -> str:
    return broker.url.replace("tcp", "http") + path


def get(broker: Broker, **parameters: str) -> Any:
    response = httpx.get(http(broker, "/v1/finished"), params=parameters, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    return response.json()


def test_pages_have_every_request_once_the_newest_first(broker: Broker) -> None:
    found: list[dict[str, Any]] = []
    parameters = {"limit": "7"}
    while True:
        page = get(broker, **parameters)
        assert len(page["requests"]) <= 7 and page["problems"] == []
        found += page["requests"]
        if page["next"] is None:
            break
        parameters["before"] = page["next"]
    assert len(found) == len({row["request"] for row in found}) == 36
    times = [row["time"] for row in found]
    assert times == sorted(times, reverse=True)
    assert found[0].keys() >= {
        "request",
        "service",
        "client",
        "worker",
        "wait_us",
        "run_us",
        "total_us",
        "outcome",
        "reason",
    }


def test_filters(broker: Broker) -> None:
    def count(**parameters: str) -> int:
        return len(get(broker, **parameters)["requests"])

    assert count(service="echo") == 31
    assert count(state="failed") == count(service="broken") == 5
    assert count(state="ok", service="broken") == count(state="timeout") == count(slower="1h") == 0
    assert count(slower="0ms") == 36
    assert count(to="-1h") == 0
    assert count(principal="alice") == 0
    row = get(broker, service="broken", limit="1")["requests"][0]
    assert "no luck" in row["reason"] or "3" in row["reason"]
    assert count(worker=row["worker"]) == 5
    assert count(client=row["client"]) == 35 and count(client="127.0.0.1") == 36 and count(client="10.") == 0
    assert get(broker, id=row["request"].lower())["requests"] == [row]
    assert [found["service"] for found in get(broker, id=TRACE)["requests"]] == ["echo"]


def test_a_story_is_found_by_the_clients_own_id(broker: Broker) -> None:
    story = httpx.get(http(broker, f"/v1/requests/{TRACE}"), timeout=PATIENCE).json()
    assert story["service"] == "echo" and story["protocol"] == "http"
    assert httpx.get(http(broker, "/v1/requests/never-seen"), timeout=PATIENCE).status_code == 404


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("state=great", "state"),
        ("slower=soon", "slower"),
        ("from=yesterday", "from"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("before=1-2", "before"),
        ("sort=time", "sort"),
    ],
)
def test_an_invalid_query_is_explained(broker: Broker, query: str, named: str) -> None:
    response = httpx.get(http(broker, f"/v1/finished?{query}"), timeout=PATIENCE)
    assert response.status_code == 400 and named in response.json()["detail"]


def test_without_a_journal_there_is_nothing_to_search(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        response = httpx.get(http(broker, "/v1/finished"), timeout=PATIENCE)
        assert response.status_code == 404 and "journal" in response.json()["detail"]
