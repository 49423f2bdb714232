"""The tables of flows in SQL that SQLite and PostgreSQL both support.

Numbers and times are stored as such; the body of a node is a BLOB, as that of a job.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job, key_within, story_text
from polydomo.stores.checks import job_of, job_values
from polydomo.stores.flows.checks import FLOW, flow_checks, node_checks
from polydomo.stores.flows.steps import flow_key
from polydomo.stores.flows.tables import FlowTables
from polydomo.stores.sql_ops import COLUMNS

T = TypeVar("T")
Execute = Callable[[str, Sequence[object]], Any]

FLOW_COLUMNS = (
    "id, name, key, principal, fingerprint, on_failure, created, total, edges, kept, kept_failed, state, reason, done, dead, skipped, "
    "cancelled, failed, position, next, ended, keep, checks, added, added_edges"
)
NODE_COLUMNS = (
    "flow, number, name, service, job, body, settings, priority, allowed, checks, pending, state, telling, position, ended, "
    "tries, grown, replaces"
)
EDGE_COLUMNS = "flow, source, target"
LIGHT_COLUMNS = "number, name, job, allowed, pending, state, telling, position, ended, tries, grown, replaces"
LIGHT = 12  # of them
MOST_VALUES = 256


def tables_text(schema: str, blob: str, real: str) -> str:
    """The statements that create the tables."""
    prefix = f"{schema}." if schema else ""
    tail = "" if schema else " WITHOUT ROWID"
    return f"""
CREATE TABLE IF NOT EXISTS {prefix}flows (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, key TEXT, principal TEXT NOT NULL, fingerprint TEXT NOT NULL, on_failure TEXT NOT NULL,
    created {real} NOT NULL, total INTEGER NOT NULL, edges INTEGER NOT NULL, kept {real} NOT NULL, kept_failed {real} NOT NULL,
    state TEXT NOT NULL, reason TEXT NOT NULL, done INTEGER NOT NULL, dead INTEGER NOT NULL, skipped INTEGER NOT NULL,
    cancelled INTEGER NOT NULL, failed INTEGER NOT NULL, position INTEGER NOT NULL, next INTEGER NOT NULL, ended {real} NOT NULL,
    keep {real} NOT NULL, checks {blob} NOT NULL, added INTEGER NOT NULL DEFAULT 0,
    added_edges INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS flows_key ON {prefix}flows (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS flows_created ON {prefix}flows (created);
CREATE INDEX IF NOT EXISTS flows_principal ON {prefix}flows (principal, created);
CREATE TABLE IF NOT EXISTS {prefix}flow_nodes (
    flow TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, service {blob} NOT NULL, job TEXT NOT NULL, body {blob} NOT NULL,
    settings TEXT NOT NULL, priority INTEGER NOT NULL, allowed INTEGER NOT NULL, checks {blob} NOT NULL, pending INTEGER NOT NULL,
    state TEXT NOT NULL, telling INTEGER NOT NULL, position INTEGER NOT NULL, ended {real} NOT NULL, tries INTEGER NOT NULL,
    grown INTEGER NOT NULL DEFAULT -1, replaces INTEGER NOT NULL DEFAULT -1, PRIMARY KEY (flow, number)
){tail};
CREATE UNIQUE INDEX IF NOT EXISTS flow_nodes_name ON {prefix}flow_nodes (flow, name);
CREATE INDEX IF NOT EXISTS flow_nodes_ended ON {prefix}flow_nodes (flow, position) WHERE position > 0;
DROP INDEX IF EXISTS {prefix}flow_nodes_telling;
CREATE INDEX IF NOT EXISTS flow_nodes_untold ON {prefix}flow_nodes (flow, telling) WHERE telling >= 0;
CREATE TABLE IF NOT EXISTS {prefix}flow_edges (
    flow TEXT NOT NULL, source INTEGER NOT NULL, target INTEGER NOT NULL, PRIMARY KEY (flow, source, target)
){tail};
CREATE INDEX IF NOT EXISTS flow_edges_target ON {prefix}flow_edges (flow, target);
"""


def marks(rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)


def some(values: "Sequence[T]") -> "Iterator[Sequence[T]]":
    """Cuts values into statements of 256, 128, ... and 1 rows: few enough texts to keep them prepared.

    >>> [len(part) for part in some(range(300))]
    [256, 32, 8, 4]
    """
    start = 0
    size = MOST_VALUES
    while start < len(values):
        while size > len(values) - start:
            size >>= 1
        yield values[start : start + size]
        start += size


class SqlFlows(FlowTables):
    """``execute`` runs a statement with ``?`` for its values; ``insert`` stores new jobs."""

    def __init__(self, execute: Execute, insert: "Callable[[list[Job]], None]", schema: str = "") -> None:
        self._execute = execute
        self._insert = insert
        self._prefix = f"{schema}." if schema else ""

    def _run(self, statement: str, values: "Sequence[object]") -> Any:
        return self._execute(statement.replace("@", self._prefix), values)

    def _rows(self, statement: str, values: "Sequence[object]") -> "list[Any]":
        found: list[Any] = self._run(statement, values).fetchall()
        return found

    # --- flows

    def flow(self, id: str) -> FlowRow | None:
        rows = self._rows(f"SELECT {FLOW_COLUMNS} FROM @flows WHERE id = ?", (id,))
        return flow_of(rows[0]) if rows else None

    def flow_with_key(self, scoped: str) -> FlowRow | None:
        rows = self._rows(f"SELECT {FLOW_COLUMNS} FROM @flows WHERE key = ?", (scoped,))
        return flow_of(rows[0]) if rows else None

    def add_flow(self, row: FlowRow) -> None:
        text = f"INSERT INTO @flows ({FLOW_COLUMNS}) VALUES {marks(1, 25)}"
        self._run(
            text,
            (
                row.id, row.name, flow_key(row) or None, row.principal, row.fingerprint, row.on_failure, row.created, row.total, row.edges,
                row.kept, row.kept_failed, row.state, row.reason, row.done, row.dead, row.skipped, row.cancelled, row.failed, row.position,
                row.cursor, row.ended, row.keep, flow_checks(row), row.added, row.added_edges,
            ),
        )  # fmt: skip

    def update_flow(self, row: FlowRow) -> None:
        self._run(
            "UPDATE @flows SET key = ?, created = ?, state = ?, reason = ?, done = ?, dead = ?, skipped = ?, cancelled = ?, failed = ?, "
            "position = ?, next = ?, ended = ?, keep = ?, total = ?, added = ?, added_edges = ? WHERE id = ?",
            (
                flow_key(row) or None, row.created, row.state, row.reason, row.done, row.dead, row.skipped, row.cancelled, row.failed,
                row.position, row.cursor, row.ended, row.keep, row.total, row.added, row.added_edges, row.id,
            ),
        )  # fmt: skip

    def drop_flow(self, id: str) -> None:
        self._run("DELETE FROM @flows WHERE id = ?", (id,))

    def expired(self, now: float, most: int) -> "list[FlowRow]":
        text = (
            f"SELECT {FLOW_COLUMNS} FROM @flows WHERE state = '{flows.REMOVING}' "
            f"OR (keep > 0 AND keep <= ? AND state NOT IN {flows.ACTIVE!r}) LIMIT ?"
        )
        return [flow_of(row) for row in self._rows(text, (now, most))]

    def active(self) -> "list[FlowRow]":
        text = f"SELECT {FLOW_COLUMNS} FROM @flows WHERE state IN {flows.ACTIVE!r} ORDER BY created, id"
        return [flow_of(row) for row in self._rows(text, ())]

    def newest(self, state: str, most: int, principal: str | None = None) -> "list[FlowRow]":
        where = "state = ?" if state else f"state <> ? AND state NOT IN ('{flows.STORING}', '{flows.REMOVING}')"
        values: list[object] = [state]
        if principal is not None:
            where = f"principal = ? AND {where}"
            values.insert(0, principal)
        text = f"SELECT {FLOW_COLUMNS} FROM @flows WHERE {where} ORDER BY created DESC, id DESC LIMIT ?"
        return [flow_of(row) for row in self._rows(text, (*values, most))]

    # --- nodes

    def add_nodes(self, nodes: "list[NodeRow]", edges: "list[tuple[int, int]]") -> None:
        for part in some(nodes):
            values = [
                value
                for node in part
                for value in (
                    node.flow, node.number, node.name, node.service, node.job, node.body, node.settings, node.priority, int(node.allowed),
                    node_checks(node), node.pending, node.state, node.telling, node.position, node.ended, node.tries, node.grown,
                    node.replaces,
                )
            ]  # fmt: skip
            text = f"INSERT INTO @flow_nodes ({NODE_COLUMNS}) VALUES {marks(len(part), 18)} ON CONFLICT DO NOTHING"
            self._run(text, values)
        for pairs in some(edges):
            text = (
                f"INSERT INTO @flow_edges (flow, source, target) VALUES {marks(len(pairs), 3)} ON CONFLICT DO NOTHING"
            )
            self._run(text, [value for pair in pairs for value in (nodes[0].flow, *pair)])

    def count(self, flow: str) -> "tuple[int, int]":
        nodes, edges = (
            int(self._rows(f"SELECT count(*) FROM @{table} WHERE flow = ?", (flow,))[0][0])
            for table in ("flow_nodes", "flow_edges")
        )
        return nodes, edges

    def nodes(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        found: list[NodeRow] = []
        for part in some(numbers):
            text = f"SELECT {NODE_COLUMNS} FROM @flow_nodes WHERE flow = ? AND number IN {marks(1, len(part))} ORDER BY number"
            found += [node_of(row) for row in self._rows(text, (flow, *part))]
        return found

    def light(self, flow: str, numbers: "list[int]") -> "list[NodeRow]":
        found: list[NodeRow] = []
        for part in some(numbers):
            text = f"SELECT {LIGHT_COLUMNS} FROM @flow_nodes WHERE flow = ? AND number IN {marks(1, len(part))} ORDER BY number"
            found += [light_of(flow, row) for row in self._rows(text, (flow, *part))]
        return found

    def take(self, flow: str, counts: "dict[int, int]") -> "list[NodeRow]":
        found: list[NodeRow] = []
        for part in some(list(counts.items())):
            text = (
                f"UPDATE @flow_nodes SET pending = pending - v.column2 FROM (VALUES {marks(len(part), 2)}) AS v "
                f"WHERE flow = ? AND number = v.column1 RETURNING {LIGHT_COLUMNS}"
            )
            values = [value for pair in part for value in pair]
            found += [light_of(flow, row) for row in self._rows(text, (*values, flow))]
        found.sort(key=lambda node: node.number)
        return found

    def node_named(self, flow: str, name: str) -> NodeRow | None:
        text = f"SELECT {LIGHT_COLUMNS} FROM @flow_nodes WHERE flow = ? AND name = ?"
        rows = self._rows(text, (flow, name))
        return light_of(flow, rows[0]) if rows else None

    def in_state(self, flow: str, states: "tuple[str, ...]", after: int, most: int) -> "list[int]":
        text = f"SELECT number FROM @flow_nodes WHERE flow = ? AND number > ? AND state IN {marks(1, len(states))} ORDER BY number LIMIT ?"
        return [row[0] for row in self._rows(text, (flow, after, *states, most))]

    def ready(self, flow: str, after: int, most: int) -> "list[int]":
        text = (
            f"SELECT number FROM @flow_nodes WHERE flow = ? AND number > ? AND state = '{flows.WAITING}' AND pending = 0 "
            "ORDER BY number LIMIT ?"
        )
        return [row[0] for row in self._rows(text, (flow, after, most))]

    def untold(self, flow: str, most: int) -> "list[int]":
        text = "SELECT number FROM @flow_nodes WHERE flow = ? AND telling >= 0 ORDER BY telling, number LIMIT ?"
        return [row[0] for row in self._rows(text, (flow, most))]

    def grown(self, flow: str, numbers: "list[int]") -> "dict[int, int]":
        found: dict[int, int] = {}
        for part in some(numbers):
            text = f"SELECT number, grown FROM @flow_nodes WHERE flow = ? AND grown >= 0 AND number IN {marks(1, len(part))}"
            found.update({row[0]: row[1] for row in self._rows(text, (flow, *part))})
        return found

    def update_nodes(self, flow: str, nodes: "list[NodeRow]") -> None:
        for part in some(nodes):
            text = (
                "UPDATE @flow_nodes SET state = v.column2, pending = v.column3, telling = v.column4, position = v.column5, "
                "ended = v.column6, tries = v.column7, grown = v.column8, body = CASE WHEN v.column7 > 0 THEN ? ELSE body END "
                f"FROM (VALUES {marks(len(part), 8)}) AS v WHERE flow = ? AND number = v.column1"
            )
            values = [
                value
                for node in part
                for value in (
                    node.number, node.state, node.pending, node.telling, node.position, float(node.ended), node.tries, node.grown,
                )
            ]  # fmt: skip
            self._run(text, (b"", *values, flow))

    def drop_nodes(self, flow: str, most: int) -> int:
        rows = self._rows("SELECT number, job FROM @flow_nodes WHERE flow = ? ORDER BY number LIMIT ?", (flow, most))
        for part in some(rows):
            numbers, jobs = [row[0] for row in part], [row[1] for row in part]
            listed = marks(1, len(part))
            self._run(f"DELETE FROM @jobs WHERE id IN {listed}", jobs)
            self._run(f"DELETE FROM @job_parts WHERE job IN {listed}", jobs)
            self._run(f"DELETE FROM @flow_edges WHERE flow = ? AND source IN {listed}", (flow, *numbers))
            self._run(f"DELETE FROM @flow_nodes WHERE flow = ? AND number IN {listed}", (flow, *numbers))
        return len(rows)

    def facts(self, flow: str, after: int, most: int, by_end: bool) -> "list[NodeFacts]":
        chosen = "position > 0 AND n.position > ? ORDER BY n.position" if by_end else "number > ? ORDER BY n.number"
        columns = ", ".join(f"n.{name}" for name in LIGHT_COLUMNS.split(", "))
        text = (
            f"SELECT {columns}, n.service, j.attempts, j.created, j.outcome, j.reason FROM @flow_nodes AS n "
            f"LEFT JOIN @jobs AS j ON j.id = n.job WHERE n.flow = ? AND n.{chosen} LIMIT ?"
        )
        found: list[NodeFacts] = []
        for row in self._rows(text, (flow, after, most)):
            facts = NodeFacts(light_of(flow, row[:LIGHT]))
            facts.node.service = bytes(row[LIGHT])
            facts.ended = facts.node.ended
            if row[LIGHT + 1] is not None:
                facts.attempts, facts.created, facts.outcome, facts.reason = row[LIGHT + 1 : LIGHT + 5]
            found.append(facts)
        return found

    def node_of_job(self, job: str) -> NodeRow | None:
        text = f"SELECT flow, {LIGHT_COLUMNS} FROM @flow_nodes WHERE state = '{states.OPEN}' AND job = ?"
        rows = self._rows(text, (job,))
        return light_of(rows[0][0], rows[0][1:]) if rows else None

    # --- edges

    def targets(self, flow: str, source: int, least: int, most: int) -> "list[int]":
        text = "SELECT target FROM @flow_edges WHERE flow = ? AND source = ? AND target >= ? ORDER BY target LIMIT ?"
        return [row[0] for row in self._rows(text, (flow, source, least, most))]

    def edges_from(self, flow: str, sources: "list[int]", most: int) -> "list[tuple[int, int]]":
        found: list[tuple[int, int]] = []
        for part in some(sources):
            text = (
                f"SELECT source, target FROM @flow_edges WHERE flow = ? AND source IN {marks(1, len(part))} "
                "ORDER BY source, target LIMIT ?"
            )
            if len(found) < most:
                found += [(row[0], row[1]) for row in self._rows(text, (flow, *part, most - len(found)))]
        return found

    def sources(self, flow: str, targets: "list[int]") -> "list[tuple[int, int]]":
        found: list[tuple[int, int]] = []
        for part in some(targets):
            text = f"SELECT source, target FROM @flow_edges WHERE flow = ? AND target IN {marks(1, len(part))} ORDER BY target, source"
            found += [(row[0], row[1]) for row in self._rows(text, (flow, *part))]
        return found

    # --- jobs

    def add_jobs(self, jobs: "list[Job]") -> None:
        self._insert(jobs)

    def jobs(self, ids: "list[str]") -> "dict[str, Job]":
        found: dict[str, Job] = {}
        for part in some(ids):
            for row in self._rows(f"SELECT {COLUMNS} FROM @jobs WHERE id IN {marks(1, len(part))}", part):
                job = job_of(row)
                found[job.id] = job
        return found

    def last_attempts(self, ids: "list[str]") -> "dict[str, int]":
        found: dict[str, int] = {}
        for part in some(ids):
            text = f"SELECT job, max(attempt) FROM @job_parts WHERE job IN {marks(1, len(part))} GROUP BY job"
            found.update(self._rows(text, part))
        return found

    def replace_job(self, job: Job) -> None:
        """Of a job that is run again."""
        self._run(
            "UPDATE @jobs SET state = ?, outcome = '', reason = '', result = ?, ended = 0, keep = 0, attempts = 0, due = ?, expires = 0, "
            "story = ?, checks = ? WHERE id = ?",
            (job.state, b"", job.due, story_text(job.story), job_values(job)[21], job.id),
        )

    def sizes(self, ids: "list[str]") -> int:
        total = 0
        for part in some(ids):
            text = f"SELECT coalesce(sum(length(result)), 0) FROM @jobs WHERE id IN {marks(1, len(part))}"
            total += int(self._rows(text, part)[0][0])
        return total


def flow_of(row: Any) -> FlowRow:
    found = FlowRow(row[0], row[1], row[6])
    found.key = key_within(row[2]) if row[2] else ""
    found.principal, found.fingerprint, found.on_failure = row[3:6]
    found.total, found.edges, found.kept, found.kept_failed, found.state, found.reason = row[7:13]
    found.done, found.dead, found.skipped, found.cancelled, found.failed, found.position, found.cursor = row[13:20]
    found.ended, found.keep = row[20:22]
    found.added, found.added_edges = row[23:25]
    if bytes(row[22]) != flow_checks(found):
        found.damage = FLOW
    return found


def node_of(row: Any) -> NodeRow:
    node = NodeRow(row[0], row[1], row[2], bytes(row[3]))
    node.job, node.body, node.settings, node.priority, node.allowed = (
        row[4],
        bytes(row[5]),
        row[6],
        row[7],
        bool(row[8]),
    )
    node.checks = bytes(row[9])
    node.pending, node.state, node.telling, node.position, node.ended, node.tries = row[10:16]
    node.grown, node.replaces = row[16:18]
    return node


def light_of(flow: str, row: Any) -> NodeRow:
    node = NodeRow(flow, row[0], row[1], b"")
    node.job, node.allowed = row[2], bool(row[3])
    node.pending, node.state, node.telling, node.position, node.ended, node.tries = row[4:10]
    node.grown, node.replaces = row[10:LIGHT]
    return node
