"""Runs over journals on disk: what is new is taken in, what is late corrects what it touches, what cannot be read is named."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polydomo.journal import schema
from tests.pipeline.journals import Row, at, message, record, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from polydomo.pipeline import batch, segments
from polydomo.pipeline.tables import TABLES

HOUR = 3600.0
# Two hours; a request over a bridge whose far part ends in the first of them, and the request itself in the second.
ROOT = record(4, 2, HOUR - 1, HOUR - 0.9, HOUR + 1, worker_protocol="bridge")
FAR = record(2, 1, HOUR - 0.8, HOUR - 0.7, HOUR - 0.5, run=2, parent=ROOT["request"])
EARLY: list[Row] = [
    message(1, schema.STARTED, 0.0, level="requests"),
    record(2, 1, 1.0, 1.1, 1.5),
    message(1, schema.STARTED, 0.0, run=2, level="requests"),
    FAR,
]
LATER: list[Row] = [message(3, schema.LOST, HOUR + 0.5, worker=1, service="echo"), ROOT]
LATE: list[Row] = [record(5, 9, 10.0, 10.1, 10.2, attempts=9, max_attempts=3)]  # in the first hour, and a breach


def state(tables: Path, table: str) -> list[tuple[Any, ...]]:
    import pyarrow.dataset as ds

    if not (tables / table).exists():
        return []
    found = ds.dataset(tables / table, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((tuple(row[name] for name in TABLES[table].names) for row in found), key=repr)


def files(tables: Path) -> dict[str, int]:
    return {str(path.relative_to(tables)): path.stat().st_mtime_ns for path in tables.rglob("*.parquet")}


def test_bit_by_bit_and_all_at_once_give_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    journal, bits, whole = tmp_path / "journal", tmp_path / "bits", tmp_path / "whole"
    write(journal, EARLY)
    first = batch.run(spark, [str(journal)], str(bits))
    assert (first.segments, first.units, first.problems) == (4, ["2026-01-31/12"], [])
    assert first.breaches == {} and first.runs == 2
    assert "no rule was broken in 2 runs" in first.verdict() and "one-holder" in first.verdict()

    before = files(bits)
    again = batch.run(spark, [str(journal), str(journal)], str(bits))
    assert (again.segments, again.units) == (0, [])
    assert files(bits) == before

    write(journal, LATER)
    write(journal, LATE)
    torn = journal / "kind=requests" / "date=2026-01-31" / "hour=13" / "00000001-000000000009-000000000009.parquet"
    torn.write_bytes(b"PAR1 and no more")
    (torn.parent / "notes.txt").write_text("what is this")
    second = batch.run(spark, [str(journal)], str(bits))
    assert second.units == ["2026-01-31/12", "2026-01-31/13"]
    assert second.breaches == {"attempts-bounded": 1}
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in second.problems] == ["notes.txt", torn.name]
    assert all("left out" in line for line in second.problems)

    torn.unlink()
    batch.run(spark, [str(journal)], str(whole))
    for table in TABLES:
        assert state(bits, table) == state(whole, table), table
    requests = [dict(zip(TABLES["requests"].names, row, strict=True)) for row in state(whole, "requests")]
    assert {(row["number"], row["bridged"], row["hour"]) for row in requests} == {(1, 0, 12), (2, 1, 13), (9, 0, 12)}


def test_an_empty_directory_and_none(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    summary = batch.run(spark, [str(tmp_path / "journal")], str(tmp_path / "tables"))
    assert (summary.segments, summary.verdict()) == (0, "Audit: there is nothing to check yet.")
    with pytest.raises(segments.NoJournal, match="no such directory"):
        batch.run(spark, [str(tmp_path / "nowhere")], str(tmp_path / "tables"))


def test_the_same_segment_in_two_places_is_one(spark: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path / "a", EARLY)
    write(tmp_path / "copy", EARLY)
    assert len(segments.find(spark, [str(tmp_path / "a"), str(tmp_path / "copy")]).segments) == 4


def test_through_sparks_own_eyes(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done for hdfs:// and s3a://, on files of this machine."""
    paths = write(tmp_path, EARLY)
    paths[0].write_bytes(b"PAR1 and no more")
    monkeypatch.setattr(segments, "has_scheme", lambda path: True)
    found = segments.find(spark, [tmp_path.as_uri()])
    assert sorted(Path(segment.path).name for segment in found.segments) == sorted(path.name for path in paths)
    problems: list[str] = []
    assert len(segments.whole(spark, found.segments, problems)) == len(paths) - 1
    assert len(problems) == 1 and "left out" in problems[0]


def test_a_segment_of_an_earlier_version(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that came later is nothing in the rows that lack it."""
    later = tuple(
        schema.Column(c.name, c.type, 2, c.says) if c.name in ("trace", "parent", "partials") else c
        for c in schema.COLUMNS[schema.REQUESTS]
    )
    monkeypatch.setitem(schema.COLUMNS, schema.REQUESTS, later)
    write(tmp_path, [record(1, 1, 0.0, 0.1, 0.2)], drop=("trace", "parent", "partials"))
    write(tmp_path, [record(2, 2, 0.0, 0.1, 0.2, partials=3)])
    found = segments.find(spark, [str(tmp_path)]).segments
    rows = segments.read(spark, schema.REQUESTS, found).select("number", "trace", "parent", "partials").collect()
    assert sorted(map(tuple, rows)) == [(1, "", "", 0), (2, "", "", 3)]


def test_an_odd_journal_is_told_of_in_a_line_each(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment of an earlier version, a torn one, and a hole: all of the rest is in the tables."""
    journal = tmp_path / "journal"
    write(
        journal,
        [message(1, schema.STARTED, 0.0, level="requests"), record(2, 1, 0.0, 0.1, 0.2)],
        drop=("trace", "parent"),
    )
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    write(journal, [record(3, 2, 1.0, 1.1, 1.2)])[0].unlink()
    torn = write(journal, [record(4, 3, 2.0, 2.1, 2.2)])[0]
    torn.write_bytes(torn.read_bytes()[:-20])
    write(journal, [record(5, 4, 3.0, 3.1, 3.2)])
    summary = batch.run(spark, [str(journal)], str(tmp_path / "tables"))
    assert summary.segments == 3
    (older, unread) = summary.problems
    assert (
        older
        == f"some segments are of version {schema.VERSION - 1} of the schema: columns that came later are nothing in their rows"
    )
    assert unread.startswith(f"{torn}: left out: cannot be read: ") and "\n" not in unread
    assert summary.verdict().startswith("Audit: 1 breach of the rules in 1 run of brokers: no-hole 1.")
    (hole,) = [dict(zip(TABLES["audit"].names, row, strict=True)) for row in state(tmp_path / "tables", "audit")]
    assert (hole["rule"], hole["proof"]) == ("no-hole", [2, 5])  # the rows on both sides
    kept = [dict(zip(TABLES["requests"].names, row, strict=True)) for row in state(tmp_path / "tables", "requests")]
    assert {row["number"] for row in kept} == {1, 4}


def test_since_and_until(spark: "SparkSession", tmp_path: Path) -> None:
    write(tmp_path, [record(n, n, n * 600.0, n * 600.0 + 1, n * 600.0 + 2) for n in range(1, 20)])
    found = segments.find(spark, [str(tmp_path)], at(3700), at(7000))
    assert {segment.unit for segment in found.segments} == {"2026-01-31/13"}
    rows = segments.read(spark, schema.REQUESTS, found.segments, at(3700), at(7000)).collect()
    assert sorted(row.number for row in rows) == [7, 8, 9, 10, 11]


def merge_all(journal: Path) -> int:
    from polydomo.journal import merge
    from polydomo.journal.segments import segments as there

    groups = merge.plan(merge.batches((one, one.path.stat().st_size) for one in there(journal)))
    for group in groups:
        merge.merge(group)
    return len(groups)


def test_merged_segments_are_not_new_and_what_is_new_in_them_is_taken_in(spark: "SparkSession", tmp_path: Path) -> None:
    journal, bits, whole = tmp_path / "journal", tmp_path / "bits", tmp_path / "whole"
    pieces: list[list[Row]] = [
        [message(1, schema.STARTED, 0.0, level="requests")],
        [record(2, 1, 1.0, 1.1, 1.5), message(3, schema.LOST, 2.0, worker=1, service="echo")],
        [record(4, 2, 3.0, 3.1, 3.5)],
        [message(5, schema.STOPPED, 9.0)],
    ]
    for piece in pieces[:2]:
        write(journal, piece)
    first = batch.run(spark, [str(journal)], str(bits))
    assert first.segments == 3
    before = files(bits)
    assert merge_all(journal) == 1
    again = batch.run(spark, [str(journal)], str(bits))
    assert (again.segments, again.units, again.problems, files(bits)) == (0, [], [], before)

    for piece in pieces[2:]:
        write(journal, piece)
    assert merge_all(journal) == 1  # segments that are in the tables, and some that are not
    last = batch.run(spark, [str(journal)], str(bits))
    assert (last.segments, last.units, last.problems) == (2, ["2026-01-31/12"], [])
    batch.run(spark, [str(journal)], str(whole))
    for table in TABLES:
        assert state(bits, table) == state(whole, table), table
    assert len(state(whole, "requests")) == 2
