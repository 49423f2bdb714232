"""``python -m sim.mutate [NAME ...]``: every mutant, or those named, with the first seed that finds it and the rule that does.

It prints the rows of the table in docs/reliability.md.
"""

import sys

from sim import (
    mutants,
    mutants_around,
    mutants_authority,
    mutants_batches,
    mutants_chains,
    mutants_credit,
    mutants_figures,
    mutants_greedy,
    mutants_limits,
    mutants_security,
)
from sim.breaking import MUTANTS, Mutant
from sim.run import run_seed

SEEDS = 80  # within which a mutant must be found

__all__ = [
    "MUTANTS",
    "SEEDS",
    "find",
    "mutants",
    "mutants_around",
    "mutants_authority",
    "mutants_batches",
    "mutants_chains",
    "mutants_credit",
    "mutants_figures",
    "mutants_greedy",
    "mutants_limits",
    "mutants_security",
]


def find(mutant: Mutant) -> "tuple[int, str] | None":
    """The first seed from ``mutant.first`` on that finds it, and the rule it breaks there."""
    for seed in range(mutant.first, mutant.first + SEEDS):
        with mutant.broken():
            world = run_seed(seed, list(mutant.changes))
        if world.breaches:
            return seed, world.breaches[0].rule
    return None


def main(names: "list[str]") -> int:
    survived = 0
    for mutant in MUTANTS:
        if names and mutant.name not in names:
            continue
        found = find(mutant)
        survived += found is None
        seed, rule = (str(found[0]), f"`{found[1]}`") if found else ("none", "**survived**")
        print(f"| `{mutant.name}` | {mutant.says} | {seed} | {rule} |", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
