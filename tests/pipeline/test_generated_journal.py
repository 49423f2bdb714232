"""Generated journals with every kind of request, flow and breach: DuckDB's SQL, plain Python and Spark compute the same rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from bench.duckdb_tables import compute
from bench.generate_journal import generate
from bench.pipeline import compare
from polydomo.journal.reading.audit import audit
from polydomo.pipeline.tables import TABLES
from tests.pipeline.comparing import comparable, content
from tests.pipeline.journals import Row
from tests.pipeline.reference import Reference
from tests.pipeline.shared import load


def generated(directory: Path, seconds: float) -> tuple[dict[str, Any], list[str]]:
    facts = generate(directory, 3_000, seed=5, breaches=1, seconds=seconds)
    return facts, [str(directory / name) for name in facts["brokers"]]


def rows_of(journals: Iterable[str]) -> list[Row]:
    files = [file for journal in journals for file in sorted(Path(journal).rglob("*.parquet"))]
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def test_two_audits_find_what_was_planted_and_nothing_else(tmp_path: Path) -> None:
    facts, journals = generated(tmp_path, seconds=900)
    planted = sorted((rule, run) for rule, run, _ in facts["planted"])
    con = compute([Path(journal) for journal in journals])
    assert sorted(con.execute("SELECT rule, run FROM audit").fetchall()) == planted
    assert sorted((breach.rule, breach.run) for breach in audit(rows_of(journals))) == planted
    ends = dict(con.execute("SELECT state, count(*) FROM flows GROUP BY ALL").fetchall())
    assert set(ends) == {"done", "failed", "cancelled"}
    assert con.execute(
        "SELECT count(*) FROM flows WHERE state = 'done' AND flow IN (FROM flows SELECT flow WHERE state = 'failed')"
    ).fetchall() > [(0,)]


@pytest.mark.long
def test_spark_computes_the_rows_of_plain_python_and_of_other_sql(tmp_path: Path) -> None:
    """The journal goes over the end of an hour."""
    facts, journals = generated(tmp_path / "journal", seconds=3_300)
    tables = tmp_path / "tables"
    summary = load(journals, str(tables))
    assert not summary.problems
    assert compare(compute([Path(journal) for journal in journals]), str(tables)) == {}
    assert len(list((tables / "flows").rglob("hour=*"))) == 2
    found, reference = content(tables), Reference(rows_of(journals)).tables
    for name in TABLES:
        assert found[name], name
        assert found[name] == comparable(name, reference[name]), name
    assert len(found["audit"]) == len(facts["planted"])
