"""docs/journal.md has every column, event and rule, in the words of the code."""

from pathlib import Path

import pytest

from polydomo.journal import schema
from polydomo.journal.reading import rules
from polydomo.journal.schema import KINDS
from polydomo.server.settings.settings import KINDS as SETTINGS
from tests.journal import column_tables

PAGE = (Path(__file__).parents[2] / "docs" / "journal.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_column(kind: str) -> None:
    assert column_tables.parts(PAGE, kind)[1] == column_tables.table(kind), (
        "renew it: python -m tests.journal.column_tables"
    )


def test_every_event() -> None:
    section = PAGE[PAGE.index("| Event |") : PAGE.index("### requests:")]
    levels = {}
    for line in section.splitlines()[2:]:
        if line.startswith("| `"):
            names, _, level = line.strip("| ").split(" | ")
            levels.update({name.strip("`"): level for name in names.split(", ")})
    assert set(levels) == set(schema.EVENTS)
    assert {event for event, level in levels.items() if level == schema.MESSAGES} == set(schema.ONLY_MESSAGES)


def test_every_rule() -> None:
    for rule in rules.RULES:
        assert f"| `{rule.id}` | {rule.says} | {rule.level} |" in PAGE


def test_every_setting() -> None:
    for key in SETTINGS:
        if key.startswith("journal."):
            assert f"`{key}`" in PAGE or f"`{key.removeprefix('journal.')}`" in PAGE
