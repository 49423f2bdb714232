"""Rules of services with limits, by the times and the workers that the simulator sees, over all runs of a broker and all its processes."""

from typing import TYPE_CHECKING

from polydomo.broker.requests import queues
from polydomo.model.records import Request, Service, Session, Worker

if TYPE_CHECKING:
    from sim.watch import Watcher

LATE = 0.06  # seconds by which a timer of a window may be late
ROUNDING = 0.001  # seconds
# Faults by which two processes that run lose each other, which those of one machine do not, or by which one stands still.
APART = ("partition", "one_way", "clog", "half_open", "broker_freeze", "clock_jump", "slow_turn")


class LimitRules:
    def __init__(self, watcher: "Watcher") -> None:
        self.watcher = watcher
        self.node = watcher.node
        self.breach = watcher.breach
        self.came = watcher.came
        options = self.node.options
        self.limited = bool(options.running or options.rate)
        # Processes that lose each other while both run: see the page on flow control.
        apart = options.siblings and any(getattr(options, fault) for fault in APART)
        self.counts_running = bool(options.running) and not apart
        self.counts_starts = bool(options.rate) and not apart
        # Two processes notice the end of their connection one after the other.
        self.window = options.window - ROUNDING
        if options.siblings:
            self.window -= 2 * (options.latency + options.jitter)
        self.began = self.node.clock
        self._last: dict[tuple[Service, Session], int] = {}  # number of the client's last dispatch
        self._served: dict[tuple[Service, bytes, Session], int] = {}  # ... in the group

    def started(self, request: Request, tag: str) -> None:
        """ "No window holds more starts than allowed", and no more requests of a group run."""
        if not self.limited:
            return
        node, options = self.node, self.node.options
        group, service = request.options.group, request.service.name
        times = self._starts(service, group)
        times.append(node.broker.now)
        if self.counts_starts and len(times) > options.rate:
            span = times[-1] - times[-1 - options.rate]
            if span < self.window:
                self.breach("window", f"{options.rate + 1} requests of {group!r} started within {span:.4f} s", tag)
        if self.counts_running:
            running = self._running(service, group)
            if running > options.running:
                self.breach("running", f"{running} requests of {group!r} run, and {options.running} may", tag)

    def _starts(self, service: bytes, group: bytes) -> list[float]:
        broker = "" if self.node.options.siblings else self.node.name  # the processes of one broker share the limit
        return self.node.world.starts.setdefault((broker, service, group), [])

    def _running(self, service: bytes, group: bytes) -> int:
        nodes = self.node.world.nodes if self.node.options.siblings else [self.node]
        return sum(
            held.options.group == group and held.service.name == service
            for node in nodes
            if node.up  # the workers of a process that died are lost
            for worker in node.broker.workers
            if not (worker.session.is_bridge or worker.session.runs_shared)
            for held in worker.held.values()
        )

    def in_turn(self, request: Request, tag: str, again: bool) -> None:
        """ "clients are still served in turn": a client is not served twice in a group before another one that waits there is served at
        all. ``again``: a requeued request went first."""
        service, group = request.service, request.options.group
        if service.limits is None or self.node.options.siblings:
            return
        key = (service, group, request.session)
        last = self._served.get(key)
        self._served[key] = self._last[service, request.session] = self.watcher.dispatches
        if last is None or again:
            return
        for other in queues.waiting(service):
            came = self.came.get(other)
            if other.session is request.session or other.options.group != group or came is None or came >= last:
                continue
            if self._last.get((service, other.session), 0) < last:
                self.breach(
                    "turns",
                    f"client {request.session.number} was served twice while request {other.number} "
                    f"of client {other.session.number} waited in {group!r}",
                    tag,
                )

    def unstarted(self) -> None:
        """ "no request starves while its group has room": none waits if a worker is free and its group may start one. What was started
        before this run of the broker is not known to it."""
        node, options = self.node, self.node.options
        broker = node.broker
        if not self.limited or options.siblings or broker.draining:
            return
        if options.rate and broker.now < self.began + options.window + LATE:
            return
        for service in broker.services.values():
            if service.limits is None or service.paused or not service.queue_length:
                continue
            if not any(_is_free(worker) for worker in service.workers):
                continue
            for group in {request.options.group for request in queues.waiting(service)}:
                recent = [
                    when for when in self._starts(service.name, group) if when > broker.now - options.window - LATE
                ]
                if options.rate and len(recent) >= options.rate:
                    continue
                if options.running and self._running(service.name, group) >= options.running:
                    continue
                self.breach("starved", f"a request of {group!r} waits, and its group has room")


def _is_free(worker: Worker) -> bool:
    return worker.credit > 0 and not worker.held and not worker.session.is_bridge
