"""SQL over local tables by DuckDB: without Spark, and with the columns that Spark would show."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
from typer.testing import CliRunner

from polydomo.cli.main import app
from polydomo.errors import PolydomoError
from polydomo.pipeline.query.cells import BadQuery
from polydomo.pipeline.query.local import LocalTables
from polydomo.pipeline.tables import TABLES
from tests.pipeline import small


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("tables")
    small.tables(directory)
    (directory / "_polydomo").mkdir()
    return directory


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_in_order(tables: Path, table: str) -> None:
    there = LocalTables(str(tables))
    answer = there.ask(f"SELECT * FROM {table} LIMIT 1")
    assert answer.names == TABLES[table].names
    there.close()


def test_a_user_table_is_a_view_too(tables: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = tables / "payloads_sensors" / "date=2026-01-31"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"celsius": [20.5]}), place / "0.parquet")
    there = LocalTables(f"file://{tables}")
    assert list(there.ask("SELECT celsius, date FROM payloads_sensors").rows()) == [[20.5, "2026-01-31"]]
    there.close()


def test_rows_are_read_as_they_are_wanted(tables: Path) -> None:
    there = LocalTables(str(tables))
    rows = there.ask("SELECT i, i AS i FROM range(100000000) t(i)").rows()
    first, again = next(rows)
    assert first == again
    there.close()


def test_invalid_queries_are_reported(tables: Path, tmp_path: Path) -> None:
    there = LocalTables(str(tables))
    assert list(there.ask("CREATE TEMP TABLE mine (i INT)").rows()) == []
    with pytest.raises(BadQuery, match="does not exist"):
        there.ask("SELECT * FROM nothing")
    there.close()
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(PolydomoError, match=r"there are no tables in .*pipeline run"):
            LocalTables(str(place))
    done = CliRunner().invoke(app, ["query", "SELECT explode(hops) FROM requests", "-t", str(tables)])
    assert done.exit_code == 1 and done.output.count("\n") == 1 and "--engine spark" in done.output
    assert "--engine" in CliRunner().invoke(app, ["query", "SELECT 1", "--engine", "mysql"]).output


def test_no_jvm_is_started_and_it_costs_little(tables: Path) -> None:
    program = (
        "import resource, sys; from polydomo.cli.main import app\n"
        f"try: app(['query', 'SELECT count(*) AS n FROM requests', '-t', {str(tables)!r}])\n"
        "except SystemExit: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(sum(one.ru_utime + one.ru_stime for one in used), 'pyspark.java_gateway' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    lines = done.stdout.split()
    assert lines[:2] == ["N", "902"], done.stderr
    assert float(lines[2]) < 5.0  # CPU seconds; about 1
