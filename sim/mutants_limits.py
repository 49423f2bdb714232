"""Mutants of limits of services."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.limiting.lane import Lane
from polydomo.broker.limiting.limited_queue import LimitedQueue
from polydomo.broker.limiting.limiter import Limiter
from polydomo.broker.requests import dispatch
from polydomo.broker.state import State
from polydomo.model.records import Request
from sim.breaking import both, mutant, swap

PEERS = (*both("mdx,emqp,mdx"), "services=1", "extended=1", "credit=4", "pace=0.2", "burst=6", "groups=3")
RUNNING = (*PEERS, "running=2", "slow=0.2")
RATE = (*PEERS, "rate=3", "window=2")


@mutant("a restart begins a new window", *RATE, "broker_crash=0.4", "bridged=0", "siblings=0", "brokers=1")
def window_reset(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: Limiter, began: "float | None") -> None: ...

        return mutated

    swap(stack, Limiter, "start_at", make)


@mutant("the window is a bucket that is emptied as a whole", *RATE)
def bucket_edge(stack: ExitStack) -> None:
    def make(prune: Any) -> Any:
        def mutated(self: LimitedQueue, lane: Lane) -> None:
            prune(self, lane)
            edge = self._state.now // self.limits.window * self.limits.window
            while lane.starts and lane.starts[0] < edge:
                lane.starts.popleft()
                self.start_count -= 1

        return mutated

    swap(stack, LimitedQueue, "prune", make)


@mutant("the slot of a request is not returned when its worker is lost", *RUNNING, "worker_crash=0.6")
def slot_kept(stack: ExitStack) -> None:
    def make(put_down: Any) -> Any:
        def mutated(state: State, request: Request) -> None:
            if request.worker is None or request.worker.alive:
                put_down(state, request)

        return mutated

    swap(stack, dispatch, "put_down", make)


@mutant("a group is kept for ever", *RUNNING)
def group_leaked(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: LimitedQueue, lane: Lane) -> None: ...

        return mutated

    swap(stack, LimitedQueue, "settle", make)


@mutant("each request is a group of its own", *RUNNING)
def groups_split(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: LimitedQueue, request: Request) -> bytes:
            return b"%d" % request.number

        return mutated

    swap(stack, LimitedQueue, "key_of", make)
