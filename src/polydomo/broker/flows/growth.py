"""Flows that are added within one transaction: what a worker answered instead of a result, and the runs of schedules."""

from polydomo.broker.flows.flow import FlowRow, NodeRow, job_id
from polydomo.broker.jobs.job import Job
from polydomo.model.flows.growth import read_stored_flow
from polydomo.model.flows.messages import NodeSpec


class Growth:
    """A checked flow that has no numbers in its store yet. ``principal`` and ``trace`` are those of its jobs, ``level`` is how many
    answers with more work led to it."""

    def __init__(self, text: bytes) -> None:
        """Reads the JSON of a flow file. Raises SettingError."""
        flow = read_stored_flow(text)
        self.flow = flow
        self.text = text
        self.specs = [NodeSpec(node.number, node.row, node.frames[::-1]) for node in flow.nodes]
        self.services = sorted({spec.service for spec in self.specs})
        self.edges = flow.edges
        self.principal = ""
        self.trace = ""
        self.level = 0

    def row(self, id: str, now: float) -> FlowRow:
        """The row of a new flow with these nodes."""
        row = FlowRow(id, self.flow.name, now)
        row.principal = self.principal
        row.on_failure, row.fingerprint = self.flow.on_failure, self.flow.fingerprint()
        row.total, row.edges = len(self.specs), self.edges
        return row

    def nodes(self, flow: str, base: int, prefix: str) -> "tuple[list[NodeRow], list[tuple[int, int]]]":
        """The nodes as they are stored, from number ``base`` on, and their edges."""
        nodes: list[NodeRow] = []
        edges: list[tuple[int, int]] = []
        for spec in self.specs:
            node = node_of(flow, spec, self.principal, self.trace, base, self.level)
            node.name = prefix + node.name
            needs = sorted(spec.needs())
            node.pending = len(needs)
            nodes.append(node)
            edges.extend([(source + base, node.number) for source in needs])
        return nodes, edges


def node_of(flow: str, spec: NodeSpec, principal: str, trace: str, base: int = 0, level: int = 0) -> NodeRow:
    """A described node as it is stored."""
    number = spec.number + base
    node = NodeRow(flow, number, spec.name, spec.service)
    node.job = job_id(flow, number)
    node.body = spec.body(base)
    node.priority = spec.priority
    node.allowed = spec.allow_failure
    pattern = Job("", spec.service, b"", 0.0)
    pattern.principal, pattern.trace = principal, trace
    pattern.run, pattern.backoff = spec.run, spec.backoff
    pattern.group = spec.group
    pattern.flow, pattern.node, pattern.level = flow, number, level
    pattern.template, pattern.reuse = spec.is_template(), spec.reuse
    node.settings = pattern.settings()
    return node
