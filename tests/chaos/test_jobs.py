"""Durable jobs while real brokers, workers, clients and databases are killed: every acknowledged job has its one outcome."""

from collections import Counter

import pytest

from chaos import jobs
from tests.postgres import programs


def holds(found: Counter[str]) -> None:
    assert found["right"] == found["acknowledged"] == found["numbers"], found


@pytest.mark.xdist_group("chaos-jobs")
def test_kills_on_sqlite() -> None:
    found = jobs.run(400, "sqlite", brokers=1, seed=1, pause=1.5, rounds=2, most=4)
    holds(found)
    assert found["acknowledged"] == 400 and found["kills of broker"] >= 2


@pytest.mark.xdist_group("chaos-jobs")
@pytest.mark.skipif(programs() is None, reason="PostgreSQL 15 or newer is not installed (apt install postgresql)")
def test_failovers_on_postgresql() -> None:
    found = jobs.run(300, "postgresql", brokers=2, seed=2, pause=2.0, rounds=2, most=4)
    holds(found)
    assert found["acknowledged"] == 300 and found["kills of broker"] >= 2


@pytest.mark.long
@pytest.mark.parametrize(("store", "brokers"), [("sqlite", 1), ("postgresql", 2)])
def test_fifty_thousand_jobs(store: str, brokers: int) -> None:
    found = jobs.run(50_000, store, brokers=brokers, seed=3, pause=5.0, rounds=5)
    holds(found)
    assert found["acknowledged"] == 50_000
