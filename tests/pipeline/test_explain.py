"""The definition and the plan of every table."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from polydomo.errors import SettingError
from polydomo.pipeline import explain, user_tables
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark" / "late_orders.py"


@pytest.mark.parametrize("names", [("requests", "audit", "late_orders"), pytest.param((), marks=pytest.mark.long)])
def test_every_table_has_a_definition_and_a_plan(spark: "SparkSession", tmp_path: Path, names: tuple[str, ...]) -> None:
    """Of some tables; the long form is about all of them."""
    own = user_tables.load(EXAMPLE)
    sample = explain.sample(spark, own, tmp_path)
    every = {table.name: table for table in (*TABLES.values(), *own)}
    for table in [every[name] for name in names or every]:
        assert f'"{table.name}"' in explain.definition(table) or table.name.startswith("audit")
        plan = explain.plan(sample, table)
        assert ("== Physical Plan ==" in plan and "Scan parquet" in plan) or table.name.startswith("audit"), table.name


def test_the_tables_of_the_audit_are_explained_by_their_module() -> None:
    assert "class Auditor" in explain.definition(explain.find("audit", []))


def test_an_unknown_table() -> None:
    with pytest.raises(SettingError, match=r"there is no table 'nothing'; the tables are requests, hops"):
        explain.find("nothing", [])
