"""Durable services in a simulated world: a store per broker that keeps committed data across restarts."""

from datetime import UTC
from typing import TYPE_CHECKING

from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.ops import Op, Store
from polydomo.broker.jobs.policy import JobPolicy
from polydomo.model.name_patterns import chosen
from polydomo.model.retry_policy import Backoff
from polydomo.stores.memory import MemoryBackend

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

REPEAT = 600.0  # seconds in which a repeated request finds the result of the first one


class KeptStore(Store):
    """The store of one run of a broker. A commit takes about ``options.durable`` seconds; a crash loses commits in progress."""

    def __init__(self, node: "BrokerNode") -> None:
        self.node = node
        self.run = node.runs
        self.pending: list[Op] = []
        self.busy = False
        self.epoch = node.disk.acquire(node.name, "", 1e9).epoch

    def put(self, op: Op) -> None:
        self.pending.append(op)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if not self.busy and self.pending:
            self.busy = True
            ops, self.pending = self.pending, []
            self.node.later(self.node.options.durable * self.node.rng.uniform(0.5, 2.0), lambda: self._commit(ops))

    def _commit(self, ops: list[Op]) -> None:
        node = self.node
        self.busy = False
        node.disk.apply([op for op in ops if op.writes], self.epoch)
        for op in ops:
            if not op.writes:
                node.disk.read(op)
        node.answered(ops)
        self._commit_soon()


def keep_jobs(node: "BrokerNode") -> None:
    """Requests to the world's first service are durable at this broker."""
    store = KeptStore(node)
    policy = JobPolicy()
    policy.backoff = Backoff(attempts=node.options.attempts, first=0.2, most=1.0)
    policy.keep = policy.keep_dead = 1e6
    policy.repeat = REPEAT
    names = chosen([node.world.services[0].decode()])
    durable = Durable(node.broker, node.broker, store, policy, names, lambda name: UTC)
    node.broker.use_jobs(durable)
    durable.lead(store.epoch, node.disk.load(durable.now() - REPEAT))


def new_disk() -> MemoryBackend:
    return MemoryBackend()
