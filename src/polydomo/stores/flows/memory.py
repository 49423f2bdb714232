"""The tables of flows in memory: the reference for tests, and the disk of the simulator."""

import copy

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.stores.flows.checks import node_checks
from polydomo.stores.flows.steps import flow_key
from polydomo.stores.flows.tables import FlowTables
from polydomo.stores.memory_rows import attributes, job_checks, job_copy, verified_job
from polydomo.stores.memory_tables import MemoryTables

FLOW_ATTRIBUTES = attributes(FlowRow)
NODE_ATTRIBUTES = attributes(NodeRow)
MUTABLE = ("state", "pending", "telling", "position", "ended", "tries", "grown")


def _flow_copy(row: FlowRow) -> FlowRow:
    made = FlowRow(row.id, row.name, row.created)
    for name in FLOW_ATTRIBUTES:
        setattr(made, name, getattr(row, name))
    return made


def node_copy(node: NodeRow) -> NodeRow:
    made = NodeRow(node.flow, node.number, node.name, node.service)
    for name in NODE_ATTRIBUTES:
        setattr(made, name, getattr(node, name))
    return made


class MemoryFlows(FlowTables):
    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    # --- flows

    def flow(self, id: str) -> FlowRow | None:
        found = self._tables.flows.get(id)
        return _flow_copy(found) if found is not None else None

    def flow_with_key(self, scoped: str) -> FlowRow | None:
        for row in self._tables.flows.values():
            if row.key and flow_key(row) == scoped:
                return _flow_copy(row)
        return None

    def add_flow(self, row: FlowRow) -> None:
        self._tables.flows[row.id] = _flow_copy(row)
        self._tables.nodes[row.id] = {}
        self._tables.edges[row.id] = {}

    def update_flow(self, row: FlowRow) -> None:
        self._tables.flows[row.id] = _flow_copy(row)

    def drop_flow(self, id: str) -> None:
        del self._tables.flows[id], self._tables.nodes[id], self._tables.edges[id]

    def expired(self, now: float, most: int) -> "list[FlowRow]":
        found = [
            row
            for row in self._tables.flows.values()
            if row.state == flows.REMOVING or (row.keep and row.keep <= now and row.state not in flows.ACTIVE)
        ]
        return [_flow_copy(row) for row in found[:most]]

    def active(self) -> "list[FlowRow]":
        return [_flow_copy(row) for row in self._tables.flows.values() if row.state in flows.ACTIVE]

    def newest(self, state: str, most: int, principal: str | None = None) -> "list[FlowRow]":
        found = [row for row in self._tables.flows.values() if row.state not in (flows.STORING, flows.REMOVING)]
        found = [row for row in found if state in ("", row.state) and principal in (None, row.principal)]
        return [_flow_copy(row) for row in sorted(found, key=lambda row: (row.created, row.id), reverse=True)[:most]]

    # --- nodes

    def add_nodes(self, nodes: "list[NodeRow]", edges: "list[tuple[int, int]]") -> None:
        if not nodes:
            return
        own = self._tables.nodes[nodes[0].flow]
        names = {node.name for node in own.values()}
        for node in nodes:
            if node.number not in own and node.name not in names:
                names.add(node.name)
                stored = own[node.number] = node_copy(node)
                stored.checks = node_checks(node)
        targets = self._tables.edges[nodes[0].flow]
        for source, target in edges:
            targets.setdefault(source, set()).add(target)

    def count(self, flow: str) -> "tuple[int, int]":
        return len(self._tables.nodes[flow]), sum(len(found) for found in self._tables.edges[flow].values())

    def nodes(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        own = self._tables.nodes[flow]
        return [node_copy(own[number]) for number in sorted(numbers) if number in own]

    def light(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        return self.nodes(flow, numbers)

    def take(self, flow: str, counts: "dict[int, int]") -> "list[NodeRow]":
        for number, count in counts.items():
            self._tables.nodes[flow][number].pending -= count
        return self.nodes(flow, list(counts))

    def node_named(self, flow: str, name: str) -> NodeRow | None:
        for node in self._tables.nodes[flow].values():
            if node.name == name:
                return node_copy(node)
        return None

    def in_state(self, flow: str, states: "tuple[str, ...]", after: int, most: int) -> "list[int]":
        own = self._tables.nodes[flow]
        return sorted(number for number, node in own.items() if number > after and node.state in states)[:most]

    def ready(self, flow: str, after: int, most: int) -> "list[int]":
        own = self._tables.nodes[flow]
        found = [number for number in self.in_state(flow, (flows.WAITING,), after, len(own)) if not own[number].pending]
        return found[:most]

    def untold(self, flow: str, most: int) -> "list[int]":
        own = self._tables.nodes[flow]
        return sorted(number for number, node in own.items() if node.telling >= 0)[:most]

    def grown(self, flow: str, numbers: "list[int]") -> "dict[int, int]":
        own = self._tables.nodes[flow]
        return {number: own[number].grown for number in numbers if number in own and own[number].grown >= 0}

    def update_nodes(self, flow: str, nodes: "list[NodeRow]") -> None:
        for node in nodes:
            stored = self._tables.nodes[flow][node.number]
            for name in MUTABLE:
                setattr(stored, name, getattr(node, name))
            if stored.tries:
                stored.body = b""

    def drop_nodes(self, flow: str, most: int) -> int:
        own = self._tables.nodes[flow]
        numbers = sorted(own)[:most]
        for number in numbers:
            job = own.pop(number).job
            self._tables.jobs.pop(job, None)
            self._tables.checks.pop(job, None)
            self._tables.parts.pop(job, None)
            self._tables.edges[flow].pop(number, None)
        return len(numbers)

    def facts(self, flow: str, after: int, most: int, by_end: bool) -> "list[NodeFacts]":
        own = self._tables.nodes[flow]
        if by_end:
            chosen = sorted((node for node in own.values() if node.position > after), key=lambda node: node.position)
        else:
            chosen = [own[number] for number in sorted(own) if number > after]
        found: list[NodeFacts] = []
        for node in chosen[:most]:
            facts = NodeFacts(node_copy(node))
            facts.ended = node.ended
            job = self._tables.jobs.get(node.job)
            if job is not None:
                facts.attempts, facts.created = job.attempts, job.created
                facts.outcome, facts.reason = job.outcome, job.reason
            found.append(facts)
        return found

    def node_of_job(self, job: str) -> NodeRow | None:
        for own in self._tables.nodes.values():
            for node in own.values():
                if node.job == job and node.state == states.OPEN:
                    return node_copy(node)
        return None

    # --- edges

    def targets(self, flow: str, source: int, least: int, most: int) -> "list[int]":
        return sorted(target for target in self._tables.edges[flow].get(source, ()) if target >= least)[:most]

    def edges_from(self, flow: str, sources: "list[int]", most: int) -> "list[tuple[int, int]]":
        found = [(source, target) for source in sorted(sources) for target in self.targets(flow, source, 0, most)]
        return found[:most]

    def sources(self, flow: str, targets: "list[int]") -> "list[tuple[int, int]]":
        wanted = set(targets)
        found = self._tables.edges[flow].items()
        return sorted((source, target) for source, told in found for target in told if target in wanted)

    # --- jobs

    def add_jobs(self, jobs: "list[Job]") -> None:
        for job in jobs:
            if job.id not in self._tables.jobs:
                stored = self._tables.jobs[job.id] = job_copy(job)
                stored.damage = ""
                self._tables.checks[job.id] = job_checks(job)

    def jobs(self, ids: "list[str]") -> "dict[str, Job]":
        stored = self._tables.jobs
        return {id: verified_job(stored[id], self._tables.checks[id]) for id in ids if id in stored}

    def last_attempts(self, ids: "list[str]") -> "dict[str, int]":
        parts = self._tables.parts
        return {id: max(parts[id])[0] for id in ids if parts.get(id)}

    def replace_job(self, job: Job) -> None:
        stored = self._tables.jobs[job.id]
        stored.state, stored.outcome, stored.reason, stored.result = job.state, "", "", b""
        stored.ended, stored.keep, stored.attempts, stored.due, stored.expires = 0.0, 0.0, 0, job.due, 0.0
        stored.story = copy.deepcopy(job.story)
        self._tables.checks[job.id] = job_checks(job)

    def sizes(self, ids: "list[str]") -> int:
        return sum(len(self._tables.jobs[id].result) for id in ids if id in self._tables.jobs)
