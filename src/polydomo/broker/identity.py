"""The name of this run of the broker among other brokers."""

from polydomo.broker.state import State


def identity(state: State) -> bytes:
    if not state.own_identity:
        state.own_identity = state.entropy.take(8).hex().encode()
    return state.own_identity
