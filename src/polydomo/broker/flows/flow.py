"""The records of a flow: the flow itself and its nodes, as they are stored.

storing -> running -> done or failed
              |  ^--- retrying <- failed or cancelled
              '-> cancelling -> cancelled or failed

a node:   waiting -> open -> done, dead or cancelled
             |         '-> grown -> as the node that replaces it
             '-> skipped or cancelled
"""

import hashlib
from functools import lru_cache
from typing import Final

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.limits import FLOW_INPUT
from polydomo.model.jobs.messages import ALPHABET, make_id

# States of a flow.
STORING: Final = "storing"  # its nodes are being sent; it is not acknowledged
RUNNING: Final = "running"
CANCELLING: Final = "cancelling"  # nothing starts any more, and what is open is cancelled
RETRYING: Final = "retrying"  # nodes that failed are being reset; nothing starts
DONE: Final = "done"
FAILED: Final = "failed"  # it has ended, and some nodes are dead or skipped
CANCELLED: Final = "cancelled"
REMOVING: Final = "removing"  # its nodes are being deleted
ACTIVE: Final = (RUNNING, CANCELLING, RETRYING)
ENDED: Final = (DONE, FAILED, CANCELLED)

# States of a node, besides those of its job: open, done, dead and cancelled.
WAITING: Final = "waiting"  # for nodes that it needs
GROWN: Final = "grown"  # its worker has answered with a flow, whose last node gives it its outcome
SKIPPED: Final = "skipped"  # a node that it needs has failed
NODE_ENDED: Final = (states.DONE, states.DEAD, states.CANCELLED, SKIPPED)

CONTINUE: Final = "continue"
CANCEL: Final = "cancel"


class FlowRow:
    """One run of a flow. Times are seconds since the epoch."""

    __slots__ = (
        "added", "added_edges", "cancelled", "created", "cursor", "damage", "dead", "done", "edges", "ended", "failed", "fingerprint", "id",
        "keep", "kept", "kept_failed", "key", "name", "on_failure", "position", "principal", "reason", "skipped", "state", "total",
    )  # fmt: skip

    def __init__(self, id: str, name: str, created: float) -> None:
        self.id = id  # of the same form as that of a job
        self.name = name
        self.key = ""  # idempotency key: it belongs to the principal and the name of the flow
        self.principal = ""
        self.fingerprint = ""  # of all nodes
        self.on_failure = CONTINUE
        self.created = created
        self.total = 0  # nodes
        self.edges = 0
        self.added = 0  # of these nodes: by workers that answered with more work
        self.added_edges = 0  # not in ``edges``
        self.kept = 0.0  # seconds that it is kept after its end, and after an end with failures; 0: for ever
        self.kept_failed = 0.0
        self.state = STORING
        self.reason = ""  # why it was cancelled
        self.done = 0  # nodes that have ended, by their state
        self.dead = 0
        self.skipped = 0
        self.cancelled = 0
        self.failed = 0  # of those: not done, without ``allow_failure``
        self.position = 0  # of the last step: each end of a node has the next position
        # Slices: while it runs, nodes without predecessors are released up to this number; while it is retried, nodes are reset.
        self.cursor = -1
        self.ended = 0.0
        self.keep = 0.0  # removed after this time; 0: never
        self.damage = ""

    def over(self) -> int:
        """How many nodes have ended."""
        return self.done + self.dead + self.skipped + self.cancelled

    def count(self, node: "NodeRow") -> None:
        """Counts a node that has ended, and gives it its position."""
        if node.state == states.DONE:
            self.done += 1
        elif node.state == states.DEAD:
            self.dead += 1
        elif node.state == SKIPPED:
            self.skipped += 1
        else:
            self.cancelled += 1
        if node.fails():
            self.failed += 1
        self.position += 1
        node.position = self.position

    def repeats(self, first: "FlowRow") -> bool:
        """Whether this start is the same as that of a stored flow with the same id or key."""
        return (
            self.principal == first.principal
            and self.name == first.name
            and self.fingerprint == first.fingerprint
            and self.on_failure == first.on_failure
            and self.total == first.total - first.added
        )


class NodeRow:
    """A node of a flow."""

    __slots__ = (
        "allowed", "body", "checks", "ended", "flow", "grown", "job", "name", "number", "pending", "position", "priority", "replaces",
        "service", "settings", "state", "telling", "tries",
    )  # fmt: skip

    def __init__(self, flow: str, number: int, name: str, service: bytes) -> None:
        self.flow = flow
        self.number = number  # a node needs only nodes with smaller numbers
        self.name = name
        self.service = service
        self.job = ""  # the id of its job
        self.body = b""  # until it is released: then its job has it
        self.settings = ""  # of its job, from ``Job.settings``
        self.priority = 0
        self.allowed = False  # its failure is a value for the nodes that need it
        self.checks = b""  # of the fields above
        self.pending = 0  # nodes that it needs and that have not ended
        self.state = WAITING
        self.telling = -1  # after its end: nodes that need it are released from this number on; -1: all are
        # In the order of ends; 0 before; after a reset by a retry, minus the last position at that time.
        self.position = 0
        self.ended = 0.0
        self.tries = 0  # how often it was released
        self.grown = -1  # the node that has its result, if its worker answered with a flow
        self.replaces = -1  # the node that ends with it: its worker answered with a flow of which this is the last node

    def fails(self) -> bool:
        """Whether the nodes that need it are skipped."""
        return self.state in (states.DEAD, SKIPPED, states.CANCELLED) and not self.allowed

    def to_job(self, now: float) -> Job:
        """The job of a node that is released."""
        job = Job(self.job, self.service, self.body, now)
        job.origin = states.FLOW
        job.priority = self.priority
        job.configure(self.settings)
        job.stored_settings = self.settings
        return job


class NodeFacts:
    """What is known about a node and its job, for lists."""

    __slots__ = ("attempts", "created", "ended", "node", "outcome", "reason")

    def __init__(self, node: NodeRow) -> None:
        self.node = node
        self.attempts = 0
        self.created = 0.0  # when it was released
        self.ended = 0.0
        self.outcome = ""
        self.reason = ""


class NodeEnd:
    """A node that has ended, for the journal. See ``events``."""

    __slots__ = ("flow", "name", "needs", "number", "position", "reason", "since", "state")

    def __init__(self, node: NodeRow, since: int) -> None:
        self.flow = node.flow
        self.number = node.number
        self.name = node.name
        self.state = node.state
        self.position = node.position
        self.since = since
        self.reason = ""
        self.needs = ""  # of a replaced node: the one that replaces it


class Settled:
    """What changed in flows within one transaction, for the leader."""

    def __init__(self) -> None:
        self.flows: dict[str, FlowRow] = {}
        self.released: list[Job] = []
        self.more: set[str] = set()  # flows with work for another transaction
        self.inputs = 0  # bytes of ``Job.input`` of the released jobs
        # For the journal: nodes that ended without an attempt, and the position and ``since`` of those that ended with their jobs.
        self.ends: list[NodeEnd] = []
        self.places: dict[str, tuple[int, int]] = {}

    def place(self, job: Job) -> None:
        """Tells a job where its end is among those of its flow."""
        job.position, job.since = self.places.get(job.id, (0, 0))

    def room(self) -> int:
        """Bytes of inputs that may still be read now: they are copied to the loop."""
        return 64 * FLOW_INPUT - self.inputs


def job_id(flow: str, number: int) -> str:
    """The id of the job of a node: the time of the flow's id, 12 characters for the flow, and 4 for the number. So the jobs of a flow are
    beside each other in the store, in order, and a transaction writes few pages.

    >>> job_id("01KDVDNA000000000000000000", 7), job_id("01KDVDNA000000000000000000", 40)
    ('01KDVDNA0003EY6P5A0BTM0007', '01KDVDNA0003EY6P5A0BTM0018')
    """
    digits = "".join([ALPHABET[number >> shift & 31] for shift in (15, 10, 5, 0)])
    return f"{flow[:10]}{_mark(flow)}{digits}"


@lru_cache(maxsize=256)
def _mark(flow: str) -> str:
    return make_id(0.0, hashlib.blake2b(flow.encode(), digest_size=10).digest())[14:]
