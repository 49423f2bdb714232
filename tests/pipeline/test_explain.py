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


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.compute is not None])
def test_every_table_has_a_definition_and_a_plan(spark: "SparkSession", name: str, tmp_path: Path) -> None:
    table = explain.find(name, [])
    assert f'"{name}"' in explain.definition(table)
    plan = explain.plan(spark, table, [], tmp_path)
    assert "== Physical Plan ==" in plan and "Scan parquet" in plan


def test_tables_of_the_audit_and_of_the_user(spark: "SparkSession", tmp_path: Path) -> None:
    assert "class Auditor" in explain.definition(explain.find("audit", [])) and not explain.plan(
        spark, explain.find("audit", []), [], tmp_path
    )
    own = user_tables.load(EXAMPLE)
    for table in own:
        assert f'@table("{table.name}"' in explain.definition(explain.find(table.name, own))
        assert "Scan parquet" in explain.plan(spark, table, own, tmp_path)
    with pytest.raises(SettingError, match=r"there is no table 'nothing'; the tables are requests, hops"):
        explain.find("nothing", own)
