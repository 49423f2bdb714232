"""``bench/crowd.py`` in small: many peers, everyone back at once after kill -9, a long queue, many topics and services."""

import resource

import pytest

from bench.crowd import arguments, play

SMALL = "--peers 300 --churn 100 --seconds 1 --after 2 --queued 5000 --topics 2000 --services 1200 --beats-missed 100".split()
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
FULL = ["--peers", str(min(20_000, FILES - 2_000))]


@pytest.mark.parametrize("scene", ["peers", "back", "queued", "topics", "services"])
@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.long)], ids=["small", "full"])
def test_a_crowd(scene: str, size: list[str]) -> None:
    row = play(arguments([scene, *size]))[scene]
    assert row["held"], row
    if scene == "services":
        assert isinstance(row["metrics_services"], int) and row["metrics_services"] <= 251, "metrics are bounded"
