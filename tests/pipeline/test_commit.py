"""A commit that is killed at any step: after the next run, the tables are in the old or in the new state."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from polydomo.pipeline.commit import EMPTY, TablesBusy, TableStore
from polydomo.pipeline.maintain import Done, maintain
from polydomo.pipeline.tables import TABLES

UNITS = ["2026-01-31/07", "2026-01-31/08"]


class Killed(BaseException):
    """Simulates a kill: nothing catches it."""


def stage(store: TableStore, table: str, text: str, hours: dict[int, int], name: str = "part") -> None:
    """Rows of a table with this text, in each hour."""
    for hour, count in hours.items():
        empty: dict[str, Any] = {column.name: None for column in TABLES[table].stored}
        column = "message" if table == "logs" else "says"
        rows = pa.Table.from_pylist([{**empty, column: text, "seq": seq} for seq in range(count)], TABLES[table].arrow)
        store.storage.write_table(f"{store.staging}/{table}/date=2026-01-31/hour={hour:02d}/{name}.parquet", rows)


def texts(root: Path, table: str = "logs", column: str = "message") -> list[tuple[int, str]]:
    """What a reader of plain Parquet sees."""
    if not (root / table).exists():
        return []
    found = ds.dataset(root / table, format="parquet", partitioning="hive", exclude_invalid_files=False)
    return sorted((row["hour"], row[column]) for row in found.to_table(columns=["hour", column]).to_pylist())


def change(root: Path, text: str, hours: dict[int, int], step: Callable[[str], None] = lambda name: None) -> None:
    with TableStore(str(root), step) as store:
        stage(store, "logs", text, hours)
        stage(store, "audit", text, {7: 1}, "00000001")
        store.commit({unit: {"segments": [text]} for unit in UNITS})


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A directory with an old state, and the steps that lead to the new one."""
    old: Path = tmp_path_factory.mktemp("old")
    change(old, "old", {7: 3, 8: 2})
    trial = tmp_path_factory.mktemp("trial") / "tables"
    shutil.copytree(old, trial)
    names: list[str] = []
    change(trial, "new", {7: 2}, names.append)
    assert texts(trial) == [(7, "new")] * 2
    return old, names


def test_a_commit_replaces_its_units_and_nothing_else(tmp_path: Path) -> None:
    change(tmp_path, "old", {7: 3, 8: 2})
    with TableStore(str(tmp_path)) as store:
        stage(store, "logs", "new", {8: 1})
        store.commit({"2026-01-31/08": {"segments": ["new"]}})
        assert texts(tmp_path) == [(7, "old")] * 3 + [(8, "new")]
        assert {unit: known["segments"] for unit, known in store.units().items()} == {
            "2026-01-31/07": ["old"],
            "2026-01-31/08": ["new"],
        }
    assert not (tmp_path / "_polydomo" / "intent.json").exists()
    assert not list((tmp_path / "_polydomo").glob("staging/*"))


def test_the_audit_is_replaced_run_by_run(tmp_path: Path) -> None:
    for run, text in (("00000001", "one"), ("00000002", "two"), ("00000001", "one again")):
        with TableStore(str(tmp_path)) as store:
            stage(store, "audit", text, {7: 1}, run)
            store.commit({"2026-01-31/09": {"segments": []}})
    assert texts(tmp_path, "audit", "says") == [(7, "one again"), (7, "two")]


def test_every_table_can_be_read_from_the_first_commit_on(tmp_path: Path) -> None:
    change(tmp_path, "old", {7: 3})
    for name, table in TABLES.items():
        found = ds.dataset(tmp_path / name, format="parquet", partitioning="hive").to_table()
        assert set(found.schema.names) == set(table.names), name
        assert (tmp_path / name / EMPTY).exists() == (name not in ("logs", "audit"))


def test_killed_at_every_step(steps: tuple[Path, list[str]], tmp_path: Path) -> None:
    old, names = steps
    assert {"before the intent", "after the intent", "forgot the intent", "done"} <= set(names)
    assert any(name.startswith("moved /logs") for name in names)
    assert any(name.startswith("removed /logs") for name in names)
    for place, name in enumerate(names):
        root = tmp_path / str(place)
        shutil.copytree(old, root)
        seen: list[str] = []

        def stop(step: str, place: int = place, seen: list[str] = seen) -> None:
            seen.append(step)
            if len(seen) == place + 1:
                raise Killed

        with pytest.raises(Killed):
            change(root, "new", {7: 2}, stop)
        with TableStore(str(root)) as store:
            taken = {unit: known["segments"] for unit, known in store.units().items()}
        new = place > names.index("before the intent")
        assert texts(root) == ([(7, "new")] * 2 if new else [(7, "old")] * 3 + [(8, "old")] * 2), name
        assert texts(root, "audit", "says") == [(7, "new" if new else "old")], name
        assert taken == {unit: ["new" if new else "old"] for unit in UNITS}, name
        assert sorted(path.name for path in (root / "_polydomo").iterdir()) == ["lock", "units"], name


def test_killed_again_while_it_recovers(steps: tuple[Path, list[str]], tmp_path: Path) -> None:
    old, _ = steps
    root = tmp_path / "tables"
    shutil.copytree(old, root)

    def at(wanted: str) -> Any:
        def stop(step: str) -> None:
            if step.startswith(wanted):
                raise Killed

        return stop

    with pytest.raises(Killed):
        change(root, "new", {7: 2}, at("after the intent"))
    for wanted in ("moved", "removed", "noted"):
        with pytest.raises(Killed), TableStore(str(root), at(wanted)):
            pass
    with TableStore(str(root)) as store:
        assert texts(root) == [(7, "new")] * 2
        assert "completed" in store.recovered


def test_two_runs_at_once(tmp_path: Path) -> None:
    with TableStore(str(tmp_path)), pytest.raises(TablesBusy, match="another run"), TableStore(str(tmp_path)):
        pass


def test_units_can_be_removed(tmp_path: Path) -> None:
    change(tmp_path, "old", {7: 3, 8: 2})
    with TableStore(str(tmp_path)) as store:
        store.replace([], store.published("logs", UNITS[0]), forget=[UNITS[0]])
        assert list(store.units()) == [UNITS[1]]
    assert texts(tmp_path) == [(8, "old")] * 2


def test_files_of_others_beside_the_tables_are_left_alone(tmp_path: Path) -> None:
    change(tmp_path, "old", {7: 3})
    (tmp_path / "notes.txt").write_text("mine")
    change(tmp_path, "new", {7: 2})
    assert maintain(str(tmp_path)) == Done()
    assert texts(tmp_path) == [(7, "new")] * 2 and (tmp_path / "notes.txt").read_text() == "mine"
