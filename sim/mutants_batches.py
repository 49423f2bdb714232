"""Mutants of batches: what the worker library decides, and what the broker does with calls that are answered, or lost, together."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.requests import dispatch
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.model.records import Departure, Request, Worker
from polydomo.worker import batches
from polydomo.worker.batches import Outcome
from polydomo.worker.gathering import Gathering
from sim.breaking import both, mutant, swap

PEERS = (*both("mdx,emqp,mdx"), "services=1", "extended=1", "pace=0.2", "burst=8", "worker_freeze=0")
BATCHES = (*PEERS, "batch=4", "batch_wait=0.3")
LOST = (*BATCHES, "slow=0.3", "worker_crash=0.5")


@mutant("a batch has all calls that wait, however many", *BATCHES, "prefetch=4", "slow=0.5", first=19)
def batch_unbounded(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: "Gathering[Any]") -> list[Any]:
            found = list(self._arrived)
            self._arrived.clear()
            return found

        return mutated

    swap(stack, Gathering, "take", make)


@mutant("a call that is cancelled stays in its batch", *BATCHES, "cancelling=0.5")
def batch_keeps_cancelled(stack: ExitStack) -> None:
    swap(stack, Gathering, "leave", lambda leave: lambda self, call: True)


@mutant("a batch waits for its last call, not for its first", *BATCHES)
def batch_wait_renewed(stack: ExitStack) -> None:
    def make(due: Any) -> Any:
        def mutated(self: "Gathering[Any]") -> float:
            last: float = max(self._arrived.values(), default=0.0)
            return due(self) if len(self) >= self.size.most else last + self.size.wait

        return mutated

    swap(stack, Gathering, "due", make)


@mutant("a batch does not wait for further calls", *BATCHES)
def batch_in_haste(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: "Gathering[Any]") -> float:
            return next(iter(self._arrived.values()))

        return mutated

    swap(stack, Gathering, "due", make)


@mutant("each call of a batch gets the outcome of the call before it", *BATCHES)
def batch_outcomes_moved(stack: ExitStack) -> None:
    def make(outcomes_of: Any) -> Any:
        def mutated(value: object, count: int) -> list[Outcome]:
            found = outcomes_of(value, count)
            return [found[-1], *found[:-1]]

        return mutated

    swap(stack, batches, "outcomes_of", make)


@mutant("of a batch that is lost with its worker, only the first call is requeued", *LOST, first=2)
def batch_lost(stack: ExitStack) -> None:
    def make(lose: Any) -> Any:
        def mutated(state: State, worker: Worker, departure: Departure, why: str) -> None:
            for token in list(worker.held)[1:]:
                del worker.held[token]
            lose(state, worker, departure, why)

        return mutated

    swap(stack, registration, "lose", make)


@mutant("the answers of one batch make room for one further request", *BATCHES)
def batch_room_for_one(stack: ExitStack) -> None:
    def make(answered: Any) -> Any:
        last: dict[Worker, float] = {}

        def mutated(state: State, worker: Worker) -> None:
            if last.get(worker) != state.now:
                last[worker] = state.now
                answered(state, worker)

        return mutated

    swap(stack, dispatch, "request_answered", make)


@mutant("of a batch that is lost with its worker, only one call ends to count as running", *LOST, "running=4", first=2)
def batch_slots_kept(stack: ExitStack) -> None:
    def make(put_down: Any) -> Any:
        gone: set[Worker] = set()

        def mutated(state: State, request: Request) -> None:
            worker = request.worker
            if worker is not None and not worker.alive:
                if worker in gone:
                    return
                gone.add(worker)
            put_down(state, request)

        return mutated

    swap(stack, dispatch, "put_down", make)
