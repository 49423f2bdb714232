"""The rules about the nodes of a flow: the same as ``journal.flow_audit``, for the rows of one flow that are saved.

A release is compared with the spans in which the nodes that it needs had no outcome. The spans of a node are in order, so that one search
finds those that a release may be in.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from polydomo.journal.reading.audit import MAX_PROOF
from polydomo.journal.reading.flow_audit import AFTER_NEEDS, ENDS, ONE_OUTCOME, RELEASES
from polydomo.journal.schema import JOB
from polydomo.model.flows.needs import needs_of

Row = dict[str, Any]


def of_nodes(flow: str, rows: list[Row]) -> Iterator[tuple[str, list[Row], str]]:
    """Breaches: the rule, the rows that prove it, and what it is about."""
    ends: dict[int, list[Row]] = {}
    for row in rows:
        if row["outcome"] in ENDS and not row["nodes"]:
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
        if row["event"] != JOB or row["outcome"] not in RELEASES or not row["needs"]:
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


def _place(row: Row) -> tuple[Any, ...]:
    return row["time"], row["run"], row["seq"]
