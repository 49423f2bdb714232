"""The rules about the nodes of a flow: the same as ``journal.flow_audit``, for the rows of one flow that are saved.

A release is compared with the spans in which the nodes that it needs had no outcome. The spans of a node are in order, so that one search
finds those that a release may be in. What the memo store was asked is read backwards: each run of a node is kept until the hit before it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from polydomo.journal.reading.audit import MAX_PROOF
from polydomo.journal.reading.flow_audit import AFTER_NEEDS, ENDS, HIT, ONE_OUTCOME, RELEASES, REUSED_NOT_RUN
from polydomo.journal.schema import JOB, MEMO
from polydomo.model.flows.needs import needs_of
from polydomo.model.outcomes import REUSED

Row = dict[str, Any]


def of_nodes(flow: str, rows: list[Row]) -> Iterator[tuple[str, list[Row], str]]:
    """Breaches: the rule, the rows that prove it, and what it is about."""
    ends: dict[int, list[Row]] = {}
    for row in rows:
        if row["position"] and row["outcome"] in ENDS and not row["nodes"]:
            ends.setdefault(row["node"], []).append(row)
    for number, mine in ends.items():
        mine.sort(key=lambda row: row["position"])
        spans: dict[int, list[Row]] = {}
        for row in mine:
            spans.setdefault(row["since"], []).append(row)
        for several in spans.values():
            if len(several) > 1:
                several.sort(key=_place)
                yield ONE_OUTCOME, several[-MAX_PROOF:], f"node {number} of flow {flow}"
    places = {number: [row["position"] for row in mine] for number, mine in ends.items()}
    for row in rows:
        if not row["position"] or row["event"] != JOB or row["outcome"] not in RELEASES or not row["needs"]:
            continue
        for number in needs_of(row["needs"]):
            if number not in ends:
                continue
            first = bisect_left(places[number], row["position"])
            late = [end for end in ends[number][first:] if end["since"] < row["position"]]
            if late:
                yield (
                    AFTER_NEEDS,
                    [min(late, key=_place), row],
                    f"node {row['node']} of flow {flow} needs node {number}",
                )
                break
    yield from _run_and_reused(flow, rows)


def _run_and_reused(flow: str, rows: list[Row]) -> Iterator[tuple[str, list[Row], str]]:
    """Nodes whose result was reused, and that a worker ran after the hit."""
    by_node: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row["event"] == MEMO or row["code"] == REUSED:
            by_node.setdefault((row["run"], row["node"]), []).append(row)
    for (_, number), mine in by_node.items():
        mine.sort(key=lambda row: row["seq"], reverse=True)
        last: Row | None = None  # run of the node so far, from the end
        ended = 0  # ends with a reused result whose hit is not found yet
        for row in mine:
            if row["event"] != MEMO:
                ended += 1
            elif row["outcome"] != HIT:
                last = last or row
            else:
                if last is not None:
                    for _ in range(ended):
                        yield REUSED_NOT_RUN, [row, last], f"node {number} of flow {flow}"
                ended = 0


def _place(row: Row) -> tuple[Any, ...]:
    return row["time"], row["run"], row["seq"]
