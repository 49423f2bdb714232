"""Maintenance: the same rows in fewer files, old hours removed, and no lost or repeated rows after a kill at any step."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow.parquet as pq
from typer.testing import CliRunner

from polydomo.cli.main import app
from polydomo.journal import schema
from polydomo.pipeline.commit import BY_RUN, TablesBusy, TableStore
from polydomo.pipeline.maintain import Done, floor_of, maintain
from polydomo.pipeline.tables import TABLES
from tests.pipeline.comparing import comparable, table_rows
from tests.pipeline.journals import Row, message, record, write
from tests.pipeline.shared import load

HOUR = 3600.0
ROWS: list[Row] = [
    message(1, schema.STARTED, 0.0, level="requests"),
    *(record(2 + n, 1 + n, 10.0 * n, 10.0 * n + 1, 10.0 * n + 2) for n in range(6)),
    *(record(8 + n, 7 + n, HOUR + n, HOUR + n + 0.1, HOUR + n + 0.2) for n in range(4)),
    message(12, schema.STOPPED, HOUR + 9),
]
SECOND = datetime(2026, 1, 31, 13, tzinfo=UTC)


def rows_of(tables: Path) -> dict[str, list[tuple[object, ...]]]:
    return {table: comparable(table, table_rows(tables, table)) for table in TABLES}


def split(tables: Path) -> None:
    """The files of an hour in several pieces, as a run of many tasks leaves them."""
    for table in set(TABLES) - set(BY_RUN):
        for path in sorted((tables / table).glob("date=2026*/hour=*/0.parquet")):
            whole = pq.ParquetFile(path).read()
            if whole.num_rows > 1:
                for i in range(min(3, whole.num_rows)):
                    part = whole.slice(i, 1) if i < 2 else whole.slice(2)
                    pq.write_table(part, path.with_name(f"{i}.parquet"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("maintained")
    write(home / "journal", ROWS)
    load([str(home / "journal")], str(home / "tables"))
    split(home / "tables")
    return home


@pytest.fixture
def tables(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home" / "tables"


def count(tables: Path) -> int:
    return len(list(tables.glob("*/date=2026*/hour=*/*.parquet")))


def test_files_of_an_hour_become_one_with_the_same_rows(tables: Path) -> None:
    before, files = rows_of(tables), count(tables)
    dry = maintain(str(tables), dry_run=True)
    assert count(tables) == files and dry.files_merged > dry.files_made > 0
    done = maintain(str(tables))
    assert (done.files_merged, done.files_made, done.hours_removed) == (dry.files_merged, dry.files_made, 0)
    assert rows_of(tables) == before and count(tables) == files - done.files_merged + done.files_made
    assert maintain(str(tables)).files_merged == 0
    again = load([str(tables.parent / "journal")], str(tables))
    assert again.segments == 0


def test_removed_hours_stay_removed(tables: Path) -> None:
    before = rows_of(tables)
    done = maintain(str(tables), before=SECOND)
    assert done.hours_removed == 1 and done.files_removed > 5
    after = rows_of(tables)
    requests = set(before["requests"])
    assert set(after["requests"]) < requests and len(after["requests"]) == 4
    assert not list(tables.glob("*/date=2026-01-31/hour=12"))
    again = load([str(tables.parent / "journal")], str(tables))
    assert again.segments == 0 and rows_of(tables) == after
    late = [record(20, 30, HOUR + 50, HOUR + 51, HOUR + 52), record(21, 31, 50.0, 51.0, 52.0)]
    write(tables.parent / "journal", late[:1])
    write(tables.parent / "journal", late[1:])  # of the hour that was removed
    last = load([str(tables.parent / "journal")], str(tables))
    assert last.units == ["2026-01-31/13"] and len(rows_of(tables)["requests"]) == 5


class Killed(BaseException):
    pass


def kill_at(number: int) -> Callable[[str], None]:
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Killed(name)

    return step


@pytest.mark.parametrize("before", [SECOND, pytest.param(None, marks=pytest.mark.long)])
def test_killed_at_every_step_it_loses_and_doubles_nothing(made: Path, tmp_path: Path, before: datetime | None) -> None:
    wanted = tmp_path / "wanted"
    shutil.copytree(made / "tables", wanted)
    maintain(str(wanted), before)
    rows = rows_of(wanted)
    number = 0
    while True:
        trial = tmp_path / f"at-{number}"
        shutil.copytree(made / "tables", trial)
        try:
            maintain(str(trial), before, step=kill_at(number))
        except Killed:
            pass
        else:
            break
        with TableStore(str(trial)):
            pass  # the next run of anything finishes or undoes the change
        if before is None:
            assert rows_of(trial) == rows, number
        maintain(str(trial), before)
        assert rows_of(trial) == rows, number
        own = trial / "_polydomo"
        assert not list(own.glob("staging/*")) and not (own / "intent.json").exists()
        number += 1
    assert number > 8


PROGRAM = """
import os, signal, sys
from polydomo.pipeline.maintain import maintain
seen = 0
def step(name):
    global seen
    seen += 1
    if seen > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
maintain(sys.argv[1], step=step)
"""


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_process_killed_by_sigkill(tables: Path, number: int) -> None:
    before = rows_of(tables)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tables), str(number)])
    assert done.returncode == -9
    maintain(str(tables))
    assert rows_of(tables) == before


def test_the_command_reports_its_work_and_refuses_locked_tables(tables: Path) -> None:
    done = CliRunner().invoke(app, ["pipeline", "maintain", "-t", str(tables), "--before", "2026-01-31T13:00", "-q"])
    assert done.exit_code == 0, done.output
    assert "files merged into" in done.output and "1 hours with" in done.output
    with TableStore(str(tables)) as store:
        assert floor_of(store) == "2026-01-31/13"
        with pytest.raises(TablesBusy):
            maintain(str(tables))
    assert maintain(str(tables)) == Done()
    assert os.path.exists(tables / "_polydomo" / "floor.json")
