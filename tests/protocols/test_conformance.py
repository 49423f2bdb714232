"""docs/protocols: each sentence of the five documents that asks for something stands in a table, with a test that is there."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "protocols"

WORDS = re.compile(r"\b(?:MUST|SHALL|SHOULD|MAY|NOT REQUIRED|REQUIRED)(?: NOT)?\b")

# How often each document says each word, beside the paragraph that explains them.
SAID = {
    "dcp": {"MUST": 13, "MUST NOT": 3, "SHALL": 3, "SHOULD": 4, "SHOULD NOT": 1, "MAY": 10, "NOT REQUIRED": 1},
    "dbp": {"MUST": 8, "MUST NOT": 1, "SHOULD": 4, "SHOULD NOT": 1, "MAY": 5},
    "memo01": {},  # it writes them in lower case
}
LEAST = {
    "dcp": 33,
    "dbp": 35,
    "memo01": 27,
}  # rows; what is fixed without such a word counts too

DIALOG = "## On the wire"
PARTS = {
    "a table of states and events": re.compile(r"^\| event.*\|$", re.MULTILINE | re.IGNORECASE),
    "its decisions": re.compile(r"^## Decisions where the \w+ (?:is|are) silent$", re.MULTILINE),
    "what happens on each violation": re.compile(r"^## Violations$", re.MULTILINE),
}


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows(page: str) -> list[list[str]]:
    lines = (PAGES / f"conformance-{page}.md").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert table[0] == ["sentence", "followed?", "test", "note"]
    return table[2:]


@pytest.mark.parametrize("page", SAID)
def test_no_sentence_is_left_out(page: str) -> None:
    sentences = [row[0] for row in rows(page)]
    assert Counter(word for sentence in sentences for word in WORDS.findall(sentence)) == SAID[page]
    assert len(sentences) == len(set(sentences)) >= LEAST[page]


@pytest.mark.parametrize("page", SAID)
def test_every_sentence_has_its_test_or_its_reason(page: str) -> None:
    for sentence, followed, test, reason in rows(page):
        assert sentence and followed
        assert followed.startswith("yes") or reason, (
            f"{sentence!r} is not simply followed, and the table does not say why"
        )
        assert (test == "-" and reason) or "::" in test, f"{sentence!r} has neither test nor reason"
        for path, name in re.findall(r"`([\w/.]+)::(\w+)`", test + reason):
            assert name.startswith("test_") and name in names_in(path), f"{path} has no {name}"


@pytest.mark.parametrize("page", SAID)
def test_every_page_has_its_parts(page: str) -> None:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert DIALOG in text
    assert f"conformance-{page}.md" in text
    for what, pattern in PARTS.items():
        assert pattern.search(text), f"{page}.md lacks {what}"
