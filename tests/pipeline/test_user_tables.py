"""Tables of the user: computed with the others, hour by hour, committed with them, and listed in the report."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from polydomo.errors import SettingError
from polydomo.pipeline import user_tables
from polydomo.pipeline.batch import Options
from polydomo.pipeline.report import load as report
from polydomo.pipeline.report import page
from polydomo.pipeline.report.tables import Tables
from tests.pipeline.comparing import table_rows
from tests.pipeline.journals import Row, record, write
from tests.pipeline.shared import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark" / "late_orders.py"
HOUR = 3600.0


def orders(seq: int, start: float, seconds: float, service: str = "orders.create") -> Row:
    return record(seq, seq, start, start + 0.1, start + seconds, service=service)


def test_the_example_hour_by_hour(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    options = Options(tables=user_tables.load(EXAMPLE))
    write(journal, [orders(1, 0.0, 3.0), orders(2, 1.0, 0.5), orders(3, 2.0, 4.0), orders(4, 3.0, 9.0, "other")])
    write(journal, [orders(5, HOUR, 2.5)])
    summary = load([str(journal)], str(tables), options)
    assert (summary.rows["late_orders"], summary.rows["slow_services"]) == (3, 2)
    assert sorted(
        (row["hour"], row["slow"], row["requests"], row["share"]) for row in table_rows(tables, "slow_services")
    ) == [
        (12, 2, 3, pytest.approx(2 / 3)),
        (13, 1, 1, 1.0),
    ]
    first = sorted(path.stat().st_mtime_ns for path in (tables / "late_orders").glob("date=*/hour=12/*"))
    write(journal, [orders(6, 3 * HOUR, 2.2)])
    load([str(journal)], str(tables), options)
    assert sorted(row["total_us"] for row in table_rows(tables, "late_orders")) == [
        2_200_000,
        2_500_000,
        3_000_000,
        4_000_000,
    ]
    assert first == sorted(path.stat().st_mtime_ns for path in (tables / "late_orders").glob("date=*/hour=12/*"))
    text = page.render(report.load(Tables(tables)))
    assert "Tables of your own" in text and "slow_services" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "declares no table"),
        ("def broken(:", "SyntaxError"),
        ("from polydomo.pipeline import table\n@table('Bad', reads=['requests'])\ndef f(r): return r", "lower-case"),
        ("from polydomo.pipeline import table\n@table('requests', reads=['hops'])\ndef f(r): return r", "taken"),
        (
            "from polydomo.pipeline import table\n@table('mine', reads=['nothing'])\ndef f(r): return r",
            "neither a table",
        ),
        (
            "from polydomo.pipeline import table\n@table('mine', reads=['requests'], by='day')\ndef f(r): return r",
            "by must be",
        ),
        (
            "from polydomo.pipeline import table\n@table('a', reads=['b'])\ndef f(r): return r\n"
            "@table('b', reads=['a'])\ndef g(r): return r",
            "read each other",
        ),
    ],
)
def test_mistakes_are_named_before_any_work(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(SettingError, match=reason):
        user_tables.load(file)
