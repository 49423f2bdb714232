"""``python -m tests.journal.column_tables``: writes the tables of columns in docs/journal.md from the schema."""

import re
from pathlib import Path

from polydomo.journal import schema

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"
HEAD = "| Column | Type | Since | Meaning |\n|---|---|---|---|\n"


def table(kind: str) -> str:
    return "".join(f"| `{c.name}` | {c.type} | {c.since} | {c.says} |\n" for c in schema.COLUMNS[kind])


def parts(page: str, kind: str) -> tuple[str, str, str]:
    """What precedes the table of a kind in the page, the table, and what follows it."""
    found = re.fullmatch(rf"(.*?\n### {kind}:[^\n]*\n\n{re.escape(HEAD)})((?:\|[^\n]*\n)*)(.*)", page, re.DOTALL)
    assert found is not None, f"{PAGE}: the head of the table of {kind} is missing"
    return found[1], found[2], found[3]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for kind in schema.KINDS:
        before, _, after = parts(text, kind)
        text = before + table(kind) + after
    PAGE.write_text(text, encoding="utf-8")
