"""Limits of services in ``sim.durable``: over all brokers that share the store, by the clock of the world."""

from typing import TYPE_CHECKING

from polydomo.broker.policy import Policy
from polydomo.model.name_patterns import PatternMap
from polydomo.model.records import Request
from polydomo.model.service_limits import GROUP, LimitPatterns, ServiceLimits
from sim.durable_store import Breach

if TYPE_CHECKING:
    from sim.durable import World
    from sim.durable_hosts import Host

LIMITED = "work"
ROUNDING = 0.001  # seconds


class JobLimits:
    def __init__(self, world: "World") -> None:
        plan = world.plan
        self.world = world
        self.limits: ServiceLimits | None = None
        self.starts: dict[bytes, list[float]] = {}  # by group
        if plan.running or plan.rate:
            self.limits = ServiceLimits(plan.running, plan.rate, plan.window if plan.rate else 0.0, GROUP)
            if plan.stored:
                world.database.tables.limits[LIMITED] = self.limits

    def policy(self) -> Policy:
        limits = self.limits
        if limits is None or self.world.plan.stored:
            return Policy()
        return Policy(
            limits=LimitPatterns(
                PatternMap({LIMITED: limits.running} if limits.running else {}),
                PatternMap({LIMITED: (limits.starts, limits.window)} if limits.starts else {}),
                PatternMap({LIMITED: GROUP}),
            )
        )

    def started(self, host: "Host", request: Request) -> None:
        limits, group = self.limits, request.options.group
        if limits is None or request.service.name != LIMITED.encode():
            return
        times = self.starts.setdefault(group, [])
        times.append(self.world.now)
        most = limits.starts
        if most and len(times) > most and times[-1] - times[-1 - most] < limits.window - ROUNDING:
            span = times[-1] - times[-1 - most]
            raise Breach(
                f"{most + 1} jobs of {group!r} started within {span:.3f} s of the {limits.window:g} s of {most}"
            )
        running = sum(
            held.options.group == group and held.service is request.service
            for worker in host.broker.workers
            if not worker.session.runs_shared  # it holds what waits for the run of an equal call
            for held in worker.held.values()
        )
        if limits.running and running > limits.running:
            raise Breach(f"{running} jobs of {group!r} run at {host.name}, and {limits.running} may")
