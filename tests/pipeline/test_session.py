"""Sessions: what a killed process left of the class archive is removed; files are written without programs; views are made once."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.pipeline import batch, java, session
from polydomo.pipeline.sql import sql, views_kept
from tests.pipeline.comparing import content
from tests.pipeline.journals import record, write
from tests.pipeline.shared import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archives_that_nothing_will_use_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(java, "own_directory", lambda: tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = tmp_path / f"spark-0123456789ab.{ended.pid}"
    writing = tmp_path / f"spark-0123456789ab.{os.getpid()}"
    old, recent = tmp_path / "spark-00000000000a.jsa", tmp_path / "spark-00000000000b.jsa"
    own = session.ClassArchive("/java").path
    for file in (killed, writing, old, recent, own):
        file.write_bytes(b"classes")
    for file in (old, own):
        os.utime(file, (0, 0))
    archive = session.ClassArchive("/java")
    assert sorted(tmp_path.iterdir()) == sorted([writing, recent, own])
    archive.keep()
    assert own.stat().st_mtime > 0, "an archive in use must not look old"


def test_a_local_session_writes_files_without_checksums_and_programs(spark: "SparkSession", tmp_path: Path) -> None:
    def programs() -> list[str]:
        """CPU ticks of the programs that the JVM has started and that have ended."""
        process: Any = spark._jvm
        text = Path(f"/proc/{process.java.lang.ProcessHandle.current().pid()}/stat").read_text()
        return text.rpartition(")")[2].split()[13:15]

    made = tmp_path / "made"
    spark.range(1).write.parquet(str(tmp_path / "first"))  # Hadoop starts programs once, to learn about the machine
    before = programs()
    spark.range(50).selectExpr("id", "id AS place").write.partitionBy("place").parquet(str(made))
    assert programs() == before, "Hadoop started chmod for each file and directory"
    files = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) == 50 and all(path.suffix == ".parquet" for path in files), files
    assert spark.read.parquet(str(made)).count() == 50


def test_the_settings_of_a_session_of_the_user_change_no_row(spark: "SparkSession", tmp_path: Path) -> None:
    """As a script of spark-submit builds it: other times, other files, and `_SUCCESS` in each directory."""
    write(tmp_path / "journal", [record(1, 1, 0, 1, 2), record(2, 2, 3600, 3601, 3602)])
    settings = {
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    }
    theirs = spark.newSession()
    for name, value in settings.items():
        theirs.conf.set(name, value)
    theirs.range(1).write.parquet(str(tmp_path / "first"))
    assert (tmp_path / "first" / "_SUCCESS").is_file()
    summary = batch.run([str(tmp_path / "journal")], str(tmp_path / "theirs"), session=theirs)
    load([str(tmp_path / "journal")], str(tmp_path / "ours"))
    assert not summary.problems and summary.rows["requests"] == 2
    assert content(tmp_path / "theirs") == content(tmp_path / "ours")
    assert not list((tmp_path / "theirs").rglob("_SUCCESS"))
    assert {name: theirs.conf.get(name) for name in settings} == settings


def test_a_frame_is_one_view_for_all_queries_of_a_batch(spark: "SparkSession") -> None:
    def views() -> int:
        return sum(table.isTemporary for table in spark.catalog.listTables())

    before, frame = views(), spark.range(3)
    with views_kept(spark):
        counted = sql("SELECT count(*) AS n, '{{' AS brace FROM {frame}", frame=frame)
        made = sql(
            "SELECT sum(id) + n AS total, brace FROM {frame}, {counted} GROUP BY n, brace", frame=frame, counted=counted
        )
        assert views() == before + 2
    assert views() == before
    assert [tuple(row) for row in made.collect()] == [(6, "{")], "a query must outlive its views"
