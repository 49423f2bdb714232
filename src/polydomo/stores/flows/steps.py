"""The operations of flows, within the transactions of a store: one set of rules for every store. ``change`` has those of the nodes."""

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import FlowRow, Settled, job_id
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import (
    BeginFlow,
    ChangeFlow,
    Gather,
    GetFlow,
    OpenFlow,
    PutNodes,
    ReadGrowth,
    SelectFlows,
    SelectNodes,
    Settle,
    StartFlow,
)
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job, scoped_key
from polydomo.broker.jobs.ops import Fire, Op
from polydomo.limits import FLOW_SLICE
from polydomo.model.flows.messages import Template
from polydomo.stores.flows.change import FlowChange, fill, sources_of
from polydomo.stores.flows.tables import End, FlowTables


def flow_key(row: FlowRow) -> str:
    """The key as it is stored, with its owner and the name of the flow."""
    return scoped_key(row.principal, row.name.encode(), row.key) if row.key else ""


class FlowSteps:
    """Applies the operations of flows."""

    def __init__(self, tables: FlowTables) -> None:
        self.tables = tables

    def finished(
        self, ends: "dict[str, list[End]]", now: float, in_doubt: bool, jobs: "dict[str, Job] | None" = None
    ) -> Settled | None:
        """Nodes have ended, by flow. Ends that are known already change nothing. ``in_doubt``: some of this may have been written by a
        transaction whose answer was lost. ``jobs`` have ended in this transaction: their results need not be read."""
        settled = Settled()
        for id, found in ends.items():
            row = self.tables.flow(id)
            if row is None:
                continue
            change = FlowChange(self.tables, row, now, settled)
            change.jobs = jobs or {}
            by_number = {number: (state, when, growth) for number, state, when, growth in found}
            for node in self.tables.light(id, sorted(by_number)):
                state, when, growth = by_number[node.number]
                if node.state == states.OPEN and growth is not None and state == states.DONE:
                    change.grow(node, growth)
                elif node.state == states.OPEN:
                    end = change.end(node, state, when)
                    settled.places[node.job] = end.position, end.since
            change.finish()
            if in_doubt:
                self._again(row, settled)
        return settled if settled.flows else None

    def condemned(self, job: Job) -> Settled | None:
        """The record of a job was damaged, and has been replaced. If it is a node of a flow, the node ends; the record does not say it."""
        node = self.tables.node_of_job(job.id)
        if node is None:
            return None
        job.flow, job.node = node.flow, node.number
        settled = self.finished({node.flow: [(node.number, job.state, job.ended, None)]}, job.ended, False)
        if settled is not None:
            settled.place(job)
        return settled

    def _again(self, row: FlowRow, settled: Settled) -> None:
        """Finds what a transaction released whose answer was lost. The leader knows some of it."""
        settled.more.add(row.id)
        if row.state not in (flows.RUNNING, flows.CANCELLING):
            return
        numbers = {job_id(row.id, n): n for n in self.tables.in_state(row.id, (states.OPEN,), -1, row.total)}
        for id, job in self.tables.jobs(list(numbers)).items():
            if job.state == states.OPEN or job.damage:  # the leader condemns damaged ones
                job.flow, job.node = row.id, numbers[id]
                settled.released.append(job)

    def begin(self, op: BeginFlow) -> None:
        tables, row = self.tables, op.row
        found = tables.flow(row.id)
        if found is None and row.key:
            found = tables.flow_with_key(flow_key(row))
        if found is not None and found.state in (flows.STORING, flows.REMOVING) and not row.repeats(found):
            if found.id == row.id:
                op.existing = found
                return
            found.key, found.state, found.keep = "", flows.REMOVING, found.created  # it was never acknowledged
            tables.update_flow(found)
            found = None
        if found is None:
            tables.add_flow(row)
        else:
            op.existing = found

    def put_nodes(self, op: PutNodes) -> None:
        row = self.tables.flow(op.flow)
        op.done = row is not None and row.state == flows.STORING and row.principal == op.principal
        if op.done:
            self.tables.add_nodes(op.nodes, op.edges)

    def open(self, op: OpenFlow) -> None:
        row = self.tables.flow(op.id)
        if row is None or row.state == flows.REMOVING or row.principal != op.principal:
            return
        op.row = row
        if row.state == flows.STORING:
            nodes, edges = self.tables.count(op.id)
            op.missing = max(row.total - nodes, edges - row.edges)
            if not op.missing:
                row.state, row.cursor, row.keep, row.created = flows.RUNNING, -1, 0.0, op.now
                self.tables.update_flow(row)

    def start(self, op: StartFlow) -> None:
        tables, row = self.tables, op.row
        op.existing = tables.flow(row.id)
        if op.existing is None and row.key:
            op.existing = tables.flow_with_key(flow_key(row))
        if op.existing is None:
            self._add(row, op.growth)

    def fire(self, op: Fire) -> None:
        """Starts the flow of a schedule, whose row was updated in the same transaction unless that was done before."""
        if op.flow is None or op.growth is None:
            return
        if op.done:
            self._add(op.flow, op.growth)
        else:  # the same operation, applied again
            op.done = self.tables.flow(op.flow.id) is not None

    def _add(self, row: FlowRow, growth: Growth) -> None:
        row.state, row.cursor = flows.RUNNING, -1
        self.tables.add_flow(row)
        self.tables.add_nodes(*growth.nodes(row.id, 0, ""))

    def settle(self, op: Settle) -> None:
        row = self.tables.flow(op.id)
        op.settled = Settled()
        if row is not None:
            FlowChange(self.tables, row, op.now, op.settled).next_slice()
            if op.in_doubt or op.recheck:
                self._again(row, op.settled)

    def change(self, op: ChangeFlow) -> None:
        row = self.tables.flow(op.id)
        if row is None or row.state in (flows.STORING, flows.REMOVING):
            return
        op.row = row
        op.done = row.state == op.state
        if op.state == flows.CANCELLING and row.state in (flows.RUNNING, flows.RETRYING):
            row.state, row.reason = flows.CANCELLING, op.reason
            op.done = True
        elif op.state == flows.RETRYING and row.state in (flows.FAILED, flows.CANCELLED):
            row.state, row.reason, row.cursor, row.ended, row.keep = flows.RETRYING, "", -1, 0.0, 0.0
            op.done = True
        elif op.state == flows.REMOVING and row.state in flows.ENDED:
            row.state, row.key = flows.REMOVING, ""
            op.done = True
        if op.done:
            self.tables.update_flow(row)

    def purge(self, now: float) -> int:
        """Removes some nodes of flows whose time is over. Returns how many there were."""
        count = 0
        for row in self.tables.expired(now, 1):
            row.state, row.key = flows.REMOVING, ""
            self.tables.update_flow(row)
            count = self.tables.drop_nodes(row.id, FLOW_SLICE)
            if not count:
                self.tables.drop_flow(row.id)
                count = 1
        return count

    # --- reading

    def read(self, op: Op) -> bool:
        """Answers an operation that reads flows. Returns False if it is another one."""
        if isinstance(op, Gather):
            self._gather(op)
        elif isinstance(op, GetFlow):
            self._get(op)
        elif isinstance(op, SelectFlows):
            op.rows = self.tables.newest(op.state, op.most, op.principal)
        elif isinstance(op, ReadGrowth):
            op.read()
        elif isinstance(op, SelectNodes):
            op.row = _visible(self.tables.flow(op.id))
            if op.row is not None:
                op.nodes = self.tables.facts(op.id, op.after, op.most, op.by_end)
                if op.edges:
                    op.needs = self.tables.sources(op.id, [found.node.number for found in op.nodes])
        else:
            return False
        return True

    def _gather(self, op: Gather) -> None:
        template = Template(op.job.body)
        ids = sources_of(self.tables, op.job.flow, list(dict.fromkeys(template.nodes())), True)
        if template.by_reference:
            op.input, op.problem = fill(template, ids, {})
            return
        size = self.tables.sizes(list(ids.values()))
        if size > op.most:
            op.too_large = True
            op.problem = (
                f"the results that it needs have {size:,} bytes; the limit is {op.most:,} (`limits.max_message`). "
                "With by_reference=True it gets the ids of the jobs instead"
            )
            return
        op.input, op.problem = fill(template, ids, self.tables.jobs(list(ids.values())))

    def _get(self, op: GetFlow) -> None:
        op.row = _visible(self.tables.flow(op.id))
        if op.row is not None and op.node is not None:
            op.found = self.tables.node_named(op.id, op.node)
            if op.found is not None and op.found.tries:
                grown = op.found.grown
                id = op.found.job if grown < 0 else job_id(op.id, grown)
                op.job = self.tables.jobs([id]).get(id)


def _visible(row: FlowRow | None) -> FlowRow | None:
    """A flow that is being stored or removed does not exist for clients."""
    return row if row is not None and row.state not in (flows.STORING, flows.REMOVING) else None
