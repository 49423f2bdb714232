"""Mutants of the defence against greedy peers: limits of work and memory."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.guard import backpressure
from polydomo.broker.guard.memory import MemoryAccount
from polydomo.broker.state import State
from polydomo.wire.link import Hub, Link, Turns
from sim.breaking import both, mutant, swap

GREED = ["greed=4", *both("mdx,mdx"), "turn_work=400", "turn_share=100", "least_share=20"]


@mutant("work is not charged to its connection", *GREED)
def budget_not_charged(stack: ExitStack) -> None:
    swap(stack, Link, "use_up", lambda use_up: lambda self: None)


@mutant("the limit of work per turn is ignored", *GREED, "slow_turn=0.05", "latency=0.0001", "jitter=0.0001")
def turn_without_end(stack: ExitStack) -> None:
    def make(begin: Any) -> Any:
        def mutated(self: Hub) -> None:
            begin(self)
            self.work_left = 1 << 40

        return mutated

    swap(stack, Hub, "begin_turn", make)


@mutant("a connection that has used up its share is never read again", *GREED)
def turn_never_comes(stack: ExitStack) -> None:
    swap(stack, Turns, "next_turn", lambda next_turn: lambda self: [])


@mutant("sources do not take turns: the newest is served first", *GREED)
def newest_first(stack: ExitStack) -> None:
    def make(next_turn: Any) -> Any:
        def mutated(self: Turns) -> Any:
            if not self.waiting:
                return []
            source = next(reversed(self._by_source))
            link = next(reversed(self._by_source[source]))
            self.forget(link)
            link.work_left = self.least
            return [link]

        return mutated

    swap(stack, Turns, "next_turn", make)


@mutant("unfinished input is not counted as memory", *GREED, "max_memory=4194304")
def input_not_booked(stack: ExitStack) -> None:
    swap(stack, Link, "book_input", lambda book: lambda self, size: None)


@mutant(
    "memory is measured only at the end of a turn, even if a lot of input arrives in it",
    *GREED,
    *("max_memory=4194304", "broker_freeze=0.3"),
    first=21,
)
def measured_too_late(stack: ExitStack) -> None:
    def make(attach: Any) -> Any:
        def mutated(self: MemoryAccount, hub: Hub) -> None:
            attach(self, hub)
            hub.on_input_alarm = None

        return mutated

    swap(stack, MemoryAccount, "attach", make)


@mutant(
    "memory is measured by the clock alone, however much work is done meanwhile",
    *GREED,
    *("max_memory=4194304", "broker_freeze=0.3"),
    first=2,
)
def measured_by_the_clock(stack: ExitStack) -> None:
    def make(look_soon: Any) -> Any:
        def mutated(self: MemoryAccount) -> None: ...

        return mutated

    swap(stack, MemoryAccount, "look_soon", make)


@mutant(
    "clients are resumed while the bodies of open requests exceed their limit",
    *both("mdx,mdx,mdx,mdx"),
    *("big=1", "slow=1", "pace=0.1", "burst=10", "max_outstanding=64", "max_queue=256", "max_held_bytes=50000"),
    first=5,
)
def resumed_too_soon(stack: ExitStack) -> None:
    def make(end_turn: Any) -> Any:
        def mutated(state: State, quotas: Any) -> None:
            held, state.held_bytes = state.held_bytes, 0
            end_turn(state, quotas)
            state.held_bytes = held

        return mutated

    swap(stack, backpressure, "end_turn", make)


@mutant(
    "clients are paused at half of the memory, and resumed at the setting `limits.max_held_bytes`",
    *both("mdx,mdx,mdx,mdx"),
    *("big=1", "slow=1", "pace=0.1", "burst=10", "max_outstanding=64", "max_queue=256", "max_memory=100000"),
)
def two_limits_of_bytes(stack: ExitStack) -> None:
    def make(end_turn: Any) -> Any:
        def mutated(state: State, quotas: Any) -> None:
            limit, state.max_held_bytes = state.max_held_bytes, 1 << 24
            end_turn(state, quotas)
            state.max_held_bytes = limit

        return mutated

    swap(stack, backpressure, "end_turn", make)


@mutant("no connection is closed when the broker is short of memory", *GREED, "max_memory=4194304")
def memory_limit_ignored(stack: ExitStack) -> None:
    swap(stack, MemoryAccount, "_save", lambda save: lambda self, total, now, receiving: None)
