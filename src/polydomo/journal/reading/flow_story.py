"""The story of a flow: its events, the release and the end of each node, and the chain of nodes that determined how long it took."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.quantities import counted, took
from polydomo.journal.reading.flow_audit import RELEASES, is_end
from polydomo.journal.reading.story import Step, Story
from polydomo.model.flows.needs import needs_of

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader

Row = dict[str, Any]

OUTCOMES = ("done", "failed", "cancelled")  # of a flow
MOST_STEPS = 2_000  # of a story; in between, it says how many are left out
WORDS = {
    "started": "started",
    "cancelling": "is being cancelled",
    "retrying": "runs again what failed",
    "removing": "is removed",
}

LOOKUPS = {
    "hit": "the stored result of an equal call is used",
    "miss": "no equal call has a stored result, so a worker runs it",
    "joined": "it waits for an equal call that runs",
}


@dataclass
class NodeTimes:
    """A node as it was at the end of the flow."""

    number: int
    name: str = ""
    released: datetime | None = None
    ended: datetime | None = None
    state: str = ""
    needs: str = ""
    replaced_by: str = ""


def flow_story(reader: "Reader", flow: str, since: datetime | None = None) -> Story | None:
    """The story of a flow from journals, of all runs; None if they have no row about it."""
    import pyarrow.compute as pc

    rows = reader.rows(schema.MESSAGES, since, where=pc.field("flow") == flow)
    return build(flow, rows) if rows else None


def build(flow: str, rows: list[Row]) -> Story:
    rows = sorted(rows, key=lambda row: (row["time"], row["run"], row["seq"]))
    begin = rows[0]["time"]
    steps = [
        Step(row["time"], (row["time"] - begin).total_seconds(), f"{row['event']} {row['outcome']}", _text(row))
        for row in rows
    ]
    if len(steps) > MOST_STEPS:
        left, half = steps[MOST_STEPS // 2 : -MOST_STEPS // 2], MOST_STEPS // 2
        gap = Step(
            left[0].time,
            left[0].after,
            "...",
            f"... {len(left):,} more steps: the tables of the pipeline have all of them",
        )
        steps = [*steps[:half], gap, *steps[-half:]]
    last = next((row for row in reversed(rows) if row["event"] == schema.FLOW and row["outcome"] in OUTCOMES), None)
    first = next((row for row in rows if row["event"] == schema.FLOW and row["created"]), None)
    notes = []
    if last is None:
        notes.append("It has no outcome in the journal: it still runs, or the row is lost or not written yet.")
    else:
        path = critical_path(rows)
        if path:
            start = first["created"] if first is not None else begin
            notes += ["These nodes determined how long it took:", *_chain(path, start)]
    return Story(flow, _head(rows, first, last), steps, notes)


def critical_path(rows: list[Row]) -> list[NodeTimes]:
    """From the node that ended last, back to the one it waited for longest, and so on; in the order of time. ``rows`` are in order."""
    nodes: dict[int, NodeTimes] = {}
    for row in rows:
        if row["event"] in (schema.FLOW, schema.MEMO):
            continue
        node = nodes.setdefault(row["node"], NodeTimes(row["node"]))
        node.name = row["name"] or node.name
        if row["event"] == schema.JOB and row["outcome"] in RELEASES:
            node.released, node.needs = row["time"], row["needs"]
        elif is_end(row):
            node.ended, node.state = row["time"], row["outcome"]
            node.replaced_by = row["needs"]
    path: list[NodeTimes] = []
    last = _last(nodes.values(), None)
    while last is not None and len(path) < len(nodes):
        path.append(last)
        wanted = needs_of(last.replaced_by or last.needs)
        last = _last([nodes[number] for number in wanted if number in nodes], last.ended)
    return path[::-1]


def _last(nodes: "Iterable[NodeTimes]", until: datetime | None) -> NodeTimes | None:
    """The one that ended last, by a time; of several, that with the highest number."""
    ended = [
        (node.ended, node.number, node)
        for node in nodes
        if node.ended is not None and node.state != "skipped" and (until is None or node.ended <= until)
    ]
    return max(ended)[2] if ended else None


def _chain(path: list[NodeTimes], start: datetime) -> list[str]:
    lines = []
    at = start
    whole = max((path[-1].ended or start) - start, start - start).total_seconds()
    for node in path:
        ended = node.ended or at
        share = max(0.0, (ended - at).total_seconds())
        percent = f", {100 * share / whole:.0f} %" if whole else ""
        lines.append(f"  {node.name or node.number}: {took(round(share * 1e6))}{percent}")
        at = max(at, ended)
    return lines


def _head(rows: list[Row], first: Row | None, last: Row | None) -> str:
    name = f" `{first['name']}`" if first is not None else ""
    key = f", key {first['key']}" if first is not None and first["key"] else ""
    if last is None:
        ended = len({row["node"] for row in rows if is_end(row)})
        return f"flow{name}{key}: no outcome yet, {counted(ended, 'node')} ended"
    total = round((last["time"] - last["created"]).total_seconds() * 1e6) if last["created"] else 0
    return f"flow{name}{key}: {last['outcome']} after {took(total)}, {counted(last['nodes'], 'node')}: {last['reason']}"


def _text(row: Row) -> str:
    outcome, reason = row["outcome"], f": {row['reason']}" if row["reason"] else ""
    if row["event"] == schema.FLOW:
        if outcome == "started":
            owner = f" by {row['principal']}" if row["principal"] else ""
            return f"started{owner} with {counted(row['nodes'], 'node')}"
        return f"{WORDS.get(outcome, outcome)}{reason}"
    node = f"{row['name'] or row['node']}"
    if row["event"] == schema.MEMO:
        return f"{node}: {LOOKUPS.get(outcome, outcome)}"
    if row["event"] == schema.NODE:
        if row["needs"]:
            return f"{node} is {outcome}, as node {row['needs']}, which replaces it"
        return f"{node} is {outcome}{reason}"
    if outcome in RELEASES:
        needs = f" after {row['needs']}" if row["needs"] else ""
        again = " again" if outcome == "reopened" else ""
        return f"{node} released{again}{needs} for `{row['service']}`: job {row['job']}"
    if outcome == "retry":
        return (
            f"{node}: attempt {row['attempt']} ended as {row['code']}{reason}; the next one in {took(row['wait_us'])}"
        )
    if row["nodes"]:
        return f"{node}: its worker answered with {counted(row['nodes'], 'node')}"
    return f"{node} is {outcome}{reason}"
