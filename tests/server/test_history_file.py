"""``GET /v1/history`` of a real broker, and what a restart keeps of it."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from polydomo import Client
from tests.cli.shell import PATIENCE
from tests.server.harness import Broker, wait_for

QUICK: dict[str, float] = {
    "HISTORY_STEP": 1,
    "HISTORY_STEPS": 3600,
    "HISTORY_COARSE": 30,
}  # seconds: the test does not wait for ten


def get(broker: Broker, query: str = "") -> Any:
    with urllib.request.urlopen(f"{broker.url.replace('tcp', 'http')}/v1/history{query}", timeout=PATIENCE) as response:
        return json.load(response)


def total(broker: Broker, query: str = "?service=echo") -> int:
    return sum(row["requests"] for row in get(broker, query)["points"])


def calls(broker: Broker, count: int) -> None:
    for number in range(count):
        with Client(broker.url, timeout=PATIENCE) as client:  # of several connections, some come to either process
            client.call("echo", str(number))


def test_the_history_is_served_and_survives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, limits=QUICK) as broker, broker.worker("echo", "--echo"):
        calls(broker, 5)
        wait_for(lambda: total(broker) == 5, "the sample")
        found = get(broker, "?service=echo&from=-1h&step=10s")
        assert found["step"] == 10
        assert found["points"][-1]["p99_us"] or found["points"][0]["p99_us"]
        assert get(broker)["points"][-1].keys() == found["points"][-1].keys()
        assert get(broker, "?service=007") == {"step": get(broker)["step"], "points": []}
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            get(broker, "?step=soon")
        assert "step: 'soon'" in json.load(refused.value)["detail"]
    assert (data / "history-0").stat().st_mode & 0o777 == 0o600
    with Broker(data, limits=QUICK) as broker:
        assert total(broker) == 5
    (data / "history-0").write_bytes(b"damaged")
    with Broker(data, limits=QUICK) as broker:
        assert total(broker) == 0
        assert [entry["why"] for entry in broker.entries if "history" in entry["message"]] == ["it has another format"]


def test_a_broker_that_is_killed_has_the_history_of_the_last_copy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, limits={**QUICK, "HISTORY_SAVE": 0.1}) as broker, broker.worker("echo", "--echo"):
        calls(broker, 5)
        wait_for(lambda: total(broker) == 5, "the sample")
        older = (data / "history-0").stat().st_mtime_ns if (data / "history-0").exists() else 0
        wait_for(
            lambda: (data / "history-0").exists() and (data / "history-0").stat().st_mtime_ns > older,
            "one copy that has it",
        )
        copied = (data / "history-0").stat().st_mtime_ns
        wait_for(lambda: (data / "history-0").stat().st_mtime_ns > copied, "a later one, which began after the sample")
        broker.kill()
    with Broker(data, limits=QUICK) as broker:
        assert total(broker) == total(broker, "") == 5


def test_processes_answer_together_and_one_process_takes_their_history(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, "--processes", "2") as broker, broker.worker("echo", "--echo"):
        calls(broker, 12)
        wait_for(lambda: total(broker) == 12, "the sample of both processes")
        assert "counts" not in get(broker)["points"][0]
    assert (data / "history-1").exists()
    for _ in range(2):
        with Broker(data) as broker:
            assert total(broker) == total(broker, "") == 12
        assert not (data / "history-1").exists()
