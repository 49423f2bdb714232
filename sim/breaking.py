"""How mutants are made: small deliberate breakages that the simulator must find. One that it does not find is a hole in the checker.

A mutant patches one method or function for a while. ``changes`` are options that make its world likely. They stand in ``mutants.py`` and
``mutants_around.py``; ``python -m sim.mutate`` runs them and prints the table of docs/reliability.md.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

Break = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Mutant:
    name: str
    says: str  # what is broken
    apply: Break
    changes: tuple[str, ...] = ()

    @contextmanager
    def broken(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.apply(stack)
            yield


MUTANTS: list[Mutant] = []


def mutant(says: str, *changes: str) -> Callable[[Break], Break]:
    def keep(function: Break) -> Break:
        MUTANTS.append(Mutant(function.__name__.replace("_", "-"), says, function, changes))
        return function

    return keep


def swap(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces ``owner.name`` by what ``make`` makes of it."""
    stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))


def both(protocols: str) -> tuple[str, str]:
    return f"clients={protocols}", f"workers={protocols}"
