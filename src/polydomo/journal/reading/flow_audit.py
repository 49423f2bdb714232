"""Checks the rules about nodes of flows in Python, over all runs and brokers: see ``rules.FLOWS``.

A node had no outcome from ``since`` to ``position`` of each of its ends: both count the ends of its flow, within the transactions of the
store. ``position`` of a release is the place of the next end. So a node was released too early if that place is in such a span of a node
that it needs. Rows without a position, of which the store's answer was lost, prove nothing.

A node whose result was reused has a row `memo` with a hit, and then its end with the code `reused`, both by the same run of a broker. No
row `memo` of the node after that hit may say that a worker runs it or an equal call.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from polydomo.journal import schema
from polydomo.journal.ids import run_name
from polydomo.model.flows.needs import needs_of
from polydomo.model.outcomes import REUSED

Row = dict[str, Any]

ONE_OUTCOME, AFTER_NEEDS, REUSED_NOT_RUN = "node-one-outcome", "node-after-needs", "reused-node-not-run"
ENDS = ("done", "dead", "cancelled", "skipped")
RELEASES = ("accepted", "reopened")
HIT, RUNS = "hit", ("miss", "joined")  # of rows ``memo``


@dataclass
class FlowRows:
    """Rows about the nodes of one flow."""

    ends: dict[int, list[Row]] = field(default_factory=dict)  # by node
    releases: list[Row] = field(default_factory=list)
    reused: list[Row] = field(default_factory=list)  # ends
    lookups: dict[tuple[int, int], list[Row]] = field(default_factory=dict)  # in the memo store, by run and node

    def add(self, row: Row) -> None:
        if row["event"] == schema.MEMO:
            self.lookups.setdefault((row["run"], row["node"]), []).append(row)
            return
        if row["event"] == schema.JOB and row["code"] == REUSED:
            self.reused.append(row)
        if row["position"] and is_end(row):
            self.ends.setdefault(row["node"], []).append(row)
        elif row["position"] and row["event"] == schema.JOB and row["outcome"] in RELEASES and row["needs"]:
            self.releases.append(row)


def is_end(row: Row) -> bool:
    """Whether the row is the end of a node. A node whose worker answered with a flow ends later."""
    return row["event"] in (schema.NODE, schema.JOB) and row["outcome"] in ENDS and not row["nodes"]


def early_or_repeated(rows: Iterable[Row]) -> list[tuple[str, list[Row], str]]:
    """Breaches: the rule, the rows that prove it, the last one of which broke it, and what is wrong."""
    flows: dict[str, FlowRows] = {}
    for row in rows:
        if row.get("flow"):
            flows.setdefault(row["flow"], FlowRows()).add(row)
    found = []
    for flow, mine in flows.items():
        for number, ends in mine.ends.items():
            found += [(ONE_OUTCOME, several, f"node {number} of flow {flow}") for several in _repeated(ends)]
        for row in mine.releases:
            for number in needs_of(row["needs"]):
                late = [end for end in mine.ends.get(number, ()) if end["since"] < row["position"] <= end["position"]]
                if late:
                    proof = [min(late, key=_place), row]
                    found.append((AFTER_NEEDS, proof, f"node {row['node']} of flow {flow} needs node {number}"))
                    break
        found += [
            (REUSED_NOT_RUN, several, f"node {several[0]['node']} of flow {flow}") for several in _run_and_reused(mine)
        ]
    return [(rule, several, f"{what} in rows {places(several)}") for rule, several, what in found]


def _repeated(ends: list[Row]) -> Iterable[list[Row]]:
    by_reset: dict[int, list[Row]] = {}
    for row in ends:
        by_reset.setdefault(row["since"], []).append(row)
    return (sorted(several, key=_place) for several in by_reset.values() if len(several) > 1)


def _run_and_reused(rows: FlowRows) -> Iterable[list[Row]]:
    """Of each node whose result was reused and that ran: the hit and the last row about a run."""
    for end in rows.reused:
        lookups = rows.lookups.get((end["run"], end["node"]), [])
        hit = max(
            (row for row in lookups if row["outcome"] == HIT and row["seq"] < end["seq"]),
            key=lambda row: row["seq"],
            default=None,
        )
        if hit is not None:
            after = [row for row in lookups if row["outcome"] in RUNS and row["seq"] > hit["seq"]]
            if after:
                yield [hit, max(after, key=lambda row: row["seq"])]


def _place(row: Row) -> tuple[Any, ...]:
    return row["time"], row["run"], row["seq"]


def places(rows: Iterable[Row]) -> str:
    return ", ".join(f"{run_name(row['run'])} {row['seq']}" for row in rows)
