"""docs/protocols: what every page of a protocol has."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "protocols"

DIALOG = "## On the wire"
PARTS = {
    "a table of states and events": re.compile(r"^\| event.*\|$", re.MULTILINE | re.IGNORECASE),
    "its decisions": re.compile(r"^## Decisions where the \w+ (?:is|are) silent$", re.MULTILINE),
    "what happens on each violation": re.compile(r"^## Violations$", re.MULTILINE),
}


@pytest.mark.parametrize("page", ["mdx", "dcp", "dbp", "emqp", "memo01"])
def test_every_page_has_its_parts(page: str) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert DIALOG in text
    assert f"conformance-{page}.md" in text
    for what, pattern in PARTS.items():
        assert pattern.search(text), f"{page}.md lacks {what}"
