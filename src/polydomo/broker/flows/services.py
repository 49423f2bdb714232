"""The built-in services of flows, in every protocol. ``model.flows.messages`` describes the nodes.

``polydomo.flow.start``    begins a flow: ``id``, ``name``, ``total`` (nodes), ``edges``, ``services`` (their names), optionally ``key``,
                           ``on_failure`` and ``fingerprint``; adds ``nodes`` to the flow ``flow``, from number ``first`` on; with ``open``
                           starts it. One message may do all three. Answers with ``flow``, ``state`` and ``repeated``
``polydomo.flow.show``     a flow, and its nodes from number ``first`` on, with ``edges`` also what each needs
``polydomo.flow.steps``    nodes that have ended, in that order, after the position ``after``; with ``open`` also those that run
``polydomo.flow.result``   the result of a ``node``; the body is the worker's reply
``polydomo.flow.list``     flows, the newest first
``polydomo.flow.cancel``, ``polydomo.flow.retry``, ``polydomo.flow.remove``

Each function here answers one of them, now or later, and raises SettingError.
"""

from collections.abc import Callable

from polydomo.broker.flows import flow as states
from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow
from polydomo.broker.flows.growth import node_of
from polydomo.broker.flows.ops import ChangeFlow, GetFlow, PutNodes, SelectFlows, SelectNodes
from polydomo.broker.guard.rules import CALL, INSPECT
from polydomo.broker.jobs import job as job_states
from polydomo.broker.jobs.durable import NOT_FOUND, PENDING, Durable
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.ops import Op, StoreError
from polydomo.broker.reserved_names import is_reserved
from polydomo.errors import SettingError
from polydomo.limits import (
    FLOW_LOOK,
    FLOW_PART,
    FLOW_PART_EDGES,
    FLOW_STEPS,
    FLOW_STORING,
    MAX_FLOW_EDGES,
    MAX_FLOW_NODES,
    MAX_JOB_KEY,
    MAX_LISTED,
    MAX_NODE_NAME,
    MAX_RESULT_WAIT,
    MAX_SERVICE_NAME,
)
from polydomo.model.flows.messages import NodeSpec, read_flow_id
from polydomo.model.jobs.messages import read_count, read_duration, read_text
from polydomo.model.json_form import iso_time
from polydomo.model.outcomes import DENIED, KEY_REUSED
from polydomo.model.records import Request
from polydomo.wire.frames import split

OTHER_FLOW = (
    "a flow with this key or id has other nodes, another name or another principal; use a new key for another flow"
)
NO_FLOWS = (
    "a client without a principal has no flows of its own; all flows need the right inspect on polydomo.flow.list"
)
START_FIELDS = {
    "id", "name", "key", "total", "edges", "services", "on_failure", "fingerprint", "flow", "first", "nodes", "open",
}  # fmt: skip


# --- start ----------------------------------------------------------------------------------------------------------------


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
    for number, described in enumerate(given, first):
        spec = NodeSpec(number, described, frames)
        nodes.append(node_of(row.id, spec, request.origin, trace))
        needs = sorted(spec.needs())
        nodes[-1].pending = len(needs)
        edges.extend([(source, number) for source in needs])
    if len(edges) > max(FLOW_PART_EDGES, MAX_FLOW_NODES if len(nodes) == 1 else 0):
        raise SettingError(
            f"nodes: {len(edges):,} edges in one message; the limit is {FLOW_PART_EDGES:,} (FLOW_PART_EDGES)"
        )
    return PutNodes(row.id, request.origin, nodes, edges)


# --- questions ------------------------------------------------------------------------------------------------------------


def flow_row(row: FlowRow) -> Row:
    """A flow as JSON."""
    return {
        "flow": row.id,
        "name": row.name,
        "key": row.key,
        "state": row.state,
        "reason": row.reason,
        "on_failure": row.on_failure,
        "total": row.total,
        "edges": row.edges + row.added_edges,
        "added": row.added,
        "done": row.done,
        "dead": row.dead,
        "skipped": row.skipped,
        "cancelled": row.cancelled,
        "created": iso_time(row.created),
        "ended": iso_time(row.ended) if row.ended else None,
        "position": row.position,
    }


def node_row(durable: Durable, found: NodeFacts) -> Row:
    """A node as JSON. The phase of an open job is known to the leader only."""
    node = found.node
    job = durable.jobs.open.get(node.job)
    return {
        "node": node.name,
        "number": node.number,
        "service": node.service.decode(errors="backslashreplace"),
        "state": _state(job, node),
        "job": node.job,
        "attempts": job.attempts if job is not None else found.attempts,
        "created": iso_time(found.created) if found.created else None,
        "ended": iso_time(found.ended) if found.ended else None,
        "outcome": found.outcome,
        "reason": found.reason,
        "position": node.position,
        "replaces": node.replaces if node.replaces >= 0 else None,
    }


def _state(job: Job | None, node: NodeRow) -> str:
    if job is None or node.state != job_states.OPEN:
        return node.state
    return job_states.RUNNING if job.phase == job_states.RECORDING else job.phase


def _denied(durable: Durable, request: Request, row: FlowRow) -> bool:
    """Returns True if the client may not see or change the flow; then the request was answered."""
    why = durable.denial_of_flow(request, row)
    if why:
        durable.fail(request, DENIED, why)
    return bool(why)


def _usable(durable: Durable, request: Request, id: str, row: FlowRow | None, error: StoreError | None) -> bool:
    """Whether the flow was found and the client may use it; otherwise the request was answered."""
    if error is not None:
        durable.refuse(request, error)
    elif row is None:
        durable.fail(request, NOT_FOUND, f"no such flow: {id}; it never existed, or its results have expired")
    else:
        return not _denied(durable, request, row)
    return False


def _leads(durable: Durable, request: Request) -> bool:
    if not durable.jobs.leads:
        durable.refuse(request, durable.jobs.not_leading())
    return durable.jobs.leads


def open_rows(durable: Durable, id: str) -> "list[Row]":
    """Nodes of a flow that a worker has, then those that wait for their time: what changes while a flow runs, besides its steps."""
    running: list[Row] = []
    delayed: list[Row] = []
    for looked, job in enumerate(durable.jobs.nodes.get(id, {}).values()):
        if looked == FLOW_LOOK:
            break
        state = job_states.RUNNING if job.phase == job_states.RECORDING else job.phase
        if state != job_states.QUEUED:
            found = running if state == job_states.RUNNING else delayed
            started = iso_time(job.started) if state == job_states.RUNNING and job.started else None
            found.append({"number": job.node, "state": state, "attempts": job.attempts, "started": started})
    return (running + delayed)[:FLOW_STEPS]


def show(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_flow_id(header)
    most = read_count(header, "limit", FLOW_STEPS) if header.get("limit") is not None else FLOW_STEPS
    op = SelectNodes(id, read_count(header, "first", MAX_FLOW_NODES) - 1, most, False)
    op.edges = header.get("edges") is True

    def selected(_: Op) -> None:
        if not _usable(durable, request, id, op.row, op.error) or op.row is None:
            return
        answer = {**flow_row(op.row), "nodes": [node_row(durable, found) for found in op.nodes]}
        if op.nodes:
            answer["next"] = op.nodes[-1].node.number + 1
        if op.edges:
            answer["needs"] = [list(pair) for pair in op.needs]
        durable.reply(request, answer)

    op.then = selected
    if _leads(durable, request):
        durable.jobs.put(op)


def list_flows(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    state = read_text(header, "state", 20)
    known = (*states.ACTIVE, *states.ENDED)
    if state and state not in known:
        raise SettingError(f"state: {state!r} must be {', '.join(known[:-1])} or {known[-1]}")
    rights = durable.state.rights
    owner: str | None = None
    if not rights.allows(request.origin, INSPECT, "polydomo.flow.list"):
        owner = request.origin
        if not owner:
            durable.fail(request, DENIED, NO_FLOWS)
            return
    op = SelectFlows(state, read_count(header, "limit", MAX_LISTED) or 100, owner)

    def selected(_: Op) -> None:
        if op.error is not None:
            durable.refuse(request, op.error)
        else:
            durable.reply(request, {"flows": [flow_row(row) for row in op.rows]})

    op.then = selected
    if _leads(durable, request):
        durable.jobs.put(op)


class _Waiting:
    """A client that waits for something in a flow: asks the store after each change, until ``look`` has answered or the time is over."""

    def __init__(self, durable: Durable, request: Request, id: str, seconds: float) -> None:
        self.durable = durable
        self.request = request
        self.id = id
        self.look: Callable[[], None] | None = None
        self.timed = seconds > 0.0
        wait = durable.parked[request]
        if self.timed:
            wait.deadline = durable.state.now + seconds
            wait.over = self._over
            wait.leave = self._leave
            durable.session.broker.set_timer(seconds, durable.session, request)

    def later(self) -> bool:
        """Waits for the next change. Returns False if the client waits no longer: then it must be answered now."""
        if self.timed and self.request in self.durable.parked:
            self.durable.flows.watch(self.id, self._wake)
            return True
        return False

    def _wake(self) -> None:
        if self.request in self.durable.parked and self.look is not None:
            self.look()

    def _over(self) -> None:
        """The next look is the last one."""
        self._leave()
        self.timed = False
        wait = self.durable.parked[self.request]
        wait.over = wait.leave = None
        wait.deadline = self.durable.state.now + MAX_RESULT_WAIT
        self._wake()

    def _leave(self) -> None:
        self.durable.flows.stop_watching(self.id, self._wake)


def steps(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_flow_id(header)
    after = read_count(header, "after", 1_000_000_000)
    waiting = _Waiting(durable, request, id, min(read_duration(header, "wait_us"), MAX_RESULT_WAIT))

    def look() -> None:
        op = SelectNodes(id, after, FLOW_STEPS, True)

        def selected(_: Op) -> None:
            if not _usable(durable, request, id, op.row, op.error) or op.row is None:
                return
            if op.nodes or op.row.state in states.ENDED or not waiting.later():
                position = op.nodes[-1].node.position if op.nodes else after
                found = [node_row(durable, one) for one in op.nodes]
                answer = {**flow_row(op.row), "steps": found, "next": position}
                if header.get("open") is True:
                    answer["open"] = open_rows(durable, id)
                durable.reply(request, answer)

        op.then = selected
        durable.jobs.put(op)

    waiting.look = look
    if _leads(durable, request):
        look()


def result(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_flow_id(header)
    name = read_text(header, "node", MAX_NODE_NAME + 8)  # with NUMBER/
    waiting = _Waiting(durable, request, id, min(read_duration(header, "wait_us"), MAX_RESULT_WAIT))

    def look() -> None:
        op = GetFlow(id, name)

        def found(_: Op) -> None:
            if not _usable(durable, request, id, op.row, op.error):
                return
            node, job = op.found, op.job
            if node is None:
                durable.fail(
                    request, NOT_FOUND, f"flow {id} has no node {name!r}; `polydomo flow show {id}` lists them"
                )
                return
            answer: Row = {
                "flow": id,
                "node": node.name,
                "job": job.id if job is not None else node.job,
                "state": node.state,
            }
            again = op.row is not None and op.row.state == states.RETRYING and node.state != states.DONE
            if again or node.state not in states.NODE_ENDED:
                if not waiting.later():
                    durable.reply(request, {**answer, "error": PENDING, "text": f"node {name!r} has no outcome yet"})
            elif job is not None and node.state != states.SKIPPED:
                durable.reply(
                    request, {**answer, "state": job.state, "outcome": job.outcome, "reason": job.reason}, job.result
                )
            else:
                reason = "a node that it needs has failed" if node.state == states.SKIPPED else "the flow was cancelled"
                durable.reply(request, {**answer, "outcome": node.state, "reason": reason})

        op.then = found
        durable.jobs.put(op)

    waiting.look = look
    if _leads(durable, request):
        look()


# --- orders ---------------------------------------------------------------------------------------------------------------


def cancel(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    _change(durable, request, header, states.CANCELLING, "only a flow that runs can be cancelled")


def retry(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    _change(
        durable,
        request,
        header,
        states.RETRYING,
        "only a flow that has ended, and not every node of which is done, can be retried",
    )


def remove(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    _change(durable, request, header, states.REMOVING, "only a flow that has ended can be removed; cancel it first")


def _change(durable: Durable, request: Request, header: Row, state: str, otherwise: str) -> None:
    id = read_flow_id(header)

    def changed(op: ChangeFlow) -> None:
        if not _usable(durable, request, id, op.row, op.error) or op.row is None:
            return
        if op.done:
            durable.reply(request, flow_row(op.row))
        else:
            durable.fail(request, "invalid", f"the flow {id} is {op.row.state}: {otherwise}")

    op = GetFlow(id)

    def found(_: Op) -> None:
        if _usable(durable, request, id, op.row, op.error):
            durable.flows.change(id, state, "cancelled by a client", changed)

    op.then = found
    if _leads(durable, request):
        durable.jobs.put(op)
