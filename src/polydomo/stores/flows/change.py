"""What one transaction changes in a flow: nodes end, and others are released or skipped.

The outcome of a node and the release of the nodes that waited only for it are one transaction. A transaction follows at most ``FLOW_EDGES``
edges. What is left is in the store (``NodeRow.telling``, ``FlowRow.cursor``, ``FlowRow.state``), and ``Settle`` continues there.
"""

import json
from collections import Counter

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import FlowRow, NodeEnd, NodeRow, Settled, job_id
from polydomo.broker.flows.growth import Growth
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job, reopening
from polydomo.limits import FLOW_EDGES, FLOW_INPUT, FLOW_INPUTS, FLOW_SLICE
from polydomo.model.flows.messages import Template
from polydomo.model.jobs.messages import error_header
from polydomo.model.json_form import iso_time
from polydomo.stores.flows.checks import node_damage
from polydomo.stores.flows.tables import FlowTables
from polydomo.wire.frames import flat

NEEDED = "a node that it needs has failed"


class FlowChange:
    """What one transaction changes in one flow."""

    def __init__(self, tables: FlowTables, row: FlowRow, now: float, settled: Settled) -> None:
        self.tables = tables
        self.row = row
        self.now = now
        self.settled = settled
        self.changed: dict[int, NodeRow] = {}
        self.untold: list[NodeRow] = []  # ended nodes; the nodes that need them are to be told
        self.replacing: list[NodeRow] = []  # ended nodes that replace others, which end with them
        self.ready: list[int] = []
        self.places: dict[str, tuple[int, int]] = {}  # of released jobs
        self.jobs: dict[str, Job] = {}  # that have ended in this transaction, by id
        self.left = False  # there is more to do than this transaction does

    # --- ends

    def end(self, node: NodeRow, state: str, when: float) -> NodeEnd:
        """Gives a node its outcome."""
        row = self.row
        since = max(0, -node.position)
        node.state, node.ended = state, when
        row.count(node)
        self.changed[node.number] = node
        if node.fails() and row.on_failure == flows.CANCEL and row.state == flows.RUNNING:
            row.state = flows.CANCELLING
            self.left = True
            row.reason = f"node {node.name!r} is {state}"
        if row.state == flows.RUNNING:
            node.telling = 0
            self.untold.append(node)
        if node.replaces >= 0:
            self.replacing.append(node)
        return NodeEnd(node, since)

    def end_unrun(self, node: NodeRow, state: str, reason: str, needs: str = "") -> None:
        """Gives an outcome to a node that does not get that of its job."""
        end = self.end(node, state, self.now)
        end.reason, end.needs = reason, needs
        self.settled.ends.append(end)

    def replace(self) -> None:
        """Gives nodes the outcome of those that replace them: a chain of answers with more work ends at once."""
        while self.replacing:
            last = {node.replaces: node for node in self.replacing}
            self.replacing = []
            for stored in self.tables.light(self.row.id, sorted(last)):
                node = self.changed.get(stored.number, stored)
                if node.state == flows.GROWN:
                    other = last[node.number]
                    node.grown = other.grown if other.grown >= 0 else other.number
                    self.end_unrun(node, other.state, "", str(other.number))

    def grow(self, node: NodeRow, growth: Growth) -> None:
        """Replaces a node by the last node of a flow."""
        row = self.row
        base = row.total
        nodes, edges = growth.nodes(row.id, base, f"{node.number}/")
        last = nodes[-1]
        last.replaces, last.allowed = node.number, node.allowed
        self.tables.add_nodes(nodes, edges)
        node.state, node.grown = flows.GROWN, last.number
        self.changed[node.number] = node
        free = [added.number for added in nodes if not added.pending]
        row.total += len(nodes)
        row.added += len(nodes)
        row.added_edges += len(edges)
        if row.state == flows.CANCELLING:
            self.left = True
        elif row.cursor >= base and len(free) + len(self.ready) <= FLOW_SLICE:
            self.ready.extend(free)
            row.cursor = row.total
        else:
            row.cursor = min(row.cursor, base - 1)

    def tell(self) -> None:
        """Tells the nodes that need an ended one: each waits for one less, is released with the last, or is skipped."""
        row, tables = self.row, self.tables
        left = FLOW_EDGES
        self.replace()
        while self.untold and left > 0 and row.state == flows.RUNNING:
            batch, edges = self._edges(left)
            left -= len(edges)
            failing = {node.number: node for node in batch if node.fails()}
            lost = {target: source for source, target in edges if source in failing}
            for target in tables.take(row.id, Counter([target for _, target in edges])):
                if target.state != flows.WAITING or target.number in self.changed:
                    continue  # it has ended, perhaps in this transaction
                if target.number in lost:
                    other = failing[lost[target.number]]
                    self.end_unrun(target, flows.SKIPPED, f"node {other.name!r} is {other.state}")
                elif not target.pending:
                    self.ready.append(target.number)
            self.replace()

    def _edges(self, most: int) -> "tuple[list[NodeRow], list[tuple[int, int]]]":
        """Some ended nodes and the edges to follow now; sets what is left of each node, and takes those without rest off the list."""
        first = self.untold[0]
        if first.telling > 0:
            batch = [first]
            found = self.tables.targets(self.row.id, first.number, first.telling, most + 1)
            edges = [(first.number, target) for target in found]
        else:
            batch = sorted((node for node in self.untold if not node.telling), key=lambda node: node.number)
            batch = batch[:FLOW_SLICE]
            edges = self.tables.edges_from(self.row.id, [node.number for node in batch], most + 1)
        if len(edges) > most:
            edges = edges[:most]
            source, target = edges[-1]
            for node in batch:
                if node.number < source:
                    node.telling = -1
                elif node.number == source:
                    node.telling = target + 1
        else:
            for node in batch:
                node.telling = -1
        for node in batch:
            self.changed[node.number] = node
        self.untold = [node for node in self.untold if node.telling >= 0]
        return batch, edges

    # --- release

    def release(self, numbers: "list[int]") -> None:
        """Makes jobs of nodes that wait for no other node."""
        row, tables = self.row, self.tables
        if not numbers or row.state != flows.RUNNING:
            return
        fresh: list[Job] = []
        again: list[NodeRow] = []
        for node in tables.nodes(row.id, numbers):
            damage = node_damage(node)
            if damage:
                job = Job(node.job, node.service, b"", self.now)
                job.origin, job.flow, job.node = states.FLOW, row.id, node.number
                job.ended = self.now
                job.condemn(damage)
                tables.add_jobs([job])
                self.end_unrun(node, states.DEAD, damage)
                continue
            if node.tries:
                again.append(node)
            else:
                fresh.append(node.to_job(self.now))
            self.places[node.job] = row.position + 1, max(0, -node.position)
            node.state = states.OPEN
            node.tries += 1
            self.changed[node.number] = node
        if fresh:
            tables.add_jobs(fresh)
        released = [*fresh, *self._reopened(again)]
        for job in released:
            job.position, job.since = self.places[job.id]
        self._forget_needs([job for job in released if job.level and job.since])
        self._add_inputs(released)
        self.settled.released.extend(released)

    def _forget_needs(self, jobs: "list[Job]") -> None:
        """For the journal, an added node without predecessors needs what the node needed that it replaces. That one ran before the flow
        was retried, so the added node does not wait for those again."""
        own = {target for _, target in self.tables.sources(self.row.id, [job.node for job in jobs])}
        for job in jobs:
            if job.node not in own:
                job.needs = ""

    def _reopened(self, nodes: "list[NodeRow]") -> "list[Job]":
        """The jobs of nodes that are run again. Their stories go on."""
        found = self.tables.jobs([node.job for node in nodes])
        streamed = self.tables.last_attempts([node.job for node in nodes])
        released: list[Job] = []
        for node in nodes:
            job = found.get(node.job)
            if job is None or job.outcome == states.DAMAGED:
                self.end_unrun(node, states.DEAD, job.reason if job is not None else "its job is missing")
                continue
            job.state, job.outcome, job.reason, job.result, job.ended, job.keep = states.OPEN, "", "", b"", 0.0, 0.0
            job.attempts, job.due, job.expires = 0, self.now, 0.0
            job.tell(reopening(iso_time(self.now)))
            job.restore_waits()
            job.streamed = streamed.get(job.id, 0)
            self.tables.replace_job(job)
            released.append(job)
        return released

    def _add_inputs(self, jobs: "list[Job]") -> None:
        """Reads small results for nodes that are likely to start at once, so that no second read is needed."""
        wanted: dict[str, Template] = {}
        numbers: dict[int, None] = {}
        for job in jobs:
            if job.template and self.settled.room() > 0 and len(wanted) < FLOW_SLICE:
                template = Template(job.body)
                nodes = template.nodes()
                if len(nodes) <= FLOW_INPUTS:
                    wanted[job.id] = template
                    numbers.update(dict.fromkeys(nodes))
        if not wanted:
            return
        ids = sources_of(self.tables, self.row.id, list(numbers), self.row.added > 0)
        for number in numbers:
            changed = self.changed.get(number)  # by this transaction, which writes it at its end
            if changed is not None and changed.grown >= 0:
                ids[number] = job_id(self.row.id, changed.grown)
        found = {id: self.jobs[id] for id in ids.values() if id in self.jobs}
        stored = [id for id in ids.values() if id not in found]
        size = self.tables.sizes(stored) + sum([len(job.result) for job in found.values()])
        if size > min(self.settled.room(), FLOW_INPUT * len(wanted)):
            return
        found.update(self.tables.jobs(stored))
        for job in jobs:
            chosen = wanted.get(job.id)
            if chosen is not None:
                job.input, _ = fill(chosen, ids, found)
                self.settled.inputs += len(job.input) if job.input is not None else 0

    # --- the end of the transaction

    def finish(self) -> None:
        row = self.row
        self.tell()
        self.release(self.ready)
        self.replace()
        if row.over() == row.total and row.state in (flows.RUNNING, flows.CANCELLING):
            row.state = self._outcome()
            row.ended = self.now
            seconds = row.kept if row.state == flows.DONE else row.kept_failed
            row.keep = self.now + seconds if seconds else 0.0
        if self.changed:
            self.tables.update_nodes(row.id, list(self.changed.values()))
        self.tables.update_flow(row)
        self.settled.flows[row.id] = row
        if row.state == flows.RUNNING and (self.untold or row.cursor < row.total):
            self.left = True
        if self.left or row.state in (flows.RETRYING, flows.REMOVING):
            self.settled.more.add(row.id)

    def _outcome(self) -> str:
        row = self.row
        if row.state == flows.CANCELLING:
            by_failure = row.on_failure == flows.CANCEL and row.dead + row.skipped > 0
            return flows.FAILED if by_failure else flows.CANCELLED
        return flows.FAILED if row.failed else flows.DONE

    # --- slices

    def next_slice(self) -> None:
        """Does some of what is left to do in the flow."""
        row, tables = self.row, self.tables
        if row.state == flows.RETRYING:
            self._reset()
        elif row.state == flows.CANCELLING:
            numbers = tables.in_state(row.id, (flows.WAITING,), -1, FLOW_SLICE)
            for node in tables.light(row.id, numbers):
                self.end_unrun(node, states.CANCELLED, row.reason)
            self.left = len(numbers) == FLOW_SLICE
        elif row.state == flows.RUNNING:
            self.untold = tables.light(row.id, tables.untold(row.id, FLOW_SLICE))
            if row.cursor < row.total:
                numbers = tables.ready(row.id, row.cursor, FLOW_SLICE)
                row.cursor = numbers[-1] if len(numbers) == FLOW_SLICE else row.total
                self.release(numbers)
        elif row.state == flows.REMOVING and not tables.drop_nodes(row.id, FLOW_SLICE):
            tables.drop_flow(row.id)
            self.settled.flows[row.id] = row
            return
        self.finish()

    def _reset(self) -> None:
        """Resets nodes that have failed, in the order of their numbers, so that the nodes that one needs are reset before it."""
        row, tables = self.row, self.tables
        told = tables.light(row.id, tables.untold(row.id, FLOW_SLICE))
        for node in told:  # it ended when the flow was being cancelled; ``pending`` is counted anew
            node.telling = -1
            self.changed[node.number] = node
        failed = (states.DEAD, flows.SKIPPED, states.CANCELLED)
        numbers = tables.in_state(row.id, failed, row.cursor, FLOW_SLICE)
        needs = tables.sources(row.id, numbers)
        done = {
            node.number
            for node in tables.light(row.id, sorted({source for source, _ in needs}))
            if node.state == states.DONE
        }
        pending = Counter([target for source, target in needs if source not in done])
        for node in tables.light(row.id, numbers):
            self._uncount(node)
            node.position, node.ended, node.telling = -row.position, 0.0, -1
            if node.grown >= 0:  # its worker has done its part; what replaces it is reset, too
                node.state = flows.GROWN
            else:
                node.state, node.pending = flows.WAITING, pending[node.number]
            self.changed[node.number] = node
        if numbers:
            row.cursor = numbers[-1]
        if len(numbers) < FLOW_SLICE and len(told) < FLOW_SLICE:
            row.state, row.cursor = flows.RUNNING, -1

    def _uncount(self, node: NodeRow) -> None:
        row = self.row
        if node.state == states.DEAD:
            row.dead -= 1
        elif node.state == flows.SKIPPED:
            row.skipped -= 1
        else:
            row.cancelled -= 1
        if node.fails():
            row.failed -= 1


def sources_of(tables: FlowTables, flow: str, numbers: "list[int]", grows: bool) -> "dict[int, str]":
    """The jobs that have the results of these nodes. ``grows``: some nodes of the flow may have been replaced."""
    ids = {number: job_id(flow, number) for number in numbers}
    if grows:
        ids.update({number: job_id(flow, other) for number, other in tables.grown(flow, numbers).items()})
    return ids


def fill(template: Template, ids: "dict[int, str]", found: "dict[str, Job]") -> "tuple[bytes | None, str]":
    """The body for a worker from a template, and why there is none. ``ids`` are the jobs that have the results of nodes."""
    results: dict[int, bytes] = {}
    for number in template.nodes():
        id = ids[number]
        if template.by_reference:
            results[number] = id.encode()
            continue
        source = found.get(id)
        if source is not None and source.outcome == states.DAMAGED:
            return None, f"the result of job {id}, which it needs: {source.reason}"
        if source is not None and source.state == states.DONE:
            results[number] = flat(source.result)
        else:  # it may fail: the failure is a value
            outcome, reason = (source.outcome, source.reason) if source is not None else (flows.SKIPPED, NEEDED)
            results[number] = json.dumps(error_header(outcome, reason)).encode()
    return template.fill(results), ""
