"""Durable jobs in the simulator: some seeds hold, and each deliberate breakage is found."""

import pytest

from sim import mutants_flows, mutants_job_limits, mutants_streams
from sim.durable import run_seed
from sim.mutants_durable import MUTANTS, SEEDS, DurableMutant, find
from tests.forms import replaces_core

FAILED_BEFORE = (
    2026112257,  # a submission that was repeated after its record was damaged was taken for another one
    881102745,  # a running job was recorded as damaged, although it was in memory
    2040100227,  # a node was cancelled, reset by a retry, and damaged: the audit counted two outcomes
    2050100696,  # the end of a node whose stored job was damaged counted for node 0
    2030000736,  # a leader that stood still started runs that jobs waited for after its lease
    771100985,  # Titanic's answer was JSON while the store did not answer
)


@pytest.mark.parametrize("first", range(1, 21, 5))
def test_some_seeds_hold(first: int) -> None:
    for seed in range(first, first + 5):
        assert run_seed(seed)[1] == "", f"python -m sim.durable --seeds 1 --first {seed}"


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_a_seed_that_failed_before_holds(seed: int) -> None:
    assert run_seed(seed)[1] == "", f"python -m sim.durable --seeds 1 --first {seed}"


@pytest.mark.long
def test_five_thousand_seeds_hold() -> None:
    for seed in range(1, 5001):
        assert run_seed(seed)[1] == "", f"python -m sim.durable --seeds 1 --first {seed}"


@replaces_core
@pytest.mark.parametrize(
    "mutant",
    [one for one in mutants_flows.MUTANTS if one.name in mutants_flows.AUDITED],
    ids=lambda mutant: mutant.name,
)
def test_the_audit_of_the_journals_finds_the_mutant(mutant: DurableMutant) -> None:
    rule = mutants_flows.AUDITED[mutant.name]
    assert mutants_flows.find_by_audit(mutant, rule, SEEDS), f"{mutant.name} survived {SEEDS} seeds"


@replaces_core
@pytest.mark.parametrize(
    "mutant",
    [*MUTANTS, *mutants_flows.MUTANTS, *mutants_streams.STREAM_MUTANTS, *mutants_job_limits.LIMIT_MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_the_mutant_is_found(mutant: DurableMutant) -> None:
    assert find(mutant), f"{mutant.name} ({mutant.says}) survived {SEEDS} seeds"
