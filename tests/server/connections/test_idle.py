"""What idle connections cost: the bench's own figures, held to their bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import environment

BENCH = Path(__file__).parents[3] / "bench" / "idle.py"


def measure(*words: str) -> dict[str, float]:
    result = subprocess.run(
        [sys.executable, str(BENCH), "--json", *words], capture_output=True, env=environment(), timeout=300
    )
    assert result.returncode == 0, result.stderr.decode()
    found: dict[str, float] = json.loads(result.stdout)
    return found


def test_idle_workers_are_cheap() -> None:
    found = measure("200", "--beat=2", "--beats-missed=100", "--seconds=1", "--journal=off")
    assert found["connections"] == 200 and found["lost"] == 0
    assert found["kib_per_connection"] < 25


@pytest.mark.long
def test_five_thousand_idle_workers() -> None:
    found = measure("5000")
    assert found["lost"] == 0
    assert found["beats_per_second_from_the_broker"] > 1000  # 2000 are due
    assert found["kib_per_connection"] <= 25
    assert found["cpu_percent"] <= 10
