"""Mutants of flows. Some seed of ``sim.durable`` must find each of them."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import NodeEnd, NodeRow
from polydomo.broker.flows.flows import Flows
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import Settle
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.jobs.ops import Finish
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.model.flows.messages import NodeSpec, Template
from polydomo.model.records import Request
from polydomo.stores.flows.change import FlowChange
from polydomo.stores.flows.memory import MemoryFlows
from polydomo.stores.flows.steps import FlowSteps
from sim.durable import run_seed
from sim.durable_flows import SimulatedFlow
from sim.mutants_durable import DurableMutant, collector
from sim.replacing import swap

MUTANTS: list[DurableMutant] = []
AUDITED: dict[str, str] = {  # mutants that the audit of the journal finds, too, and the rule
    "released-too-early": "node-after-needs",
    "retried-at-once": "node-after-needs",
    "skipped-and-released": "node-one-outcome",
    "reused-and-run": "reused-node-not-run",
}
mutant = collector(MUTANTS)


def find_by_audit(mutant: DurableMutant, rule: str, seeds: int) -> int:
    """The first seed whose journals break the rule, without the simulator's own rules about flows; 0 if there is none."""
    with mutant.broken(), ExitStack() as stack:
        for name in ("_check_run", "check"):
            swap(stack, SimulatedFlow, name, lambda own: lambda self, *given: None)
        for seed in range(mutant.first, mutant.first + seeds):
            if f"audit: {rule}" in run_seed(seed)[1]:
                return seed
    return 0


@mutant("a node is released while one that it needs is still open", first=3)
def released_too_early(stack: ExitStack) -> None:
    def make(take: Any) -> Any:
        def mutated(self: MemoryFlows, flow: str, counts: dict[int, int]) -> list[NodeRow]:
            found: list[NodeRow] = take(self, flow, counts)
            for node in found:
                node.pending = max(0, node.pending - 1)
            return found

        return mutated

    swap(stack, MemoryFlows, "take", make)


@mutant("a node that is released twice is started twice", first=3)
def released_twice(stack: ExitStack) -> None:
    def make(adopt: Any) -> Any:
        def mutated(self: Jobs, released: list[Job]) -> int:
            for job in released:
                self.open.pop(job.id, None)
            return int(adopt(self, released))

        return mutated

    swap(stack, Jobs, "adopt_released", make)


@mutant("nodes run although one that they need has failed", first=3)
def skipped_node_runs(stack: ExitStack) -> None:
    swap(stack, NodeRow, "fails", lambda fails: lambda self: False)


@mutant("what a transaction released is lost with its answer", first=6)
def lost_release(stack: ExitStack) -> None:
    swap(stack, FlowSteps, "_again", lambda again: lambda self, row, settled: None)


@mutant("an outcome that is written again is counted again", first=3)
def counted_twice(stack: ExitStack) -> None:
    def make(light: Any) -> Any:
        def mutated(self: MemoryFlows, flow: str, numbers: list[int]) -> list[NodeRow]:
            found: list[NodeRow] = light(self, flow, numbers)
            for node in found:
                node.state = states.OPEN if node.state == states.DONE else node.state
            return found

        return mutated

    swap(stack, MemoryFlows, "light", make)


@mutant("a new leader does not continue what the old one has left", first=48)
def not_continued(stack: ExitStack) -> None:
    def make(load: Any) -> Any:
        def mutated(self: Flows, rows: Any) -> None:
            following, self._next = self._next, lambda id: None  # type: ignore[method-assign]
            load(self, rows)
            self._next = following  # type: ignore[method-assign]

        return mutated

    swap(stack, Flows, "load", make)


@mutant("results are passed on in the wrong order", first=4)
def wrong_order(stack: ExitStack) -> None:
    def make(nodes: Any) -> Any:
        def mutated(self: Template, results: dict[int, bytes]) -> Any:
            self.arguments = [value[::-1] if isinstance(value, list) else value for value in self.arguments]
            return nodes(self, results)

        return mutated

    swap(stack, Template, "fill", make)


@mutant("any principal may use a flow", first=4)
def anybodys_flow(stack: ExitStack) -> None:
    swap(stack, Durable, "denial_of_flow", lambda denial: lambda self, request, row: "")


@mutant("a retry does not count what a node waits for", first=3)
def retried_at_once(stack: ExitStack) -> None:
    swap(stack, MemoryFlows, "sources", lambda sources: lambda self, flow, targets: [])


@mutant("a node that was done when its flow was cancelled is told of after a retry", first=355)
def told_after_retry(stack: ExitStack) -> None:
    def make(reset: Any) -> Any:
        def mutated(self: FlowChange) -> None:
            untold = self.tables.untold
            self.tables.untold = lambda flow, most: []  # type: ignore[method-assign]
            reset(self)
            self.tables.untold = untold  # type: ignore[method-assign]

        return mutated

    swap(stack, FlowChange, "_reset", make)


@mutant("two failures skip the same node twice", first=4)
def skipped_twice(stack: ExitStack) -> None:
    def make(take: Any) -> Any:
        def mutated(self: FlowChange, node: NodeRow, state: str, when: float) -> NodeEnd:
            found: NodeEnd = take(self, node, state, when)
            if state == flows.SKIPPED:
                del self.changed[node.number]
                self.tables.update_nodes(self.row.id, [node])
                node.state = flows.WAITING
            return found

        return mutated

    swap(stack, FlowChange, "end", make)


@mutant("a node that is skipped is released as well", first=58)
def skipped_and_released(stack: ExitStack) -> None:
    def make(end: Any) -> Any:
        def mutated(self: FlowChange, node: NodeRow, state: str, when: float) -> NodeEnd:
            found: NodeEnd = end(self, node, state, when)
            if state == flows.SKIPPED:
                self.ready.append(node.number)
            return found

        return mutated

    swap(stack, FlowChange, "end", make)


@mutant("a node is done at once although its worker answered with a flow", first=3)
def done_too_early(stack: ExitStack) -> None:
    def make(grow: Any) -> Any:
        def mutated(self: FlowChange, node: NodeRow, growth: Growth) -> None:
            grow(self, node, growth)
            self.end(node, states.DONE, self.now)

        return mutated

    swap(stack, FlowChange, "grow", make)


@mutant("an outcome that is written again adds its nodes again")
def grown_twice(stack: ExitStack) -> None:
    def make(finished: Any) -> Any:
        def mutated(self: FlowSteps, ends: Any, now: float, in_doubt: bool) -> Any:
            for id, found in ends.items():
                for node in self.tables.light(id, [end[0] for end in found if end[3] is not None]):
                    if node.state == flows.GROWN:
                        node.state = states.OPEN
                        self.tables.update_nodes(id, [node])
            return finished(self, ends, now, in_doubt)

        return mutated

    swap(stack, FlowSteps, "finished", make)


@mutant("a node that was replaced does not end with what replaces it", first=3)
def never_replaced(stack: ExitStack) -> None:
    swap(stack, FlowChange, "replace", lambda replace: lambda self: self.replacing.clear())


@mutant("a retry runs nodes again that were replaced", first=3)
def replaced_again(stack: ExitStack) -> None:
    def make(reset: Any) -> Any:
        def mutated(self: FlowChange) -> None:
            reset(self)
            for node in self.changed.values():
                if node.state == flows.GROWN:
                    node.state, node.pending = flows.WAITING, 0

        return mutated

    swap(stack, FlowChange, "_reset", make)


@mutant("the nodes that a worker adds get the results of others", first=4)
def wrong_base(stack: ExitStack) -> None:
    def make(body: Any) -> Any:
        def mutated(self: NodeSpec, base: int = 0) -> bytes:
            found: bytes = body(self, max(0, base - 1))
            return found

        return mutated

    swap(stack, NodeSpec, "body", make)


@mutant("a node gets the answer of a worker instead of what replaces it", first=6)
def unresolved(stack: ExitStack) -> None:
    swap(stack, MemoryFlows, "grown", lambda grown: lambda self, flow, numbers: {})


@mutant("a node whose result is reused runs as well", first=3)
def reused_and_run(stack: ExitStack) -> None:
    def make(serve: Any) -> Any:
        def mutated(self: Memoiser, request: Request, needs_worker: bool) -> None:
            hits, body = self.hits, request.body
            serve(self, request, needs_worker)
            if self.hits > hits:
                key = self.key_of(request.service.name, body)
                request.body = body
                self._run(key, request, needs_worker)
                request.body = b""
                self.runs._holds.pop(request, None)
                if key in self.runs.open:
                    self.runs.open[key].waiting.clear()

        return mutated

    swap(stack, Memoiser, "serve", make)


@mutant("what a transaction released that was rolled back is kept", first=49)
def rolled_back_release_kept(stack: ExitStack) -> None:
    swap(stack, Finish, "forget", lambda forget: lambda self: None)


@mutant("a slice of a flow that failed alone is not put again", first=31)
def failed_slice_forgotten(stack: ExitStack) -> None:
    swap(
        stack,
        Jobs,
        "_put_again",
        lambda again: lambda self, op: not isinstance(op, Settle) and again(self, op),
    )
