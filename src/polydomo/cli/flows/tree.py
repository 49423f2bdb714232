"""A flow as a tree of text: each node is below one of those that it needs, the last of them."""

from datetime import datetime
from typing import Any

from polydomo.cli.common.render import PrintedColumn, clock
from polydomo.cli.flows.stages import needs_of, stages_of

Row = dict[str, Any]

FOLD = 5  # equal nodes beside each other that are shown one by one

NODES = [
    PrintedColumn("node", folds=True),
    PrintedColumn("service"),
    PrintedColumn("state"),
    PrintedColumn("attempts", right=True),
    PrintedColumn("released", spare=1),
    PrintedColumn("took", right=True),
    PrintedColumn("reason", folds=True),
]


def tree(flow: Row, all: bool) -> list[list[str]]:
    """The rows of a table."""
    rows = {row["number"]: row for row in flow["nodes"]}
    needs, stages = needs_of(flow), stages_of(flow)
    below: dict[int, list[int]] = {}
    for number in sorted(rows):
        above = max(needs[number], key=lambda source: (stages[source], source), default=-1)
        below.setdefault(above, []).append(number)
    found: list[list[str]] = []
    waiting = [(number, 0) for number in reversed(below.get(-1, []))]
    folded: dict[tuple[int, str, str], int] = {}
    while waiting:
        number, depth = waiting.pop()
        row = rows[number]
        own = below.get(number, [])
        alike = (depth, row["service"], row["state"])
        if not own and not all:
            folded[alike] = folded.get(alike, 0) + 1
            if folded[alike] > FOLD:
                text = f"{'  ' * depth}... {folded[alike] - FOLD:,} more"
                if (
                    found
                    and found[-1][0].lstrip().startswith("... ")
                    and found[-1][1:3] == [row["service"], row["state"]]
                ):
                    found.pop()
                found.append([text, row["service"], row["state"], "", "", "", ""])
                continue
        found.append(cells(row, depth))
        waiting.extend((other, depth + 1) for other in reversed(own))
    return found


def cells(row: Row, depth: int) -> list[str]:
    reason = f"{row['outcome']}: {row['reason']}" if row["reason"] else ""
    return [
        "  " * depth + row["node"],
        row["service"],
        row["state"],
        str(row["attempts"]) if row["attempts"] else "",
        clock(row["created"]),
        took(row),
        reason,
    ]


def took(row: Row) -> str:
    """From the release of the node to its end."""
    if not row["created"] or not row["ended"]:
        return ""
    seconds = (datetime.fromisoformat(row["ended"]) - datetime.fromisoformat(row["created"])).total_seconds()
    return f"{seconds:.3f} s"
