"""Worlds of mixed protocols and mixed faults, each from one seed: none may break a rule. `make sim` runs more of them."""

import pytest

from sim.run import describe, run_seed

CHUNK = 10
SEEDS = 100
LONG_SEEDS = 3_000
FAILED_ONCE = [5_002_331]  # a client that left while it waited for its turn counted as waiting for ever


def check(seeds: range) -> None:
    for seed in seeds:
        world = run_seed(seed)
        assert not world.breaches, describe(world, [])
        assert world.submitted > 0


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds(first: int) -> None:
    check(range(first, first + CHUNK))


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once(seed: int) -> None:
    check(range(seed, seed + 1))


@pytest.mark.long
@pytest.mark.parametrize("first", [101, 201, *range(100_001, 100_001 + LONG_SEEDS, 10 * CHUNK)])
def test_more_seeds(first: int) -> None:
    check(range(first, first + 10 * CHUNK))
