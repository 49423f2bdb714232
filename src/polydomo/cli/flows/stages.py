"""The stages of a flow: how many nodes are on the longest way to each node."""

from typing import Any

Row = dict[str, Any]


def needs_of(flow: Row) -> dict[int, list[int]]:
    """By the number of a node: the numbers of those that it needs, and of the one that replaces it."""
    found: dict[int, list[int]] = {row["number"]: [] for row in flow["nodes"]}
    for source, target in flow["needs"]:
        found[target].append(source)
    for row in flow["nodes"]:
        if row["replaces"] is not None:
            found[row["replaces"]].append(row["number"])
    return found


def stages_of(flow: Row) -> dict[int, int]:
    """By the number of a node: its stage, from 0."""
    needs = needs_of(flow)
    needed_by: dict[int, list[int]] = {number: [] for number in needs}
    left = {number: len(found) for number, found in needs.items()}
    for number, found in needs.items():
        for source in found:
            needed_by[source].append(number)
    stages: dict[int, int] = {}
    ready = [number for number in sorted(needs) if not left[number]]
    for number in ready:  # grows
        stages[number] = 1 + max((stages[source] for source in needs[number]), default=-1)
        for target in needed_by[number]:
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    return stages
