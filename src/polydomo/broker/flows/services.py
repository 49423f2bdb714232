"""The built-in services of flows, in every protocol. ``model.flows.messages`` describes the nodes.

``polydomo.flow.start``    begins a flow: ``id``, ``name``, ``total`` (nodes), ``edges``, ``services`` (their names), optionally ``key``,
                           ``on_failure`` and ``fingerprint``; adds ``nodes`` to the flow ``flow``, from number ``first`` on; with ``open``
                           starts it. One message may do all three. Answers with ``flow``, ``state`` and ``repeated``
``polydomo.flow.show``     a flow, and its nodes from number ``first`` on, with ``edges`` also what each needs
``polydomo.flow.steps``    nodes that have ended, in that order, after the position ``after``; with ``open`` also those that run; with
                           ``only_end`` no nodes, and not before the flow has ended; with ``reports``, how many reports of progress the
                           client knows of, also when there is another one
``polydomo.flow.result``   the result of a ``node``; the body is the worker's reply
``polydomo.flow.list``     flows, the newest first
``polydomo.flow.cancel``, ``polydomo.flow.retry``, ``polydomo.flow.remove``

``starting`` answers the first; each function here another one, now or later, and raises SettingError.
"""

from collections.abc import Callable

from polydomo.broker.flows import flow as states
from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow
from polydomo.broker.flows.ops import ChangeFlow, GetFlow, SelectFlows, SelectNodes
from polydomo.broker.guard.rules import INSPECT
from polydomo.broker.jobs import job as job_states
from polydomo.broker.jobs.durable import NOT_FOUND, PENDING, Durable
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.ops import Op, StoreError
from polydomo.errors import SettingError
from polydomo.limits import (
    FLOW_LOOK,
    FLOW_STEPS,
    MAX_FLOW_NODES,
    MAX_LISTED,
    MAX_NODE_NAME,
    MAX_RESULT_WAIT,
)
from polydomo.model.flows.messages import read_flow_id
from polydomo.model.jobs.messages import read_count, read_duration, read_text
from polydomo.model.json_form import iso_time
from polydomo.model.outcomes import DENIED
from polydomo.model.records import Request

NO_FLOWS = (
    "a client without a principal has no flows of its own; all flows need the right inspect on polydomo.flow.list"
)

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
        "position": max(0, node.position),
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
            progress = job.progress if state == job_states.RUNNING else None
            found.append(
                {"number": job.node, "state": state, "attempts": job.attempts, "started": started, "progress": progress}
            )
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

    def later(self, hears: bool = False) -> bool:
        """Waits for the next change. Returns False if the client waits no longer: then it must be answered now."""
        if self.timed and self.request in self.durable.parked:
            self.durable.flows.watch(self.id, self._wake, hears)
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
    only_end = header.get("only_end") is True
    looked: list[bool] = []  # whether the client may know the flow has been checked
    known = read_count(header, "reports", 1_000_000_000_000) if header.get("reports") is not None else -1

    def look() -> None:
        if only_end and looked and id in durable.flows.running and waiting.later():
            return
        looked.append(True)
        op = SelectNodes(id, after, 0 if only_end else FLOW_STEPS, True)

        def selected(_: Op) -> None:
            if not _usable(durable, request, id, op.row, op.error) or op.row is None:
                return
            ended = op.row.state in states.ENDED
            reports, job = durable.flows.reports.get(id, (0, None))
            if known >= 0 and not op.nodes and not ended and job is not None and known != reports:
                _reply_progress(durable, request, job, {"next": after, "reports": reports})
            elif op.nodes or ended or not waiting.later(known >= 0):
                position = op.nodes[-1].node.position if op.nodes else after
                found = [node_row(durable, one) for one in op.nodes]
                answer = {**flow_row(op.row), "steps": found, "next": position, "reports": reports}
                if header.get("open") is True:
                    answer["open"] = open_rows(durable, id)
                durable.reply(request, answer)

        op.then = selected
        durable.jobs.put(op)

    waiting.look = look
    if _leads(durable, request):
        look()


def _reply_progress(durable: Durable, request: Request, job: Job, answer: Row) -> None:
    """What the worker of a running node has reported; the store has the name of the node."""
    op = SelectNodes(job.flow, job.node - 1, 1, False)

    def selected(_: Op) -> None:
        if op.error is not None or op.row is None or not op.nodes:
            _usable(durable, request, job.flow, op.row, op.error)
            return
        row = {"node": op.nodes[0].node.name, "job": job.id, "progress": job.progress}
        durable.reply(request, {**flow_row(op.row), "steps": [], **answer, "report": row})

    op.then = selected
    durable.jobs.put(op)


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
