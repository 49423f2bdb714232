"""The content of a store in memory."""

from polydomo.broker.flows.flow import FlowRow, NodeRow
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import ScheduleRow
from polydomo.broker.jobs.part import StoredPart
from polydomo.model.service_limits import ServiceLimits


class MemoryTables:
    """The content of a store."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, str] = {}
        self.checks: dict[str, bytes] = {}  # of each job
        # Partial replies of jobs: attempt, number -> part and its checksums.
        self.parts: dict[str, dict[tuple[int, int], tuple[StoredPart, bytes]]] = {}
        self.collected: set[str] = set()
        self.fired: set[tuple[str, float]] = set()
        self.schedules: dict[str, ScheduleRow] = {}
        self.paused: set[bytes] = set()
        self.limits: dict[str, ServiceLimits] = {}
        self.flows: dict[str, FlowRow] = {}
        self.nodes: dict[str, dict[int, NodeRow]] = {}  # by flow
        self.edges: dict[str, dict[int, set[int]]] = {}  # by flow: the nodes that need a node
        self.epoch = 0
        self.owner = ""
        self.address = ""
        self.expires = 0.0
