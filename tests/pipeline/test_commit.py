"""A commit that is killed at any step leaves the tables as they were or as they are to be, once the next run has looked at them."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from polydomo.pipeline.commit import Store, TablesBusy
from polydomo.pipeline.tables import TABLES

UNITS = ["2026-01-31/07", "2026-01-31/08"]


class Killed(BaseException):
    """Nothing catches this: what follows it is not done."""


def log_rows(spark: "SparkSession", text: str, hours: dict[int, int]) -> Any:
    """Rows of the table ``logs`` that say ``text``: so many in each hour."""
    empty = {column.name: None for column in TABLES["logs"].columns}
    import datetime

    day = datetime.date(2026, 1, 31)
    made = [
        {**empty, "message": text, "seq": seq, "hour": hour, "date": day}
        for hour, n in hours.items()
        for seq in range(n)
    ]
    return spark.createDataFrame([tuple(row.values()) for row in made], TABLES["logs"].ddl)


def told(root: Path, table: str = "logs") -> list[tuple[int, str]]:
    """What a reader of plain Parquet sees."""
    if not (root / table).exists():
        return []
    rows = (
        ds.dataset(root / table, format="parquet", exclude_invalid_files=False)
        .to_table(columns=["hour", "message"])
        .to_pylist()
    )
    return sorted((row["hour"], row["message"]) for row in rows)


def change(spark: "SparkSession", root: Path, text: str, hours: dict[int, int], step: Any = lambda name: None) -> None:
    with Store(spark, str(root), step=step) as store:
        for table in ("logs", "values"):
            frame = log_rows(spark, text, hours) if table == "logs" else spark.createDataFrame([], TABLES["values"].ddl)
            store.stage(table, frame, UNITS)
        store.commit({unit: {"segments": [text]} for unit in UNITS})


@pytest.fixture(scope="module")
def steps(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A directory with an old state, and the steps that lead to the new one."""
    old = tmp_path_factory.mktemp("old")
    change(spark, old, "old", {7: 3, 8: 2})
    trial = tmp_path_factory.mktemp("trial") / "tables"
    shutil.copytree(old, trial)
    names: list[str] = []
    change(spark, trial, "new", {7: 2}, names.append)
    assert told(trial) == [(7, "new")] * 2
    return old, names


def test_a_commit_replaces_its_units_and_nothing_else(spark: "SparkSession", tmp_path: Path) -> None:
    change(spark, tmp_path, "old", {7: 3, 8: 2})
    with Store(spark, str(tmp_path)) as store:
        store.stage("logs", log_rows(spark, "new", {8: 1}), ["2026-01-31/08"])
        store.commit({"2026-01-31/08": {"segments": ["new"]}})
        assert told(tmp_path) == [(7, "old")] * 3 + [(8, "new")]
        assert {unit: known["segments"] for unit, known in store.units().items()} == {
            "2026-01-31/07": ["old"],
            "2026-01-31/08": ["new"],
        }
        read = store.read("logs")
        assert read is not None and read.count() == 4
        assert store.read("audit") is None
    assert not (tmp_path / "_polydomo" / "intent.json").exists()
    assert not list((tmp_path / "_polydomo").glob("staging/*"))


def test_killed_at_every_step(spark: "SparkSession", steps: tuple[Path, list[str]], tmp_path: Path) -> None:
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
            change(spark, root, "new", {7: 2}, stop)
        with Store(spark, str(root)) as store:
            taken = {unit: known["segments"] for unit, known in store.units().items()}
        new = place > names.index("before the intent")
        assert told(root) == ([(7, "new")] * 2 if new else [(7, "old")] * 3 + [(8, "old")] * 2), name
        assert taken == {unit: ["new" if new else "old"] for unit in UNITS}, name
        assert sorted(path.name for path in (root / "_polydomo").iterdir()) == ["lock", "units"], name


def test_killed_again_while_it_recovers(spark: "SparkSession", steps: tuple[Path, list[str]], tmp_path: Path) -> None:
    old, _ = steps
    root = tmp_path / "tables"
    shutil.copytree(old, root)

    def at(wanted: str) -> Any:
        def stop(step: str) -> None:
            if step.startswith(wanted):
                raise Killed

        return stop

    with pytest.raises(Killed):
        change(spark, root, "new", {7: 2}, at("after the intent"))
    for wanted in ("moved", "removed", "noted"):
        with pytest.raises(Killed), Store(spark, str(root), step=at(wanted)):
            pass
    with Store(spark, str(root)):
        assert told(root) == [(7, "new")] * 2


def test_two_runs_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    with Store(spark, str(tmp_path)), pytest.raises(TablesBusy, match="another run"), Store(spark, str(tmp_path)):
        pass


def test_the_same_through_hadoops_file_systems(spark: "SparkSession", tmp_path: Path) -> None:
    from polydomo.pipeline.files import HadoopFiles

    for text in ("old", "new"):
        store = Store(spark, str(tmp_path))
        store.files = HadoopFiles(spark, tmp_path.as_uri())
        store.recover()
        store.stage("logs", log_rows(spark, text, {7: 2, 8: 1}), UNITS)
        store.commit({UNITS[0]: {"segments": [text]}})
        assert told(tmp_path) == [(7, text)] * 2 + [(8, text)]
        assert store.units()[UNITS[0]]["segments"] == [text]
