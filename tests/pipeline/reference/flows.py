"""``flow_nodes`` and ``flows``: flows that have ended, their nodes, and which nodes determined how long they took."""

from typing import Any

from polydomo.journal import schema
from tests.pipeline.reference.basics import Row, us
from tests.pipeline.reference.journal import Journal

LONGEST = 10_000


def flows_and_nodes(journal: Journal) -> tuple[list[Row], list[Row]]:
    flows: list[Row] = []
    nodes: list[Row] = []
    rows = sorted(
        (row for row in journal.messages if row["flow"]), key=lambda row: (row["time"], row["run"], row["seq"])
    )
    for end in rows:
        if end["event"] == schema.FLOW and end["outcome"] in ("done", "failed", "cancelled"):
            mine = _nodes(end, [row for row in rows if row["flow"] == end["flow"] and row["time"] <= end["time"]])
            nodes += mine
            flows.append(_flow(end, mine))
    return flows, nodes


def _nodes(end: Row, rows: list[Row]) -> list[Row]:
    found: dict[int, Row] = {}
    for row in rows:
        if row["event"] in (schema.FLOW, schema.MEMO):
            continue
        node = found.setdefault(row["node"], {
            "flow": end["flow"], "broker": end["broker"], "run": end["run"], "seq": end["seq"], "time": end["time"], "node": row["node"],
            "name": "", "service": None, "job": None, "state": "open", "released": None, "ended": None, "attempts": None, "needs": "",
            "replaced": "", "after": None, "critical": None, "critical_us": 0, "open_us": None,
        })  # fmt: skip
        node["name"] = max(node["name"], row["name"])
        if row["event"] == schema.JOB and row["outcome"] in ("accepted", "reopened"):
            node |= {"service": row["service"], "job": row["job"], "released": row["time"], "needs": row["needs"]}
        elif row["event"] == schema.NODE or (row["outcome"] in ("done", "dead", "cancelled") and not row["nodes"]):
            node |= {"state": row["outcome"], "ended": row["time"], "attempts": row["attempt"]}
            node["replaced"] = row["needs"] if row["event"] == schema.NODE else ""
    for node in found.values():
        node["needs"] = node["replaced"] or node["needs"]
        if node["released"] is not None and node["ended"] is not None:
            node["open_us"] = max(0, us(node["ended"]) - us(node["released"]))
        if node["ended"] is not None:
            node["after"] = _latest(
                (found[number] for number in _numbers(node["needs"]) if number in found), node["ended"]
            )
    _mark(found, end)
    return list(found.values())


def _numbers(needs: str) -> list[int]:
    made: list[int] = []
    for part in needs.split(","):
        if part and part != "...":
            first, *rest = part.split("-")
            made += range(int(first), int(rest[0] if rest else first) + 1)
    return made


def _latest(nodes: Any, until: Any = None) -> int | None:
    """The number of the node that ended last."""
    able = [
        one
        for one in nodes
        if one["ended"] is not None and one["state"] != "skipped" and (until is None or one["ended"] <= until)
    ]
    return max(able, key=lambda one: (one["ended"], one["node"]))["node"] if able else None


def _mark(found: dict[int, Row], end: Row) -> None:
    """Marks the critical path."""
    path: list[int] = []
    at = _latest(found.values())
    while at is not None and len(path) < min(len(found), LONGEST):
        path.append(at)
        at = found[at]["after"]
    for place, number in enumerate(reversed(path), 1):
        node = found[number]
        begin = found[node["after"]]["ended"] if node["after"] is not None else end["created"]
        node |= {"critical": place, "critical_us": max(0, us(node["ended"]) - us(begin))}


def _flow(end: Row, nodes: list[Row]) -> Row:
    critical = [node for node in nodes if node["critical"] is not None]
    slowest = max(critical, key=lambda node: (node["critical_us"], node["node"]), default=None)
    counts = {
        state: sum(node["state"] == state for node in nodes) for state in ("done", "dead", "skipped", "cancelled")
    }
    return {
        **end, "started": end["created"], "ended": end["time"], "total_us": us(end["time"]) - us(end["created"]), "state": end["outcome"],
        **counts, "open_us": sum(node["open_us"] or 0 for node in nodes), "critical_nodes": len(critical),
        "slowest": slowest["name"] if slowest else "", "slowest_us": slowest["critical_us"] if slowest else 0,
    }  # fmt: skip
