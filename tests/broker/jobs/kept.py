"""A broker that keeps jobs in memory, for tests without I/O: nothing is stored before ``HeldStore.sync``."""

from datetime import UTC

from polydomo.broker.broker import Broker
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.policy import JobPolicy
from polydomo.model.name_patterns import PatternMap
from polydomo.model.retry_policy import Backoff
from polydomo.stores.memory import MemoryBackend
from tests.broker.jobs.machine import HeldStore


def keep_jobs(broker: Broker, names: "PatternMap[bool]", backend: MemoryBackend) -> HeldStore:
    """The broker leads from now on. A second broker with the same backend finds its jobs, as after a crash."""
    store = HeldStore(backend)
    policy = JobPolicy()
    policy.backoff = Backoff(attempts=3, first=1.0, jitter=0.0)
    policy.keep = policy.keep_dead = 1e6
    policy.repeat = 600.0
    durable = Durable(broker, broker, store, policy, names, lambda name: UTC)
    broker.use_jobs(durable)
    store.epoch = backend.acquire("a", "", 10.0).epoch
    durable.lead(store.epoch, backend.load(durable.now() - policy.repeat))
    return store
