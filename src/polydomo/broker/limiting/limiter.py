"""Which services have limits, and the queue of each. Settings name limits by pattern; operators set others while the broker runs.

A limit that an operator has set counts before those of the settings, whose patterns apply again when it is removed. A queue lives as long
as its service has limits, also while the service is not in the table, because its window goes on.
"""

import json
from collections.abc import Callable

from polydomo.broker.interfaces import Limits
from polydomo.broker.limiting.invariants import check_invariants
from polydomo.broker.limiting.limited_queue import FOREVER, LimitedQueue, Permits
from polydomo.broker.limiting.permits import SharedPermits
from polydomo.broker.limiting.reasons import why
from polydomo.broker.requests import dispatch, queues
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.errors import SettingError
from polydomo.limits import COST_LANE, COST_START, MAX_LIMITS, MAX_SERVICE_NAME
from polydomo.model.name_patterns import PatternMap
from polydomo.model.records import LimitedRequests, Request, Worker
from polydomo.model.service_limits import ServiceLimits, read_limits

Row = dict[str, object]

LIMIT = b"polydomo.limit"  # the built-in service that sets and removes limits


class Limiter(Limits):
    def __init__(self, state: State) -> None:
        self._state = state
        self.live: dict[str, ServiceLimits] = {}  # set by operators, by pattern
        self._live: PatternMap[ServiceLimits] = PatternMap({})
        self.queues: dict[bytes, LimitedQueue] = {}
        self.permits = Permits()
        self.shared: SharedPermits | None = None  # in a broker of several processes
        self.began: float | None = None  # what started before this time is not known; None: nothing did
        self.on_change: Callable[[bytes], None] | None = None  # the limits of a service have changed
        self.store: Callable[[str, ServiceLimits | None], None] | None = None  # stores what an operator sets

    def become(self) -> None:
        """Called before the broker listens, when it knows how many processes it has."""
        if self._state.process.count == 1:
            return
        self.permits = self.shared = SharedPermits(self._state, self.queues.get, self._find)
        self.shared.on_complete = self._complete

    # --- which services have limits

    def of(self, name: bytes) -> ServiceLimits | None:
        found = self._live.get(name)
        return found if found is not None else self._state.policy.limits.of(name)

    def queue(self, name: bytes) -> LimitedRequests | None:
        """The queue of a service with limits."""
        found = self.queues.get(name)
        if found is None:
            limits = self.of(name)
            if limits is None or is_reserved(name):
                return None
            found = self.queues[name] = LimitedQueue(self._state, name, limits, self.permits)
            found.closed_until = self._opens_at(limits)
        return found

    def _find(self, name: bytes) -> LimitedQueue | None:
        """The queue of a service that another process uses; this one need not know it."""
        self.queue(name)
        return self.queues.get(name)

    def forget(self, name: bytes) -> None:
        """The service left the table, or its last lane was forgotten."""
        queue = self.queues.get(name)
        if queue is not None and not queue.lanes and name not in self._state.services:
            del self.queues[name]

    def _opens_at(self, limits: ServiceLimits) -> float:
        shared = self.shared
        if shared is not None and shared.decides and not shared.complete:
            return FOREVER
        return self.began + limits.window if self.began is not None and limits.starts else 0.0

    def _complete(self) -> None:
        """All other processes have said what they run. What they had started until now is not known."""
        if self.began is not None:
            self.began = self._state.now
        self._reopen()

    def _reopen(self) -> None:
        for queue in self.queues.values():
            queue.closed_until = self._opens_at(queue.limits)
            self._offer_all(queue)

    def _offer_all(self, queue: LimitedQueue) -> None:
        for lane in list(queue.lanes.values()):
            lane.timer = 0
            queue.changed(lane)
        dispatch.serve_freed(self._state)

    def start_at(self, began: float | None) -> None:
        """The process has started, or became the leader of the job store: what started before is not known. None: nothing did."""
        self.began = began
        self._reopen()

    # --- operators

    def set(self, pattern: str, limits: ServiceLimits | None) -> None:
        """Sets or removes the limits that an operator gives the services of a pattern."""
        if limits is None:
            self.live.pop(pattern, None)
        else:
            self.live[pattern] = limits
        self._live = PatternMap(self.live)
        for name in {*self._state.services, *self.queues}:
            self._apply(name)
        dispatch.serve_freed(self._state)

    def restore(self, found: "dict[str, ServiceLimits]") -> None:
        """What the job store has."""
        if found != self.live:
            self.live = dict(found)
            self._live = PatternMap(self.live)
            for name in {*self._state.services, *self.queues}:
                self._apply(name)
            dispatch.serve_freed(self._state)

    def _apply(self, name: bytes) -> None:
        """The limits of a service may have changed."""
        state = self._state
        limits = self.of(name) if not is_reserved(name) else None
        before = self.queues.get(name)
        service = state.services.get(name)
        if limits == (before.limits if before is not None else None):
            return
        waiting = queues.waiting(service) if service is not None else []
        if service is not None:
            for request in waiting:
                queues.remove(service, request)
        after: LimitedQueue | None = None
        if limits is None:
            del self.queues[name]
        elif before is not None:
            before.change(limits)
            after = before
        else:
            after = self.queues[name] = LimitedQueue(state, name, limits, self.permits)
            self._count_running(after)
        if after is not None:
            after.closed_until = self._opens_at(after.limits)
        if service is not None:
            service.limits = after
            for request in waiting:
                queues.push(service, request)
            state.freed[name] = None
        if self.on_change is not None:
            self.on_change(name)
        if after is not None and self.shared is not None and not self.shared.decides:
            self.shared.restart(after)

    def _count_running(self, queue: LimitedQueue) -> None:
        """Requests that run when the service gets its first limits count."""
        for worker in self._state.workers:
            for request in worker.held.values():
                if request.service.name == queue.name and not worker.session.runs_shared:
                    request.service.limits = queue
                    queue.adopt(request)

    def answer(self, body: bytes) -> Row:
        """Sets or removes limits: a JSON object with ``service``, a name or pattern, and ``running``, ``rate`` and ``per``, or
        ``remove``."""
        try:
            order = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            order = None
        pattern = order.get("service") if isinstance(order, dict) else None
        if not isinstance(order, dict) or not isinstance(pattern, str) or not pattern.strip():
            return {"error": "invalid", "text": "the body must be a JSON object with a service"}
        name = pattern.encode("utf-8", "surrogateescape")
        if len(name) > MAX_SERVICE_NAME or is_reserved(name):
            return {"error": "invalid", "text": f"{pattern!r} is no name of a service that can be limited"}
        if order.get("remove") is True:
            known = pattern in self.live
            if known:
                self.set(pattern, None)
                self._keep(pattern, None)
            if not known:
                return {
                    "error": "not-found",
                    "text": f"no limit was set for {pattern!r}; `polydomo limit ls` lists them",
                }
            return {"service": pattern, "removed": True}
        try:
            limits = read_limits(order)
        except SettingError as error:
            return {"error": "invalid", "text": str(error)}
        if pattern not in self.live and len(self.live) >= MAX_LIMITS:
            return {
                "error": "refused",
                "text": f"there are {MAX_LIMITS} limits already, which is the most (MAX_LIMITS)",
            }
        self.set(pattern, limits)
        self._keep(pattern, limits)
        return {"service": pattern, "limits": limits.to_row(), "stored": self.store is not None}

    def _keep(self, pattern: str, limits: ServiceLimits | None) -> None:
        if self.store is not None:
            self.store(pattern, limits)

    def rows(self) -> "list[Row]":
        """Every limit: those that operators have set, then those of the settings."""
        found: list[Row] = [
            {"service": pattern, "limits": limits.to_row(), "source": "operator"}
            for pattern, limits in sorted(self.live.items())
        ]
        for pattern, limits in self._state.policy.limits.rows():
            row: Row = {"service": pattern, "limits": limits, "source": "settings"}
            found.append(row)
        return found

    def orders(self) -> "list[tuple[bytes, bytes]]":
        """The limits that operators have set, as requests that repeat them to a new process."""
        return [
            (LIMIT, json.dumps({"service": pattern, **limits.to_row()}).encode())
            for pattern, limits in self.live.items()
        ]

    # --- other processes

    def opened(self, worker: Worker, index: int) -> None:
        """The process at the other end of a bridge has said its number."""
        if self.shared is not None and not self.shared.decides and index == 0:
            self.shared.greet(worker, list(self.queues.values()))
            dispatch.serve_freed(self._state)

    def lost(self, worker: Worker) -> None:
        if self.shared is not None:
            self.shared.lost(worker, list(self.queues.values()))
            dispatch.serve_freed(self._state)

    def message(self, worker: Worker, rest: "list[bytes]") -> bool:
        if self.shared is None or not self.shared.message(worker, rest):
            return False
        dispatch.serve_freed(self._state)
        return True

    def started_elsewhere(self, worker: Worker, token: bytes) -> None:
        """Another process has started a request that was sent there."""
        request = worker.held.get(token)
        if request is not None and request.service.limits is not None:
            request.service.limits.started(request)
            dispatch.serve_freed(self._state)

    def end_turn(self) -> None:
        if self.shared is not None and self.shared.reports:
            self.shared.end_turn()

    # --- what is shown

    def why(self, request: Request) -> str:
        return why(request.service.limits, request, self._state)

    def memory(self) -> int:
        total = 0
        for queue in self.queues.values():
            total += COST_LANE * len(queue.lanes) + COST_START * queue.start_count
        return total

    def check_invariants(self) -> None:
        held = {request for worker in self._state.workers for request in worker.held.values()}
        for name, queue in self.queues.items():
            assert queue.name == name and queue.limits == self.of(name), f"the limits of {name!r} are out of date"
            check_invariants(queue)
            gone = [request.number for request in queue.held if request not in held]
            assert not gone, f"{name!r} counts requests as running that no worker holds: {gone}"
        for name, service in self._state.services.items():
            assert service.limits is self.queues.get(name), f"service {name!r} has another queue than its limits"
