"""A flow as a graph in text: Mermaid, Graphviz's DOT, or SVG."""

from collections.abc import Callable
from html import escape
from typing import Any

from polydomo.cli.flows.stages import stages_of

Row = dict[str, Any]

COLOURS = {"done": "#cdeac0", "dead": "#f6b8b8", "skipped": "#dddddd", "cancelled": "#eed9b6", "waiting": "#ffffff"}
OTHER = "#cfe2ff"  # open: delayed, queued or running
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 150, 34, 60, 12
SHOWN = 20  # characters of a name in a box


def edges_of(flow: Row) -> list[tuple[int, int]]:
    """From a node to one that needs it, or that it replaces."""
    replaced = [(row["number"], row["replaces"]) for row in flow["nodes"] if row["replaces"] is not None]
    return [*((source, target) for source, target in flow["needs"]), *replaced]


def mermaid(flow: Row) -> str:
    lines = ["flowchart LR"]
    for row in flow["nodes"]:
        label = row["node"].replace('"', "#quot;")
        lines.append(f'    n{row["number"]}["{label}<br/>{row["state"]}"]:::{row["state"]}')
    lines += [f"    n{source} --> n{target}" for source, target in edges_of(flow)]
    lines += [f"    classDef {state} fill:{colour}" for state, colour in COLOURS.items()]
    return "\n".join(lines) + "\n"


def dot(flow: Row) -> str:
    lines = ["digraph flow {", "    rankdir=LR;", "    node [shape=box, style=filled];"]
    for row in flow["nodes"]:
        label = f"{row['node']}\n{row['state']}".replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'    n{row["number"]} [label="{label}", fillcolor="{COLOURS.get(row["state"], OTHER)}"];')
    lines += [f"    n{source} -> n{target};" for source, target in edges_of(flow)]
    return "\n".join(lines) + "\n}\n"


def svg(flow: Row) -> str:
    """Stages from left to right."""
    stages = stages_of(flow)
    columns: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    for row in flow["nodes"]:
        stage = stages[row["number"]]
        at = columns.get(stage, 0)
        columns[stage] = at + 1
        places[row["number"]] = (10 + stage * (BOX_WIDTH + GAP_X), 10 + at * (BOX_HEIGHT + GAP_Y))
    width = 20 + len(columns) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 20 + max(columns.values()) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    ]
    for source, target in edges_of(flow):
        x1, y1 = places[source][0] + BOX_WIDTH, places[source][1] + BOX_HEIGHT // 2
        x2, y2 = places[target][0], places[target][1] + BOX_HEIGHT // 2
        middle = (x1 + x2) // 2
        lines.append(f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" fill="none" stroke="#888"/>')
    for row in flow["nodes"]:
        x, y = places[row["number"]]
        name = row["node"] if len(row["node"]) <= SHOWN else row["node"][: SHOWN - 3] + "..."
        colour = COLOURS.get(row["state"], OTHER)
        lines.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="{colour}" stroke="#444"/>'
        )
        lines.append(f'<text x="{x + 8}" y="{y + 14}">{escape(name)}</text>')
        lines.append(f'<text x="{x + 8}" y="{y + 28}" fill="#444">{escape(row["state"])}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


FORMS: dict[str, Callable[[Row], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}
