"""The lists of statements leave nothing of the documents out, and the pages show them with tests that are there."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.statements.page import page, target
from tests.statements.statements import DIFFERENT, NO, TITLES, YES, document, passages, statements

ROOT = Path(__file__).parents[2]
# A smaller number would be a list from which statements were removed.
LEAST = {"mdx": 74, "dcp": 77, "dbp": 56, "emqp": 30, "memo01": 58}


@pytest.mark.parametrize("name", TITLES)
def test_the_list_is_the_whole_document(name: str) -> None:
    """If this fails: the first words that differ are shown."""
    listed = " ".join(passage.text for passage in passages(name)).split()
    for number, (ours, theirs) in enumerate(zip_longest(listed, document(name).split())):
        assert ours == theirs, f"word {number}, after {' '.join(listed[max(0, number - 8) : number])!r}"


@pytest.mark.parametrize("name", TITLES)
def test_the_statements_are_counted(name: str) -> None:
    found = statements(name)
    assert [passage.id for passage in found] == [f"{name}-{number + 1}" for number in range(len(found))]
    assert target(name).read_text(encoding="utf-8").count(f"\n| {name}-") == len(found) >= LEAST[name]
    for passage in passages(name):
        assert bool(passage.holds) != bool(passage.aside), passage


@cache
def functions_of(path: str) -> frozenset[str]:
    def names() -> Iterator[str]:
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name

    return frozenset(names())


@pytest.mark.parametrize("name", TITLES)
def test_every_statement_has_its_verdict_and_a_test_that_exists(name: str) -> None:
    for passage in statements(name):
        assert passage.holds in (YES, DIFFERENT, NO), passage
        assert passage.tests or passage.holds == NO, f"{passage.id} has no test"
        assert passage.note or passage.holds == YES, f"{passage.id} does not say why"
        for test in passage.tests:
            path, _, function = test.partition("::")
            assert (ROOT / path).is_file(), f"{passage.id}: {path}"
            assert function in functions_of(path), f"{passage.id}: {test}"


@pytest.mark.parametrize("name", TITLES)
def test_the_page_is_current(name: str) -> None:
    """If this fails: ``python -m tests.statements.page``."""
    assert target(name).read_text(encoding="utf-8") == page(name)
