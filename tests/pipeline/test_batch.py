"""Batch runs over journals on disk: new segments are loaded, late ones correct their hours, unreadable ones are reported."""

from pathlib import Path
from typing import Any

import pytest

from polydomo.journal import schema
from polydomo.model.outcomes import CANCELLED
from tests.pipeline.comparing import comparable, table_rows
from tests.pipeline.journals import Row, at, message, record, write
from tests.pipeline.shared import load, shared

pytest.importorskip("pyspark")
from polydomo.pipeline import batch, segments, session
from polydomo.pipeline.batch import Options
from polydomo.pipeline.tables import TABLES

HOUR = 3600.0
MOST_STAGES = 40  # of a small batch with traffic of all kinds, flows included
# Two hours; a request over a bridge whose far part ends in the first of them, and the request itself in the second.
ROOT = record(4, 2, HOUR - 1, HOUR - 0.9, HOUR + 1, worker_protocol="bridge")
FAR = record(2, 1, HOUR - 0.8, HOUR - 0.7, HOUR - 0.5, run=2, parent=ROOT["request"])
# Another one that its client cancelled while it was in the queue of the other broker.
GIVEN_UP = record(5, 3, HOUR - 1, HOUR - 0.9, HOUR + 1, worker_protocol="bridge", outcome=CANCELLED)
QUEUED = record(3, 4, HOUR - 0.8, None, HOUR - 0.5, run=2, outcome=CANCELLED, parent=GIVEN_UP["request"])
EARLY: list[Row] = [
    message(1, schema.STARTED, 0.0, level="requests"),
    record(2, 1, 1.0, 1.1, 1.5),
    message(1, schema.STARTED, 0.0, run=2, level="requests"),
    FAR,
    QUEUED,
]
LATER: list[Row] = [message(3, schema.LOST, HOUR + 0.5, worker=1, service="echo"), ROOT, GIVEN_UP]
LATE: list[Row] = [record(6, 9, 10.0, 10.1, 10.2, attempts=9, max_attempts=3)]  # in the first hour, and a breach


def state(tables: Path, table: str) -> list[tuple[Any, ...]]:
    return comparable(table, table_rows(tables, table))


def named(tables: Path, table: str) -> list[dict[str, Any]]:
    return table_rows(tables, table)


def stages() -> int:
    """The number of stages that the session has run."""
    context: Any = shared().sparkContext
    number: int = context._jsc.sc().dagScheduler().nextStageId()
    return number


def descriptions() -> list[str]:
    """What the session's SQL tab calls its queries, the oldest first."""
    spark: Any = shared()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [str(found.apply(n).description()) for n in range(found.size())]


def files(tables: Path) -> dict[str, int]:
    return {str(path.relative_to(tables)): path.stat().st_mtime_ns for path in tables.rglob("*.parquet")}


def test_incremental_and_full_runs_give_the_same_tables(tmp_path: Path) -> None:
    journal, bits, whole = tmp_path / "journal", tmp_path / "bits", tmp_path / "whole"
    write(journal, EARLY)
    first = load([str(journal)], str(bits))
    assert (first.segments, first.units, first.problems) == (4, ["2026-01-31/12"], [])
    assert first.breaches == {} and first.runs == 2
    assert "no rule was broken in 2 broker runs" in first.verdict() and "could not be checked" in first.verdict()
    assert "one-holder" in first.unchecked

    before = files(bits)
    again = load([str(journal), str(journal)], str(bits))
    assert (again.segments, again.units) == (0, [])
    assert files(bits) == before

    write(journal, LATER)
    write(journal, LATE)
    torn = journal / "kind=requests" / "date=2026-01-31" / "hour=13" / "00000001-000000000009-000000000009.parquet"
    torn.write_bytes(b"PAR1 and no more")
    (torn.parent / "notes.txt").write_text("what is this")
    second = load([str(journal)], str(bits))
    assert second.units == ["2026-01-31/12", "2026-01-31/13"]
    assert second.breaches == {"attempts-bounded": 1}
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in second.problems] == ["notes.txt", torn.name]
    assert all(": skipped: " in line for line in second.problems)

    torn.unlink()
    load([str(journal)], str(whole))
    for table in TABLES:
        assert state(bits, table) == state(whole, table), table
    requests = named(whole, "requests")
    assert {(row["number"], row["bridged"], row["far_broker"], row["hour"]) for row in requests} == {
        (1, 0, "", 12),
        (2, 1, "b2", 13),
        (3, 1, "b2", 13),
        (9, 0, "", 12),
    }
    (far,) = [row for row in named(whole, "services") if (row["broker"], row["seconds"]) == ("b2", 3600)]
    assert (far["requests"], far["wait_us"]) == (2, 400_000)


def test_an_empty_directory_and_none(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    summary = load([str(tmp_path / "journal")], str(tmp_path / "tables"))
    assert (summary.segments, summary.verdict()) == (0, "Audit: there is nothing to check yet.")
    with pytest.raises(segments.NoJournal, match="no such directory"):
        load([str(tmp_path / "nowhere")], str(tmp_path / "tables"))


def test_the_same_segment_in_two_places_is_one(tmp_path: Path) -> None:
    write(tmp_path / "a", EARLY)
    write(tmp_path / "copy", EARLY)
    assert len(segments.find([str(tmp_path / "a"), str(tmp_path / "copy")]).segments) == 4


def merge_all(journal: Path) -> int:
    from polydomo.journal.files import merge
    from polydomo.journal.files.segments import segments as there

    groups = merge.plan(merge.batches((one, one.path.stat().st_size) for one in there(journal)))
    for group in groups:
        merge.merge(group)
    return len(groups)


def test_merged_segments_are_not_new_and_what_is_new_in_them_is_taken_in(tmp_path: Path) -> None:
    journal, bits, whole = tmp_path / "journal", tmp_path / "bits", tmp_path / "whole"
    pieces: list[list[Row]] = [
        [message(1, schema.STARTED, 0.0, level="requests")],
        [record(2, 1, 1.0, 1.1, 1.5), message(3, schema.LOST, 2.0, worker=1, service="echo")],
        [record(4, 2, 3.0, 3.1, 3.5)],
        [message(5, schema.STOPPED, 9.0)],
    ]
    for piece in pieces[:2]:
        write(journal, piece)
    first = load([str(journal)], str(bits))
    assert first.segments == 3
    before = files(bits)
    assert merge_all(journal) == 1
    again = load([str(journal)], str(bits))
    assert (again.segments, again.units, again.problems, files(bits)) == (0, [], [], before)

    for piece in pieces[2:]:
        write(journal, piece)
    assert merge_all(journal) == 1  # segments that are in the tables, and some that are not
    last = load([str(journal)], str(bits))
    assert (last.segments, last.units, last.problems) == (2, ["2026-01-31/12"], [])
    load([str(journal)], str(whole))
    for table in TABLES:
        assert state(bits, table) == state(whole, table), table
    assert len(state(whole, "requests")) == 2


def test_through_arrows_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for s3:// and hdfs://, on local files."""
    from polydomo.pipeline import storage

    write(tmp_path / "journal", EARLY)
    load([str(tmp_path / "journal")], str(tmp_path / "here"))
    for module in (storage, segments):
        monkeypatch.setattr(module, "has_scheme", lambda path: path.startswith("file://"))
    from polydomo.pipeline import commit

    monkeypatch.setattr(commit, "has_scheme", lambda path: path.startswith("file://"))
    there = (tmp_path / "there").as_uri()
    summary = load([(tmp_path / "journal").as_uri()], there)
    assert (summary.segments, summary.problems) == (4, [])
    assert load([(tmp_path / "journal").as_uri()], there).segments == 0
    for table in TABLES:
        assert state(tmp_path / "there", table) == state(tmp_path / "here", table), table


def test_an_odd_journal_is_reported_in_a_line_each(tmp_path: Path) -> None:
    """A segment of an earlier version, a torn segment and a hole: the tables have all other rows."""
    journal = tmp_path / "journal"
    write(
        journal,
        [message(1, schema.STARTED, 0.0, level="requests"), record(2, 1, 0.0, 0.1, 0.2)],
        drop=("principal", "worker_principal", "allowed"),
    )
    write(journal, [record(3, 2, 1.0, 1.1, 1.2)])[0].unlink()
    torn = write(journal, [record(4, 3, 2.0, 2.1, 2.2)])[0]
    torn.write_bytes(torn.read_bytes()[:-20])
    write(journal, [record(5, 4, 3.0, 3.1, 3.2, principal="ada")])
    summary = load([str(journal)], str(tmp_path / "tables"))
    assert summary.segments == 3
    (unread,) = summary.problems
    assert unread.startswith(f"{torn}: skipped: cannot be read: ") and "\n" not in unread
    assert summary.verdict().startswith("Audit: 1 breach of the rules in 1 broker run: no-hole 1.")
    (hole,) = named(tmp_path / "tables", "audit")
    assert (hole["rule"], hole["proof"]) == ("no-hole", [2, 5])  # the rows on both sides
    assert {(row["number"], row["principal"]) for row in named(tmp_path / "tables", "requests")} == {
        (1, ""),
        (4, "ada"),
    }


def test_since_and_until(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write(journal, [record(n, n, n * 600.0, n * 600.0 + 1, n * 600.0 + 2) for n in range(1, 20)])
    found = segments.find([str(journal)], at(3700), at(7000))
    assert {segment.unit for segment in found.segments} == {"2026-01-31/13"}
    load([str(journal)], str(tmp_path / "tables"), Options(at(3700), at(7000)))
    assert {row["number"] for row in named(tmp_path / "tables", "requests")} == {7, 8, 9, 10, 11}
    load([str(journal)], str(tmp_path / "tables"))
    assert {row["number"] for row in named(tmp_path / "tables", "requests")} == set(range(1, 20))


def test_the_sql_tab_names_the_tables(tmp_path: Path) -> None:
    from bench.generate_journal import generate

    facts = generate(tmp_path / "journal", 600, seed=4, breaches=1, seconds=600)
    before = len(descriptions())
    load([str(tmp_path / "journal" / name) for name in facts["brokers"]], str(tmp_path / "tables"))
    found = descriptions()[before:]
    tables = {"requests", "services", "workers", "capacity", "hops", "topology", "flows", "flow_nodes", "audit"}
    assert {f"polydomo: {table}" for table in tables} <= set(found)
    assert not [one for one in found if not one.startswith("polydomo: ")]
    assert shared().sparkContext.getLocalProperty("spark.job.description") is None


def test_divided_batches_and_combined_segments_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.generate_journal import generate

    facts = generate(tmp_path / "journal", 3000, seed=3, breaches=1, seconds=600)
    paths = [str(tmp_path / "journal" / name) for name in facts["brokers"]]
    before = stages()
    load(paths, str(tmp_path / "whole"))
    few = stages() - before
    assert few <= MOST_STAGES
    with session.LazySpark.of(shared()) as resident:
        resident.combined.few = 1
        batch.run(paths, str(tmp_path / "combined"), session=resident)
        assert few < stages() - before - few <= MOST_STAGES
        kept = {piece.path for piece in resident.combined.pieces}
        batch.run(paths, str(tmp_path / "again"), session=resident)
        assert kept == {piece.path for piece in resident.combined.pieces}  # a session writes them once
    monkeypatch.setattr(batch, "most_gathered", lambda spark: -1)
    load(paths, str(tmp_path / "divided"))
    for table in TABLES:
        for other in ("combined", "again", "divided"):
            assert state(tmp_path / other, table) == state(tmp_path / "whole", table), (other, table)
