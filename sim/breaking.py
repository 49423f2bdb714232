"""Mutants: small deliberate faults that the simulator must find. A mutant that survives shows a gap in the checker.

A mutant replaces one or two functions for a while (``sim/replacing.py``). ``changes`` are options with which a seed is likely to find
it. The mutants are in ``mutants.py`` and the modules beside it. ``python -m sim.mutate`` runs them and prints the table of
docs/reliability.md.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sim.replacing import swap as swap

Break = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Mutant:
    name: str
    says: str  # what is broken
    apply: Break
    changes: tuple[str, ...] = ()
    first: int = 1  # the seed to begin with, if it takes many to find the mutant

    @contextmanager
    def broken(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.apply(stack)
            yield


MUTANTS: list[Mutant] = []


PLAIN = ("running=0", "rate=0", "groups=0", "batch=0")


def mutant(says: str, *changes: str, first: int = 1) -> Callable[[Break], Break]:
    """Services have limits, and workers batches, only if ``changes`` say so: they slow down the worlds in which other faults must show."""

    def keep(function: Break) -> Break:
        MUTANTS.append(Mutant(function.__name__.replace("_", "-"), says, function, (*PLAIN, *changes), first))
        return function

    return keep


def both(protocols: str) -> tuple[str, str]:
    return f"clients={protocols}", f"workers={protocols}"
