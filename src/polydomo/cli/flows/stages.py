"""The stages of a flow: how many nodes are on the longest way to each node."""

from typing import Any

Row = dict[str, Any]


def needs_of(flow: Row) -> dict[int, list[int]]:
    """By the number of a node: the numbers of those that it needs."""
    found: dict[int, list[int]] = {row["number"]: [] for row in flow["nodes"]}
    for source, target in flow["needs"]:
        found[target].append(source)
    return found


def stages_of(flow: Row) -> dict[int, int]:
    """By the number of a node: its stage, from 0. A node needs only nodes with smaller numbers."""
    needs = needs_of(flow)
    stages: dict[int, int] = {}
    for number in sorted(needs):
        stages[number] = 1 + max((stages[source] for source in needs[number]), default=-1)
    return stages
