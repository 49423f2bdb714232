"""Delta tables without Spark's jar: read back by deltalake, by plain Parquet readers, and after a kill at every step."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from polydomo.errors import SettingError
from polydomo.pipeline import maintain
from polydomo.pipeline.batch import Options
from polydomo.pipeline.commit import TableStore
from tests.pipeline.comparing import comparable, table_rows
from tests.pipeline.journals import record, write
from tests.pipeline.reference import Reference
from tests.pipeline.shared import load
from tests.pipeline.test_commit import UNITS, Killed, stage

DELTA = Options(format="delta")
HOUR = 3600.0


def rows_of(tables: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(tables / name)).to_pyarrow_table().to_pylist()
    return rows


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["number"] for row in rows)


def test_every_table_is_a_delta_table_with_the_same_rows(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "delta"
    rows = [record(1, 1, 0.0, 0.1, 0.2), record(2, 2, 0.3, 0.4, 0.5)]
    write(journal, rows)
    load([str(journal)], str(tables), DELTA)
    for name, expected in Reference(rows).tables.items():
        assert comparable(name, rows_of(tables, name)) == comparable(name, expected), name
        assert comparable(name, table_rows(tables, name)) == comparable(name, expected), name
    assert {row["hour"] for row in rows_of(tables, "requests")} == {12}

    # a late segment of the same hour, and another hour: one version more, and nothing twice
    before = DeltaTable(str(tables / "requests")).version()
    write(journal, [record(3, 3, 0.6, 0.7, 0.8)])
    write(journal, [record(4, 4, HOUR, HOUR + 0.1, HOUR + 0.2)])
    load([str(journal)], str(tables))  # tables with a log keep it
    assert numbers(rows_of(tables, "requests")) == numbers(table_rows(tables, "requests")) == [1, 2, 3, 4]
    assert DeltaTable(str(tables / "requests")).version() == before + 1
    files = {str(path) for path in (tables / "requests").glob("date=*/hour=*/*.parquet")}
    assert set(DeltaTable(str(tables / "requests")).file_uris()) == files

    # retention removes an hour from the log, too
    newest = max(row["ended"] for row in rows_of(tables, "requests"))
    maintain.maintain(str(tables), newest)
    assert numbers(rows_of(tables, "requests")) == [4]


def change(root: Path, text: str, hours: dict[int, int], step: Callable[[str], None] = lambda name: None) -> None:
    with TableStore(str(root), step, log=True) as store:
        stage(store, "logs", text, hours)
        stage(store, "audit", text, {7: 1}, "00000001")
        store.commit({unit: {"segments": [text]} for unit in UNITS})


def seen(root: Path) -> tuple[list[tuple[int, str]], list[str]]:
    """What a reader of the logs of both tables sees."""
    return sorted((row["hour"], row["message"]) for row in rows_of(root, "logs")), [
        row["says"] for row in rows_of(root, "audit")
    ]


def test_a_commit_that_is_killed_at_any_step_is_completed(tmp_path: Path) -> None:
    old, names = tmp_path / "old", list[str]()
    change(old, "old", {7: 3, 8: 2})
    before = [(7, "old")] * 3 + [(8, "old")] * 2
    assert seen(old) == (before, ["old"])
    shutil.copytree(old, tmp_path / "trial")
    change(tmp_path / "trial", "new", {7: 2}, names.append)
    after = [(7, "new")] * 2
    assert seen(tmp_path / "trial") == (after, ["new"]) and {"recorded audit", "recorded logs"} <= set(names)
    for number, last in enumerate(names):
        root = tmp_path / str(number)
        shutil.copytree(old, root)

        done: list[str] = []

        def kill(name: str, done: list[str] = done, number: int = number) -> None:
            done.append(name)
            if len(done) > number:
                raise Killed

        with pytest.raises(Killed):
            change(root, "new", {7: 2}, kill)
        logs, audit = seen(root)
        assert logs in (before, after) and audit in (["old"], ["new"]), f"{last}: a reader saw half of a version"
        with TableStore(str(root)):
            pass  # completes it, or removes what was staged
        committed = number >= names.index("after the intent")
        assert seen(root) == ((after, ["new"]) if committed else (before, ["old"])), last
        files = {str(path) for path in (root / "logs").glob("date=*/hour=*/*.parquet")}
        assert set(DeltaTable(str(root / "logs")).file_uris()) == files, last


def test_a_place_that_deltalake_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="hdfs:// is not supported"):
        load([str(tmp_path)], "hdfs:///tables", DELTA)
    with pytest.raises(SettingError, match="must be one of parquet, delta"):
        load([str(tmp_path)], str(tmp_path / "tables"), Options(format="iceberg"))
