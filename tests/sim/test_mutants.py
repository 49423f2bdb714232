"""Each deliberate breakage is found by some seed, within a few: otherwise the checker has a hole."""

import pytest

from sim.breaking import Mutant
from sim.mutate import MUTANTS, SEEDS, find
from sim.run import run_seed
from tests.forms import replaces_core


@replaces_core
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    assert find(mutant), f"{mutant.name} ({mutant.says}) survived {SEEDS} seeds"


def test_there_are_enough_of_them_and_none_stays_broken() -> None:
    assert len(MUTANTS) >= 50
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS[:3]:
        assert not run_seed(1, list(mutant.changes)).breaches
