"""``python -m tests.transitions_page``: writes the diagram and the table of request states in docs/architecture.md from the table that the
broker uses."""

import re
from pathlib import Path

from polydomo.broker.requests.transitions import EVENTS, STATES, TABLE
from polydomo.model.records import DONE, NEW

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN = "<!-- begin of the transitions, written by python -m tests.transitions_page -->\n"
END = "<!-- end of the transitions -->\n"


def diagram() -> str:
    """A Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {STATES[NEW]}"]
    for state, events in TABLE.items():
        after: dict[int, list[str]] = {}
        for event, then in events.items():
            after.setdefault(then, []).append(event)
        lines += [f"    {STATES[state]} --> {STATES[then]}: {', '.join(names)}" for then, names in after.items()]
    lines.append(f"    {STATES[DONE]} --> [*]")
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def table() -> str:
    """One row per event, one column per state."""
    columns = [state for state in STATES if TABLE[state]]
    rows = [
        f"| event | meaning | {' | '.join(STATES[state] for state in columns)} |",
        "|---" * (2 + len(columns)) + "|",
    ]
    for event, meaning in EVENTS.items():
        cells = [STATES[TABLE[state][event]] if event in TABLE[state] else "-" for state in columns]
        rows.append(f"| `{event}` | {meaning} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page with a new diagram and table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{diagram()}\n{table()}{END}{rest.split(END)[1]}"


def details(text: str) -> list[tuple[str, str, str]]:
    """The rows of the table of what happens to a request, written by hand: the event, the name of a state, and what happens in it."""
    found = re.search(r"^\| what happens \|.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in found[0].strip().splitlines())
    return [(row[0], state.split(",")[0], cell) for row in rows for state, cell in zip(head[1:], row[1:], strict=True)]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
