"""The flows that run, for the leader. The store has the graphs; this has the jobs of nodes that can run, and one small record per flow.

Each outcome of a node comes back from the store with the nodes that it released (``Settled``). If a transaction left something to do,
``Settle`` is put until nothing is left: one at a time for each flow, so that the work of one flow is spread over many turns.
"""

from collections.abc import Callable

from polydomo.broker.flows import events
from polydomo.broker.flows import flow as states
from polydomo.broker.flows.flow import FlowRow, Settled
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import BeginFlow, ChangeFlow, OpenFlow, PutNodes, SelectFlows, Settle
from polydomo.broker.jobs.job import RECORDING, Job
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.jobs.ops import ALWAYS, Op, StoreError
from polydomo.limits import FAILED_FLOWS_SHOWN, FLOW_SLICE, MAX_FLOW_EDGES, MAX_FLOW_LEVELS, MAX_FLOW_NODES
from polydomo.model.outcomes import FAILED

Begun = Callable[[FlowRow | None, StoreError | None], None]
Watcher = Callable[[], None]


class Flows:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.running: dict[str, FlowRow] = {}
        self.failed: dict[str, FlowRow] = {}  # the last ones that failed, until they are retried or removed
        self._settling: set[str] = set()  # flows with a ``Settle`` under way
        self._unsettled: set[str] = set()  # of those: flows in which another transaction has left work
        self._doubtful: set[str] = set()  # flows of which an answer may have been lost
        self._watchers: dict[str, list[tuple[Watcher, bool]]] = {}  # True: also called for reports of progress
        self.reports: dict[str, tuple[int, Job]] = {}  # how many reports of progress came, and the node of the last one
        # Nodes and edges of flows that grow, with those that are being stored.
        self._sizes: dict[str, tuple[int, int]] = {}
        jobs.on_settled = self.settled

    # --- leadership

    def load(self, rows: "list[FlowRow]") -> None:
        """This broker leads: continues every flow, because the last leader may have left something to do."""
        self.running = {row.id: row for row in rows}
        self._sizes.clear()
        self._doubtful.clear()
        self._settling.clear()
        self._unsettled.clear()
        self._count()
        for row in rows:
            self._next(row.id)
        self._remember_failed()

    def _remember_failed(self) -> None:
        """Notes the flows that failed under earlier leaders."""
        self.failed.clear()
        op = SelectFlows(states.FAILED, FAILED_FLOWS_SHOWN)
        op.repeat = ALWAYS
        epoch = self.jobs.epoch

        def selected(_: Op) -> None:
            if op.error is not None or not self.jobs.leads or self.jobs.epoch != epoch:
                return
            newer, self.failed = self.failed, {}
            for row in [*sorted(op.rows, key=lambda row: (row.ended, row.id)), *newer.values()]:
                if row.id not in self.running:
                    self._note_failed(row)

        op.then = selected
        self.jobs.put(op)

    def _note_failed(self, row: FlowRow) -> None:
        self.failed[row.id] = row
        if len(self.failed) > FAILED_FLOWS_SHOWN:
            del self.failed[next(iter(self.failed))]

    def clear(self) -> None:
        """Another broker leads. Watchers look at the store again, and learn it there."""
        self.running.clear()
        self._sizes.clear()
        self.failed.clear()
        self._settling.clear()
        self._unsettled.clear()
        self.reports.clear()
        watchers, self._watchers = self._watchers, {}
        for waiting in watchers.values():
            for wake, _ in waiting:
                wake()

    def _count(self) -> None:
        """Counts the nodes that may become jobs, for ``durable.max_jobs``."""
        left = sum([row.total - row.over() for row in self.running.values()])
        open = sum([len(found) for id, found in self.jobs.nodes.items() if id in self.running])
        self.jobs.waiting_nodes = max(0, left - open)

    # --- starting

    def begin(self, row: FlowRow, answer: Begun) -> None:
        """Stores a new flow, without nodes, and answers with it or with the one that exists."""
        error = self.jobs.refusal(0, max(1, row.total))
        if error is not None:
            self.jobs.counters.refused += 1
            answer(None, error)
            return
        op = BeginFlow(row)

        def begun(_: Op) -> None:
            found = op.existing if op.existing is not None else row
            answer(found if op.error is None else None, op.error)

        op.then = begun
        self.jobs.put(op)

    def put(self, op: PutNodes, answer: "Callable[[bool, StoreError | None], None]") -> None:
        """Stores some nodes of a flow that has begun."""
        error = self.jobs.refusal(op.size())
        if error is not None:
            answer(False, error)
            return

        def stored(_: Op) -> None:
            answer(op.done, op.error)

        op.then = stored
        self.jobs.put(op)

    def open(self, id: str, principal: str, answer: "Callable[[FlowRow | None, int, StoreError | None], None]") -> None:
        """Starts a flow whose nodes are stored. Answers with it, and with how many nodes are missing."""
        op = OpenFlow(id, principal, self.jobs.runner.now())

        def opened(_: Op) -> None:
            row = op.row
            if row is not None and op.error is None and row.state == states.RUNNING:
                self.adopt(row)
            answer(row, op.missing, op.error)

        op.then = opened
        self.jobs.put(op)

    def adopt(self, row: FlowRow) -> None:
        """A flow was started by this broker."""
        if self.jobs.leads and row.id not in self.running:
            self.running[row.id] = row
            self.jobs.listener.flow_event(events.FlowEvent(row, events.STARTED))
            self._count()
            self._next(row.id)

    # --- growing

    def growth_problem(self, job: Job, growth: Growth) -> "tuple[str, str]":
        """Why a node may not be replaced by this flow: a code and a reason. If it may, both are empty, and the flow is prepared."""
        row = self.running.get(job.flow)
        nodes, edges = self._sizes.get(
            job.flow, (row.total, row.edges + row.added_edges) if row is not None else (0, 0)
        )
        nodes, edges = nodes + len(growth.specs), edges + growth.edges
        if job.level >= MAX_FLOW_LEVELS:
            return (
                FAILED,
                f"workers answered with a flow {job.level:,} times inside of each other, which is the limit (MAX_FLOW_LEVELS)",
            )
        if nodes > MAX_FLOW_NODES or edges > MAX_FLOW_EDGES:
            return FAILED, (
                f"the flow would have {nodes:,} nodes and {edges:,} edges; the limits are {MAX_FLOW_NODES:,} (MAX_FLOW_NODES) and "
                f"{MAX_FLOW_EDGES:,} (MAX_FLOW_EDGES)"
            )
        error = self.jobs.refusal(0, len(growth.specs))
        if error is not None:
            return error.code, error.text
        self._sizes[job.flow] = nodes, edges
        growth.principal, growth.trace, growth.level, growth.needs = job.principal, job.trace, job.level + 1, job.needs
        return "", ""

    # --- progress

    def settled(self, found: Settled | None, in_doubt: bool = False) -> None:
        """The store has changed flows, in one transaction. ``in_doubt``: perhaps in another one before, whose answer was lost."""
        if found is None and in_doubt:
            self._doubtful.update(self.running)
            for id in self.running:
                self._next(id)
        if found is None or not self.jobs.leads:
            return
        for end in found.ends:
            self.jobs.listener.node_ended(end)
        over: list[FlowRow] = []
        for row in found.flows.values():
            known = self.running.get(row.id)
            if known is not None and (known.position > row.position or known.total > row.total):
                continue  # the answers of two transactions may arrive in any order
            if row.state == states.CANCELLING and known is not None and known.state != states.CANCELLING:
                self.jobs.listener.flow_event(events.FlowEvent(row, row.state, row.reason))  # because of a failure
            if row.state in states.ACTIVE:
                self.running[row.id] = row
            else:
                if known is not None:
                    over.append(row)
                self.running.pop(row.id, None)
                self._sizes.pop(row.id, None)
                self.reports.pop(row.id, None)
                if row.state == states.FAILED:
                    self._note_failed(row)
        self.jobs.adopt_released([job for job in found.released if job.flow in self.running])
        for row in over:
            self.jobs.listener.flow_event(events.ended(row))
        self._count()
        for id in found.flows:
            known = self.running.get(id)
            if known is not None and known.state == states.CANCELLING:
                self._cancel_some(known)
            if id in found.more:
                self._next(id)
            for wake, _ in self._watchers.pop(id, []):
                wake()

    def _next(self, id: str) -> None:
        """Does the next slice of what is left to do in a flow."""
        if not self.jobs.leads:
            return
        if id in self._settling:  # its transaction may have been before the one that left something to do
            self._unsettled.add(id)
            return
        self._settling.add(id)
        op = Settle(id, self.jobs.runner.now())
        op.recheck = id in self._doubtful
        self._doubtful.discard(id)

        def done(_: Op) -> None:
            if op.epoch != self.jobs.epoch:
                return  # this broker has led again since
            self._settling.discard(id)
            left = id in self._unsettled
            self._unsettled.discard(id)
            if op.error is None:
                self.settled(op.settled)
            if left and id in self.running:
                self._next(id)

        op.then = done
        self.jobs.put(op)

    def _cancel_some(self, row: FlowRow) -> None:
        """Cancels some open jobs of a flow; their outcomes bring the next ones here."""
        found = [job for job in self.jobs.nodes.get(row.id, {}).values() if job.phase != RECORDING][:FLOW_SLICE]
        for job in found:
            self.jobs.cancel(job.id, row.reason or "the flow was cancelled", lambda job, error: None)

    # --- orders

    def change(self, id: str, state: str, reason: str, answer: "Callable[[ChangeFlow], None]") -> None:
        """Cancels, retries or removes a flow."""
        op = ChangeFlow(id, state, reason, self.jobs.runner.now())

        def changed(_: Op) -> None:
            row = op.row
            if row is not None and op.done and op.error is None and self.jobs.leads:
                self.jobs.listener.flow_event(events.FlowEvent(row, row.state, row.reason))
                if row.state in states.ACTIVE:
                    self.running[id] = row
                    self._count()
                if row.state == states.CANCELLING:
                    self._cancel_some(row)
                self.failed.pop(id, None)
                if row.state in (states.CANCELLING, states.RETRYING, states.REMOVING):
                    self._next(id)
            answer(op)

        op.then = changed
        self.jobs.put(op)

    # --- watching

    def watch(self, id: str, wake: Watcher, hears: bool = False) -> None:
        """Calls back once when something has changed in a flow that runs. ``hears``: also when a running node reports its progress."""
        self._watchers.setdefault(id, []).append((wake, hears))

    def stop_watching(self, id: str, wake: Watcher) -> None:
        waiting = [other for other in self._watchers.pop(id, []) if other[0] != wake]
        if waiting:
            self._watchers[id] = waiting

    def progressed(self, job: Job) -> None:
        """The worker of a node has reported its progress."""
        id = job.flow
        if id in self.running:
            self.reports[id] = self.reports[id][0] + 1 if id in self.reports else 1, job
            for wake, hears in list(self._watchers.get(id, [])):
                if hears:
                    self.stop_watching(id, wake)
                    wake()

    def check(self) -> None:
        """For tests: cross-checks the redundant state. Raises AssertionError."""
        for row in self.running.values():
            assert 0 <= row.over() <= row.total, (row.id, row.over(), row.total)
        # An outcome may have ended a flow although its answer was lost: then it is being written again.
        unknown = {
            id
            for id, jobs in self.jobs.nodes.items()
            if id not in self.running and any(job.phase != RECORDING for job in jobs.values())
        }
        assert not unknown, f"jobs of flows that do not run: {unknown}"
