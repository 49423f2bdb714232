"""The name of this run of the broker among other brokers."""

from polydomo.broker.state import State


def identity(broker: State) -> bytes:
    if not broker.own_identity:
        broker.own_identity = broker.entropy.take(8).hex().encode()
    return broker.own_identity
