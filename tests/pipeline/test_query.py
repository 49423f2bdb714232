"""SQL over the tables."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from polydomo.cli.main import app
from polydomo.errors import PolydomoError
from polydomo.pipeline import catalog, session
from polydomo.pipeline.query import spark as query
from polydomo.pipeline.query.cells import cell, plain
from tests.pipeline import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("tables")
    small.tables(directory)
    return directory


@pytest.fixture
def command(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    monkeypatch.setattr(session, "build", lambda *_, **__: spark)  # the tests' session, which the command must not end
    monkeypatch.setattr(session, "close", lambda _: None)
    yield CliRunner()
    for name in ("requests", "audit"):
        spark.catalog.dropTempView(name)


def test_values_are_converted_to_json() -> None:
    moment = datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    assert plain(moment) == "2026-01-31T07:30:00.000000Z"
    assert plain(moment.astimezone().replace(tzinfo=None)) == "2026-01-31T07:30:00.000000Z"  # as Spark gives it
    assert plain({1: [b"\x01", Decimal("1.5"), None]}) == {"1": ["01", 1.5, None]}
    assert plain(Decimal(2**70)) == 2**70  # sums of whole numbers stay whole


def test_numbers_are_printed_in_full() -> None:
    assert [cell(value) for value in (1234567.125, 12345678901234567, 1e-7, 1e22, 0.1)] == [
        "1234567.125",
        "12345678901234567",
        "0.0000001",
        "10000000000000000000000",
        "0.1",
    ]


def test_an_error_is_shown_without_codes() -> None:
    observed = query.said(
        Exception("[UNRESOLVED_COLUMN.WITH_SUGGESTION] There is no `x`. SQLSTATE: 42703; line 1\n'Project\n")
    )
    assert observed == "There is no `x`."


def test_missing_tables_are_reported_in_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(PolydomoError, match="there are no tables in"):
        catalog.views(spark, str(tmp_path))


@pytest.mark.parametrize("engine", ["auto", "duckdb", "spark"])
def test_every_table_can_be_asked_in_three_forms(command: CliRunner, tables: Path, engine: str) -> None:
    words = ["-t", str(tables), "--engine", engine]
    sql = "SELECT service, count(*) AS n, max(accepted) AS last FROM requests WHERE outcome = 'timeout' GROUP BY service ORDER BY n DESC"
    shown = command.invoke(app, ["query", sql, *words])
    assert shown.exit_code == 0, shown.output
    assert [line.split()[:2] for line in shown.output.splitlines()] == [
        ["SERVICE", "N"],
        ["resize", "12"],
        ["service-00", "6"],
    ]
    rows = [json.loads(line) for line in command.invoke(app, ["query", sql, *words, "--json"]).output.splitlines()]
    assert rows[0] == {"service": "resize", "n": 12, "last": "2026-01-31T07:44:10.000000Z"}
    text = command.invoke(
        app, ["query", "SELECT rule, detail FROM audit UNION ALL SELECT topic, '' FROM values", *words, "--csv"]
    ).output
    assert text.splitlines() == ["rule,detail", 'one-outcome,"' + small.EVIL.replace('"', '""') + '"']


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("sql", ["SELECT nonsense FROM requests", "SELEKT 1", "SELECT CAST(rule AS INT) FROM audit"])
def test_an_invalid_query_gets_one_line(command: CliRunner, tables: Path, sql: str, engine: str) -> None:
    done = command.invoke(app, ["query", sql, "--tables", str(tables), "--engine", engine])
    assert done.exit_code == 1
    assert done.output.startswith("polydomo: ") and done.output.count("\n") == 1


def test_the_pipeline_without_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    result = CliRunner().invoke(app, ["pipeline", "run", "-j", str(tmp_path), "-t", str(tmp_path / "tables")])
    assert result.exit_code == 1 and "pyspark: pip install 'polydomo[spark]'" in result.output


def test_tables_that_cannot_be_written_are_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["pipeline", "run", "-j", str(tmp_path), "-t", str(tmp_path / "file" / "tables")])
    assert result.exit_code == 1 and "Not a directory" in result.output and "Traceback" not in result.output
