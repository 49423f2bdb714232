"""The stream: its tables equal those of a batch run, with late segments and after kills."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

from bench.generate_journal import generate
from polydomo.errors import PolydomoError
from polydomo.pipeline.stream import Streaming
from polydomo.pipeline.tables import TABLES
from tests.pipeline import journals
from tests.pipeline.comparing import content
from tests.pipeline.journals import message, record
from tests.pipeline.shared import load, shared

ROOT = Path(__file__).resolve().parents[2]
LINE = "at "  # before the name of every step that the driver of a test prints

# Drivers of their own, which print each step of their commits.
DRIVER = """
import sys
from polydomo.pipeline import batch, session
from polydomo.pipeline.stream import Streaming

def step(name):
    print("at", name, flush=True)

spark = session.LazySpark(lambda rows: session.build("local[1]", rows=rows))
with spark:
    WORK
print("done", flush=True)
"""
STREAM_DRIVER = DRIVER.replace("WORK", "Streaming([sys.argv[1]], sys.argv[2], session=spark, step=step).run(once=True)")
BATCH_DRIVER = DRIVER.replace("WORK", "batch.run([sys.argv[1]], sys.argv[2], session=spark, step=step)")


def driver(program: str, journal: Path, tables: Path, kill_at: str = "") -> None:
    """Runs a driver process to its end or, if a step is given, kills it with -9 at the first step that begins with this name."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(journal), str(tables)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    heard = []
    try:
        for line in process.stdout:
            heard.append(line)
            if kill_at and line.startswith(LINE + kill_at):
                break
    finally:
        if kill_at:
            process.kill()
        process.stdout.close()
        process.wait()
    if kill_at:
        assert heard and heard[-1].startswith(LINE + kill_at), f"the driver never came to {kill_at!r}: {heard}"
    else:
        assert heard and heard[-1] == "done\n", heard


def hours(directory: Path, number: int) -> None:
    """An hour of a small journal."""
    base = number * 3600.0
    seq = number * 100 + 1
    rows = [] if number else [message(1, "started", 0, level="requests")]
    for n in range(5):
        service = "echo" if n % 2 else "resize"
        rows.append(record(seq + n + 1, number * 10 + n, base + n, base + n + 0.5, base + n + 1, service=service))
    journals.write(directory, rows)


@pytest.mark.timeout(600)
def test_late_segments_repeated_runs_and_a_failure_in_the_middle_change_nothing(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    hours(journal, 2)
    observed: list[str] = []
    complaints: list[str] = []

    def stream(step: Any = lambda name: None, late: float = 86400.0) -> None:
        Streaming(
            [str(journal)],
            str(tables),
            session=shared(),
            late=late,
            tell=observed.append,
            complain=complaints.append,
            step=step,
        ).run(once=True)

    def fail(name: str) -> None:
        if name.startswith("moved /hops"):
            raise PolydomoError("pulled the plug")

    with pytest.raises(PolydomoError, match="pulled the plug"):
        stream(fail)
    hours(journal, 0)  # late, and within the limit
    hours(journal, 3)
    stream()
    # What was announced before the plug was pulled is there.
    assert len(observed) == 1 and "3 segments loaded" in observed[0]
    before = content(tables)
    stream()
    assert content(tables) == before
    whole = tmp_path / "whole"
    load([str(journal)], str(whole))
    assert content(whole) == before and len(before["requests"]) == 15
    hours(journal, 1)
    stream(late=3600.0)
    assert content(tables) == before
    assert len(complaints) == 1 and "too late for the stream" in complaints[0]


@pytest.mark.timeout(600)
def test_new_segments_are_loaded_until_the_stream_is_stopped(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    hours(journal, 0)
    observed: list[str] = []
    stop = threading.Event()
    stream = threading.Thread(
        target=lambda: Streaming([str(journal)], str(tables), session=shared(), tell=observed.append).run(
            interval=0.05, stop=stop
        )
    )
    stream.start()
    try:
        for number in (1, 2):
            while len(observed) < number:
                assert stream.is_alive()
                time.sleep(0.02)
            hours(journal, number)
        while len(observed) < 3:
            assert stream.is_alive()
            time.sleep(0.02)
    finally:
        stop.set()
        stream.join(300)
    assert not stream.is_alive()
    assert len(content(tables)["requests"]) == 15


@pytest.mark.timeout(900)
def test_a_command_that_is_stopped_in_the_middle_of_a_batch_finishes_it(tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    hours(journal, 0)
    words = [sys.executable, "-m", "polydomo", "pipeline", "stream", "--journal", str(journal), "--tables", str(tables)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not list(tables.glob("_polydomo/staging/*/*")):
                assert process.poll() is None
                time.sleep(0.01)
            process.terminate()
            observed, complaints = process.communicate(timeout=300)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    (loaded,) = [line for line in observed.splitlines() if line.startswith("batch ")]
    assert loaded.startswith("batch 0: 2 segments loaded")
    assert len(content(tables)["requests"]) == 5


@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [pytest.param(STREAM_DRIVER, id="stream"), pytest.param(BATCH_DRIVER, id="batch")])
def test_a_driver_killed_in_the_middle_leaves_tables_that_the_next_one_finishes(tmp_path: Path, program: str) -> None:
    journal = tmp_path / "journal"
    hours(journal, 0)
    hours(journal, 1)
    killed(journal, tmp_path, ["moved"], program)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("program", "seed", "steps"),
    [
        # before anything is published; in the middle of commits; near the end
        pytest.param(
            STREAM_DRIVER,
            3,
            ("before the intent", "moved /requests", "moved /topology", "moved /_polydomo", "noted"),
            id="stream",
        ),
        pytest.param(
            BATCH_DRIVER, 4, ("before the intent", "after the intent", "moved /services", "noted", "forgot"), id="batch"
        ),
    ],
)
def test_a_driver_killed_again_and_again_while_the_journal_grows(
    tmp_path: Path, program: str, seed: int, steps: tuple[str, ...]
) -> None:
    source = tmp_path / "source"
    generate(source, 20_000, seed=seed, breaches=2, segment_rows=3_000)
    killed(source, tmp_path, steps, program, grow=True)


def killed(source: Path, scratch: Path, steps: Sequence[str], program: str, grow: bool = False) -> None:
    """After these kills and one complete run, the tables equal those of a batch run."""
    journal, tables = scratch / "growing", scratch / "tables"
    # in the order in which brokers that work at the same time would have written them
    files = sorted(source.glob("**/kind=*/date=*/hour=*/*.parquet"), key=lambda path: path.name.split("-")[1])
    assert files

    def copied(number: int) -> None:
        for path in files[:number]:
            target = journal.joinpath(*path.parts[-4:])
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(path, target)

    for i, step in enumerate(steps):
        copied(len(files) * (i + 1) // (len(steps) + 1) if grow else len(files))
        driver(program, journal, tables, step)
        for name in TABLES:  # a file is whole or not there
            if (tables / name).is_dir():
                ds.dataset(tables / name, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    copied(len(files))
    driver(program, journal, tables)
    assert not list((tables / "_polydomo").glob("staging/*")) and not (tables / "_polydomo" / "intent.json").exists()
    load([str(journal)], str(scratch / "whole"))
    streamed, whole = content(tables), content(scratch / "whole")
    for name in TABLES:
        assert streamed[name] == whole[name], name
    assert streamed["requests"] and streamed["services"] and streamed["audit_rules"]
