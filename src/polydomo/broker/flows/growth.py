"""Flows that are added within one transaction: what a worker answered instead of a result, and the runs of schedules."""

from polydomo.broker.flows.flow import FlowRow, NodeRow, job_id
from polydomo.broker.jobs.job import Job
from polydomo.limits import FLOW_NEEDS
from polydomo.model.flows.growth import read_stored_flow
from polydomo.model.flows.messages import NodeSpec
from polydomo.model.flows.needs import needs_text


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
        self.needs = ""  # what the replaced node needed: that of the nodes that need nothing else, for the journal

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
        pattern = Job("", b"", b"", 0.0)
        pattern.principal, pattern.trace, pattern.level = self.principal, self.trace, self.level
        for spec in self.specs:
            needs = sorted(spec.needs())
            pattern.node_name = prefix + spec.name
            pattern.needs = self.needs if not needs else needs_text([source + base for source in needs], FLOW_NEEDS)
            node = node_of(flow, spec, pattern, base)
            node.pending = len(needs)
            nodes.append(node)
            edges.extend([(source + base, node.number) for source in needs])
        return nodes, edges


def node_of(flow: str, spec: NodeSpec, pattern: Job, base: int = 0) -> NodeRow:
    """A described node as it is stored. ``pattern`` has the name, principal and trace of its job, its level, and what it needs; one serves
    for many nodes."""
    number = spec.number + base
    node = NodeRow(flow, number, pattern.node_name, spec.service)
    node.job = job_id(flow, number)
    node.body = spec.body(base)
    node.priority = spec.priority
    node.allowed = spec.allow_failure
    pattern.run, pattern.backoff = spec.run, spec.backoff
    pattern.group = spec.group
    pattern.flow, pattern.node = flow, number
    pattern.template, pattern.reuse = spec.template, spec.reuse
    node.settings = pattern.settings()
    return node
