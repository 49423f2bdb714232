"""Events of flows, for the recorder.

The release and the end of a node are events of its job (``jobs.events``), which name the flow and the node. These are the others, about the
flow as a whole. ``NodeEnd`` is a node that ends without an attempt: it is skipped, cancelled before its release, replaced, or damaged.

``position`` orders the ends of the nodes of a flow, whichever brokers record them: the store counts them within its transactions. With the
release of a node, it is the position of the next end. ``since`` is what the counter was when the node was reset by a retry, or 0: from
there to its end the node had no outcome, so no node that needs it may have been released.
"""

from polydomo.broker.flows.flow import SKIPPED, FlowRow
from polydomo.broker.jobs import job as states

STARTED = "started"


class FlowEvent:
    """One event of a flow: it started, its state changed, or it ended."""

    __slots__ = ("created", "flow", "key", "name", "nodes", "position", "principal", "reason", "what")

    def __init__(self, row: FlowRow, what: str, reason: str = "") -> None:
        self.what = what
        self.reason = reason
        self.flow = row.id
        self.name = row.name
        self.key = row.key
        self.principal = row.principal
        self.created = row.created
        self.nodes = row.total
        self.position = row.position


def ended(row: FlowRow) -> FlowEvent:
    """The end of a flow, with the number of its nodes in each state."""
    counts = [
        (row.done, states.DONE),
        (row.dead, states.DEAD),
        (row.skipped, SKIPPED),
        (row.cancelled, states.CANCELLED),
    ]
    text = ", ".join([f"{count} {state}" for count, state in counts if count])
    return FlowEvent(row, row.state, f"{row.reason}: {text}" if row.reason else text)
