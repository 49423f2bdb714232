"""How simulated brokers notice that they were suspended. A real server measures it with a timer of its own (``server/server.py``)."""

from polydomo import limits
from polydomo.broker.broker import Broker


def excuse_suspension(broker: Broker) -> float:
    """Called before timers run. If they are late, the broker was suspended. Returns the seconds, or 0.0 if it was not."""
    due = broker.own_deadline()
    if due is None or broker.now - due <= limits.OVERSLEPT:
        return 0.0
    broker.was_suspended(broker.now - due)
    return broker.now - due
