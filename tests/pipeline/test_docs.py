"""docs/pipeline.md has every table, column by column, as the tables state them."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from polydomo.pipeline.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_every_table_is_documented_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES.values():
        assert table.markdown() in text, f"docs/pipeline.md: the table {table.name} is not what the code says"
