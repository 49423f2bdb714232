"""The conformance tables of MDX and DCP name tests: each of them must be there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["conformance-mdx.md", "conformance-dcp.md"])
def test_every_sentence_has_its_test_or_its_reason(page: str) -> None:
    rows = [
        line
        for line in (ROOT / "docs/protocols" / page).read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    assert len(rows) > 20
    for row in rows[1:]:
        sentence, followed, test, reason = (cell.strip() for cell in row.strip("|").split("|"))
        assert sentence and followed
        assert followed == "yes" or reason, f"{sentence!r} is not simply followed, and the table does not say why"
        assert test != "-" or reason
        for path, name in re.findall(r"`([\w/.]+)::(\w+)`", test + reason):
            assert name in names_in(path), f"{path} has no {name}"
        assert test == "-" or "::" in test
