import json
import time
from pathlib import Path

from polydomo import Client
from tests.cli.shell import Broker, run, script


def limits(broker: Broker) -> list[dict[str, str]]:
    result = run("limit", "ls", "--to", broker.url, "--json")
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def test_limits_of_a_running_broker(tmp_path: Path) -> None:
    """Set, shown, obeyed, stored, and removed."""
    data = tmp_path / "data"
    words = ("--store", f"sqlite:{tmp_path / 'jobs.db'}", "--service", "slow.per=group;slow.running=3")
    with Broker(data, *words) as broker:
        to = ("--to", broker.url)
        with broker.worker("slow", "--concurrency", "8", *script("sleep 60")), Client(broker.url) as client:
            result = run("limit", "slow", "--running", "1", "--rate", "90/1s", "--per", "group", *to)
            assert result.stdout == b"slow: 1 running, 90/1s per group\n", result.stderr
            (row,) = broker.ask("services")
            assert row["limits"] == {"running": 1, "rate": "90/1s", "per": "group"}
            calls = [client.submit("slow", "x", group=group) for group in ("customer-7", "customer-7", "other")]
            deadline = time.monotonic() + 60
            while True:
                rows = broker.ask("requests")
                if [row["state"] for row in rows].count("running") == 2:
                    break
                assert time.monotonic() < deadline
            (waiting,) = [row for row in rows if row["state"] == "queued"]
            assert waiting["why"] == "group customer-7: 1 of 1 running"
            for call in calls:
                call.cancel()
        listed = run("limit", "ls", *to)
        assert [line.split()[0] for line in listed.stdout.decode().splitlines()] == ["SERVICE", "slow", "slow"]
        for wrong in (
            ("limit", "slow", "--rate", "fast"),
            ("limit", "rm", "none"),
            ("limit", "rm"),
            ("limit", "ls", "x"),
        ):
            assert run(*wrong, *to).returncode != 0
    with Broker(data, *words) as broker:
        assert [row["source"] for row in limits(broker)] == ["operator", "settings"]
        result = run("limit", "rm", "slow", "--to", broker.url)
        assert result.returncode == 0, result.stderr
        assert [row["source"] for row in limits(broker)] == ["settings"]
