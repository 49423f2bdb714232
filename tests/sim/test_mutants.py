"""Each deliberate breakage is found by some seed, within a few: otherwise the checker has a hole."""

import pytest

from sim.mutants import MUTANTS, Mutant
from sim.run import run_seed

SEEDS = 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    for seed in range(1, SEEDS + 1):
        with mutant.broken():
            if run_seed(seed, list(mutant.changes)).breaches:
                return
    pytest.fail(f"{mutant.name} ({mutant.says}) survived {SEEDS} seeds")


def test_there_are_enough_of_them_and_none_stays_broken() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS[:3]:
        assert not run_seed(1, list(mutant.changes)).breaches
