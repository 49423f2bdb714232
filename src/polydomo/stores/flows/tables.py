"""What a store can do with the tables of flows. ``steps`` has the rules, which are the same for every store."""

from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow
from polydomo.broker.flows.growth import Growth
from polydomo.broker.jobs.job import Job

# The number of a node, the state in which its job ended, when, and the flow that its worker answered with.
End = tuple[int, str, float, Growth | None]


class FlowTables:
    """The tables ``flows``, ``flow_nodes`` and ``flow_edges``, and the jobs of nodes, within one transaction."""

    # flows

    def flow(self, id: str) -> FlowRow | None:
        raise NotImplementedError

    def flow_with_key(self, scoped: str) -> FlowRow | None:
        raise NotImplementedError

    def add_flow(self, row: FlowRow) -> None:
        raise NotImplementedError

    def update_flow(self, row: FlowRow) -> None:
        raise NotImplementedError

    def drop_flow(self, id: str) -> None:
        """Removes the row of a flow without nodes."""
        raise NotImplementedError

    def expired(self, now: float, most: int) -> "list[FlowRow]":
        """Flows to remove: those whose time is over, and those whose nodes are being deleted."""
        raise NotImplementedError

    def active(self) -> "list[FlowRow]":
        """Flows that run, or in which something is left to do."""
        raise NotImplementedError

    def newest(self, state: str, most: int, principal: str | None = None) -> "list[FlowRow]":
        """Flows, of one principal if it is given, the newest first, without those that are being stored or removed."""
        raise NotImplementedError

    # nodes

    def add_nodes(self, nodes: "list[NodeRow]", edges: "list[tuple[int, int]]") -> None:
        """Those that exist are left as they are."""
        raise NotImplementedError

    def count(self, flow: str) -> "tuple[int, int]":
        """How many nodes and edges it has."""
        raise NotImplementedError

    def nodes(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        """These nodes, with their bodies, in order."""
        raise NotImplementedError

    def light(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        """These nodes without their services, bodies and settings."""
        raise NotImplementedError

    def take(self, flow: str, counts: "dict[int, int]") -> "list[NodeRow]":
        """Subtracts from ``pending`` of each node; returns them as ``light`` does."""
        raise NotImplementedError

    def node_named(self, flow: str, name: str) -> NodeRow | None:
        raise NotImplementedError

    def in_state(self, flow: str, states: "tuple[str, ...]", after: int, most: int) -> "list[int]":
        """The numbers of nodes in these states above ``after``, in order."""
        raise NotImplementedError

    def ready(self, flow: str, after: int, most: int) -> "list[int]":
        """The numbers of waiting nodes above ``after`` that wait for no other node, in order."""
        raise NotImplementedError

    def untold(self, flow: str, most: int) -> "list[int]":
        """Ended nodes of which some nodes that need them have not been told."""
        raise NotImplementedError

    def grown(self, flow: str, numbers: "list[int]") -> "dict[int, int]":
        """Of these nodes, those that were replaced, and the nodes that have their results."""
        raise NotImplementedError

    def update_nodes(self, flow: str, nodes: "list[NodeRow]") -> None:
        """Stores state, pending, telling, position, end, tries and what replaces it; the body of a released node is removed."""
        raise NotImplementedError

    def drop_nodes(self, flow: str, most: int) -> int:
        """Deletes some nodes, their edges and their jobs. Returns how many nodes."""
        raise NotImplementedError

    def facts(self, flow: str, after: int, most: int, by_end: bool) -> "list[NodeFacts]":
        raise NotImplementedError

    def node_of_job(self, job: str) -> NodeRow | None:
        """The open node of a job. This may take long: it is for damaged jobs."""
        raise NotImplementedError

    # edges

    def targets(self, flow: str, source: int, least: int, most: int) -> "list[int]":
        """The nodes from number ``least`` on that need ``source``, in order."""
        raise NotImplementedError

    def edges_from(self, flow: str, sources: "list[int]", most: int) -> "list[tuple[int, int]]":
        """Edges (source, target) of these nodes, by source and target."""
        raise NotImplementedError

    def sources(self, flow: str, targets: "list[int]") -> "list[tuple[int, int]]":
        """Edges (source, target) that lead to these nodes."""
        raise NotImplementedError

    # jobs

    def add_jobs(self, jobs: "list[Job]") -> None:
        raise NotImplementedError

    def jobs(self, ids: "list[str]") -> "dict[str, Job]":
        """Stored jobs, verified."""
        raise NotImplementedError

    def last_attempts(self, ids: "list[str]") -> "dict[str, int]":
        """The last attempt with partial replies of each of these jobs that has any."""
        raise NotImplementedError

    def replace_job(self, job: Job) -> None:
        raise NotImplementedError

    def sizes(self, ids: "list[str]") -> int:
        """Total bytes of the results of these jobs."""
        raise NotImplementedError
