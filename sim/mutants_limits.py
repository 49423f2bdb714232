"""Mutants of limits of services."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.limiting.lane import Lane
from polydomo.broker.limiting.limited_queue import LimitedQueue
from polydomo.broker.limiting.limiter import Limiter
from polydomo.broker.requests import dispatch
from polydomo.broker.state import State
from polydomo.model.records import Request, Worker
from polydomo.protocols.bridge.session import BridgeSession
from sim.breaking import both, mutant, swap

PEERS = (*both("mdx,emqp,mdx"), "services=1", "extended=1", "credit=4", "pace=0.2", "burst=6", "groups=3")
RUNNING = (*PEERS, "running=2", "slow=0.2")
RATE = (*PEERS, "rate=3", "window=2")
# The rules of limits over several processes hold in worlds in which these do not lose each other while they run.
TOGETHER = tuple(
    f"{fault}=0" for fault in ("partition", "one_way", "clog", "half_open", "broker_freeze", "clock_jump", "slow_turn")
)
SHARED = (*both("mdx,emqp,mdx"), "services=1", "extended=1", "pace=0.3", "burst=6", "groups=3", "slow=0.2", "brokers=3")
PROCESSES = (*SHARED, *TOGETHER, "bridged=1", "siblings=1", "latency=0.002", "jitter=0.002")


@mutant("a restart begins a new window", *RATE, "broker_crash=0.4", "bridged=0", "siblings=0", "brokers=1")
def window_reset(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: Limiter, began: "float | None") -> None: ...

        return mutated

    swap(stack, Limiter, "start_at", make)


@mutant("the window is a bucket that is emptied as a whole", *RATE)
def bucket_edge(stack: ExitStack) -> None:
    def make(room: Any) -> Any:
        def mutated(self: LimitedQueue, lane: Lane) -> int:
            edge = self._state.now // self.limits.window * self.limits.window
            while lane.starts and lane.starts[0] < edge:
                lane.starts.popleft()
                self.start_count -= 1
            found: int = room(self, lane)
            return found

        return mutated

    swap(stack, LimitedQueue, "room", make)


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


@mutant("each request is a group of its own", *RUNNING, first=2)
def groups_split(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: LimitedQueue, request: Request) -> bytes:
            return b"%d" % request.number

        return mutated

    swap(stack, LimitedQueue, "key_of", make)


@mutant("a lane that has room again does not serve its requests", *RATE, "burst=1", "cut=0")
def room_unnoticed(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: LimitedQueue, lane: Lane) -> None:
            self.settle(lane)

        return mutated

    swap(stack, LimitedQueue, "changed", make)


@mutant("a client that was served is first in its group again", *PEERS, "running=1", "burst=12", first=2)
def first_again(stack: ExitStack) -> None:
    def make(pop: Any) -> Any:
        def mutated(self: LimitedQueue) -> Request:
            request: Request = pop(self)
            lane = self.held[request]
            queue = (lane.by_client or {}).get(request.session)
            if queue is not None and not queue.is_ready:
                lane.unpark(queue)
                lane.park(queue, first=True)
            return request

        return mutated

    swap(stack, LimitedQueue, "pop", make)


@mutant("a process keeps its permits when process 0 is lost", *PROCESSES, "running=1", "broker_crash=0.4", first=11)
def permits_kept(stack: ExitStack) -> None:
    swap(stack, LimitedQueue, "drop_permits", lambda drop: lambda self, lane: None)


@mutant(
    "what a lost process has sent to a third one is not counted", *PROCESSES, "running=1", "broker_crash=0.4", first=9
)
def orphans_uncounted(stack: ExitStack) -> None:
    swap(stack, LimitedQueue, "orphan", lambda orphan: lambda self, session: None)


@mutant(
    "a cancelled request that runs at another process is not counted",
    *PROCESSES,
    "running=1",
    "cancelling=0.5",
    first=2,
)
def cancelled_uncounted(stack: ExitStack) -> None:
    def make(cancel: Any) -> Any:
        def mutated(self: BridgeSession, worker: Worker, request: Request) -> bool:
            cancel(self, worker, request)
            return True

        return mutated

    swap(stack, BridgeSession, "cancel_request", make)


@mutant(
    "a request that crosses to another process counts as started when it leaves",
    *PROCESSES,
    "rate=3",
    "window=1",
    "workers=mdx,mdx",
)
def started_early(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def mutated(self: LimitedQueue) -> Request:
            return self.pop()

        return mutated

    swap(stack, LimitedQueue, "pop_across", make)
