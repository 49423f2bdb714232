"""Flows while real brokers, workers, clients and databases are killed: every node has one outcome, every result is right."""

import pytest

from chaos import flows
from tests.postgres import programs


@pytest.mark.xdist_group("chaos-jobs")
def test_kills_on_sqlite() -> None:
    found = flows.run(2, 120, "sqlite", brokers=1, seed=1, pause=1.5, rounds=2, most=4)
    assert flows.holds(found, 2, 120) and found["kills of broker"] >= 2, found


@pytest.mark.long
@pytest.mark.skipif(programs() is None, reason="PostgreSQL 15 or newer is not installed (apt install postgresql)")
@pytest.mark.parametrize(("store", "brokers"), [("sqlite", 1), ("postgresql", 2)])
def test_a_hundred_flows(store: str, brokers: int) -> None:
    found = flows.run(100, 1000, store, brokers=brokers, seed=3, pause=5.0, rounds=5)
    assert flows.holds(found, 100, 1000) and found["kills of broker"] >= 5, found
