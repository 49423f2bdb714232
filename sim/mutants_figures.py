"""Mutants of the figures that a broker shows: its history, and its groups of errors."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.observe.error_groups import ErrorGroups
from polydomo.broker.observe.histogram import Tally
from polydomo.broker.observe.history.ring import Ring
from sim.breaking import both, mutant, swap

FAILING = ["unknown=0.5", "queue_expiry=3", *both("mdx,mdx")]


@mutant("failures of a sample of the history are counted in the next one, too", *FAILING)
def failures_kept(stack: ExitStack) -> None:
    def make(take: Any) -> Any:
        def mutated(self: Tally) -> Any:
            failures = self.window_failures
            window = take(self)
            self.window_failures = failures
            return window

        return mutated

    swap(stack, Tally, "take_window", make)


@mutant("a sample of the history is lost if the service had no queue", *both("mdx,mdx"), first=3)
def samples_without_queue_lost(stack: ExitStack) -> None:
    def make(is_news: Any) -> Any:
        def mutated(self: Ring, sample: Any) -> bool:
            return bool(sample.queue)

        return mutated

    swap(stack, Ring, "is_news", make)


@mutant("a failed request is counted twice in its group of errors", *FAILING)
def failure_grouped_twice(stack: ExitStack) -> None:
    def make(add: Any) -> Any:
        def mutated(self: ErrorGroups, *facts: Any) -> None:
            add(self, *facts)
            add(self, *facts)

        return mutated

    swap(stack, ErrorGroups, "add", make)
