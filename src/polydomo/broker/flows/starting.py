"""``polydomo.flow.start``: a client stores a flow, in one message or several, and starts it."""

from polydomo.broker.flows import flow as states
from polydomo.broker.flows.flow import FlowRow, NodeRow
from polydomo.broker.flows.growth import node_of
from polydomo.broker.flows.ops import PutNodes
from polydomo.broker.guard.rules import CALL
from polydomo.broker.jobs.durable import NOT_FOUND, Durable
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.ops import StoreError
from polydomo.broker.reserved_names import is_reserved
from polydomo.errors import SettingError
from polydomo.limits import (
    FLOW_NEEDS,
    FLOW_PART,
    FLOW_PART_EDGES,
    FLOW_STORING,
    MAX_FLOW_EDGES,
    MAX_FLOW_NODES,
    MAX_JOB_KEY,
    MAX_SERVICE_NAME,
)
from polydomo.model.flows.messages import NodeSpec, read_flow_id
from polydomo.model.flows.needs import needs_text
from polydomo.model.jobs.messages import read_count, read_text
from polydomo.model.outcomes import DENIED, KEY_REUSED
from polydomo.model.records import Request
from polydomo.wire.frames import split

OTHER_FLOW = (
    "a flow with this key or id has other nodes, another name or another principal; use a new key for another flow"
)
START_FIELDS = {
    "id", "name", "key", "total", "edges", "services", "on_failure", "fingerprint", "flow", "first", "nodes", "open",
}  # fmt: skip


def start(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    unknown = sorted(str(name) for name in header if name not in START_FIELDS)
    if unknown:
        raise SettingError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(START_FIELDS))}")
    begins = header.get("flow") is None
    row = _new_flow(durable, request, header) if begins else FlowRow(read_flow_id(header), "", 0.0)
    part = _nodes(durable, request, header, content, row, row.total if begins else MAX_FLOW_NODES)
    names = {node.service for node in part.nodes}
    if begins:
        names.update(_services(header))
    for service in sorted(names):
        if is_reserved(service):
            name = service.decode(errors="replace")
            raise SettingError(f"service: {name!r} is a built-in service, and cannot run jobs")
        why = durable.state.rights.denial_of(request, CALL, service)
        if why:
            durable.fail(request, DENIED, why)
            return
    starting = _Starting(durable, request, row, part, begins, header.get("open") is True)
    starting.run()


class _Starting:
    """One message about a flow that is being stored."""

    def __init__(
        self, durable: Durable, request: Request, row: FlowRow, part: PutNodes, begins: bool, opens: bool
    ) -> None:
        self.durable = durable
        self.request = request
        self.row = row
        self.part = part
        self.begins = begins
        self.opens = opens
        self.answered = False

    def run(self) -> None:
        """Puts all operations at once, so that a small flow costs one transaction."""
        durable, flows = self.durable, self.durable.flows
        if self.begins:
            flows.begin(self.row, self._begun)
        if self.part.nodes and not self.answered:
            flows.put(self.part, self._stored)
        if self.opens and not self.answered:
            flows.open(self.row.id, self.request.origin, self._opened)
        elif not self.part.nodes and not self.begins:
            durable.fail(self.request, "invalid", "nodes: there are none, and open is not true")

    def _refuse(self, error: StoreError) -> None:
        self.answered = True
        self.durable.refuse(self.request, error)

    def _reply(self, id: str, state: str, repeated: bool) -> None:
        self.answered = True
        self.durable.reply(self.request, {"flow": id, "state": state, "repeated": repeated})

    def _begun(self, found: FlowRow | None, error: StoreError | None) -> None:
        if error is not None or found is None:
            self._refuse(error if error is not None else self.durable.jobs.not_leading())
        elif found is self.row:
            if not self.opens:
                self._reply(found.id, found.state, False)
        elif not self.row.repeats(found):
            self.answered = True
            self.durable.fail(self.request, KEY_REUSED, OTHER_FLOW)
        elif found.id != self.row.id or found.state != states.STORING or not self.opens:
            self._reply(found.id, found.state, found.state != states.STORING)

    def _stored(self, done: bool, error: StoreError | None) -> None:
        if self.answered or (self.opens and error is None):
            return
        if error is not None:
            self._refuse(error)
        elif not done:
            self._gone()
        else:
            self._reply(self.row.id, states.STORING, False)

    def _opened(self, found: FlowRow | None, missing: int, error: StoreError | None) -> None:
        if self.answered:
            return
        if error is not None:
            self._refuse(error)
        elif found is None:
            self._gone()
        elif missing:
            self.durable.fail(
                self.request,
                "invalid",
                f"{missing} nodes of the flow are missing or have the name of another node, or it has more edges than it said",
            )
        else:
            self._reply(found.id, found.state, found.state != states.RUNNING or found.cursor >= 0)

    def _gone(self) -> None:
        self.answered = True
        text = f"no such flow is being stored: {self.row.id}; start it again"
        self.durable.fail(self.request, NOT_FOUND, text)


def _new_flow(durable: Durable, request: Request, header: Row) -> FlowRow:
    id = read_flow_id(header, "id") if header.get("id") is not None else durable.new_id()
    now = durable.now()
    row = FlowRow(id, read_text(header, "name", MAX_SERVICE_NAME), now)
    if not row.name:
        raise SettingError("name: the name of the flow is missing")
    row.principal = request.origin
    row.key = read_text(header, "key", MAX_JOB_KEY)
    row.fingerprint = read_text(header, "fingerprint", 100)
    row.on_failure = read_text(header, "on_failure", 20) or states.CONTINUE
    if row.on_failure not in (states.CONTINUE, states.CANCEL):
        raise SettingError(f"on_failure: {row.on_failure!r} must be continue or cancel")
    row.total = _limited(header, "total", MAX_FLOW_NODES, "MAX_FLOW_NODES")
    row.edges = _limited(header, "edges", MAX_FLOW_EDGES, "MAX_FLOW_EDGES")
    if not row.total:
        raise SettingError("total: the flow has no nodes")
    row.kept, row.kept_failed = durable.jobs.policy.keep, durable.jobs.policy.keep_dead
    row.keep = now + FLOW_STORING
    return row


def _limited(header: Row, name: str, most: int, limit: str) -> int:
    value = header.get(name, 0)
    if isinstance(value, int) and not isinstance(value, bool) and value > most:
        raise SettingError(f"{name}: the flow has {value:,}; the limit is {most:,} ({limit})")
    return read_count(header, name, most)


def _services(header: Row) -> "list[bytes]":
    given = header.get("services", [])
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise SettingError("services: must be a list of names")
    return [str(name).encode("utf-8", "surrogateescape") for name in given]


def _nodes(durable: Durable, request: Request, header: Row, content: bytes, row: FlowRow, total: int) -> PutNodes:
    """The nodes in a message, as they are stored."""
    given = header.get("nodes", [])
    if not isinstance(given, list):
        raise SettingError("nodes: must be a list")
    if len(given) > FLOW_PART:
        raise SettingError(f"nodes: {len(given)} in one message; the limit is {FLOW_PART} (FLOW_PART)")
    first = read_count(header, "first", MAX_FLOW_NODES)
    if first + len(given) > total:
        raise SettingError(f"nodes: number {first + len(given) - 1} is beyond the {total} nodes of the flow")
    frames = split(content) if content else []
    frames.reverse()  # taken from the end
    _, trace = request.session.facts_of(request.ref)
    nodes: list[NodeRow] = []
    edges: list[tuple[int, int]] = []
    pattern = Job("", b"", b"", 0.0)
    pattern.principal, pattern.trace = request.origin, trace
    for number, described in enumerate(given, first):
        spec = NodeSpec(number, described, frames)
        needs = sorted(spec.needs())
        pattern.node_name, pattern.needs = spec.name, needs_text(needs, FLOW_NEEDS)
        nodes.append(node_of(row.id, spec, pattern))
        nodes[-1].pending = len(needs)
        edges.extend([(source, number) for source in needs])
    if len(edges) > max(FLOW_PART_EDGES, MAX_FLOW_NODES if len(nodes) == 1 else 0):
        raise SettingError(
            f"nodes: {len(edges):,} edges in one message; the limit is {FLOW_PART_EDGES:,} (FLOW_PART_EDGES)"
        )
    return PutNodes(row.id, request.origin, nodes, edges)
