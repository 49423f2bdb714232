"""Old versions are read like the current one; pyarrow, DuckDB and Spark count the same; unreadable files are reported in one line."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from polydomo.journal import schema
from polydomo.journal.files import runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.reading.reader import Reader, conform, moment
from polydomo.journal.schema import KINDS, MESSAGES, REQUESTS
from tests.journal.files.test_writer import AGES, started
from tests.journal.stage import live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a broker, in several segments."""
    directory = tmp_path_factory.mktemp("journal")
    for seed in (1, 2):
        world, kept = started(directory, JournalBounds(keep_age=AGES, roll_rows=200))
        for part in range(3):
            live(world, 10 * seed + part, 150)
            world.broker.draining = False
            kept.tick()
        kept.stop()
    return directory


def counts(journal: Path) -> dict[str, int]:
    return {kind: len(Reader([journal]).rows(kind)) for kind in KINDS}


def test_pyarrow_reads_the_same(journal: Path) -> None:
    assert len(runs.segments(journal)) >= 6
    for kind, count in counts(journal).items():
        assert ds.dataset(journal / f"kind={kind}", partitioning="hive").count_rows() == count > 50


def test_duckdb_reads_the_same(journal: Path) -> None:
    for kind, count in counts(journal).items():
        files = f"{journal}/kind={kind}/**/*.parquet"
        with duckdb.connect() as db:
            found = db.execute(f"SELECT count(*), count(DISTINCT (run, seq)) FROM read_parquet('{files}')").fetchall()
            assert found == [(count, count)]
            described = db.execute(
                f"DESCRIBE SELECT * FROM read_parquet('{files}', hive_partitioning=false)"
            ).fetchall()
            assert [row[0] for row in described] == schema.names(kind)


@pytest.mark.timeout(900)  # a session alone takes half a minute where the machine is busy
@pytest.mark.xdist_group("spark")  # one process has the session
def test_spark_reads_the_same(spark: "SparkSession", journal: Path) -> None:
    for kind, count in counts(journal).items():
        frame = spark.read.schema(schema.ddl(kind, partitions=True)).parquet(str(journal / f"kind={kind}"))
        assert frame.count() == count
        assert frame.select("run", "seq").distinct().count() == count
        total = sum(row["seq"] for row in Reader([journal]).rows(kind))
        assert frame.agg({"seq": "sum"}).collect()[0][0] == total


def test_the_columns_are_those_of_the_schema(journal: Path) -> None:
    for segment in runs.segments(journal):
        file = pq.ParquetFile(segment.path)
        assert file.schema_arrow.remove_metadata() == schema.arrow(segment.kind).remove_metadata()
        assert file.metadata.metadata[b"polydomo.version"] == str(schema.VERSION).encode()
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_rows_are_found_by_time_run_and_condition(journal: Path) -> None:
    reader = Reader([journal])
    rows = reader.rows(MESSAGES)
    middle = rows[len(rows) // 2]["time"]
    since = reader.rows(MESSAGES, since=middle)
    assert since == [row for row in rows if row["time"] >= middle] and 0 < len(since) < len(rows)
    assert reader.rows(MESSAGES, until=moment(0)) == []
    run = rows[0]["run"]
    assert reader.rows(MESSAGES, run=run) == [row for row in rows if row["run"] == run]
    final = reader.rows(MESSAGES, where=pc.field("event") == schema.FINAL)
    assert {row["event"] for row in final} == {schema.FINAL}


def test_the_rows_about_a_request(journal: Path) -> None:
    reader = Reader([journal])
    wanted = reader.rows(REQUESTS)[5]
    found = reader.about(MESSAGES, wanted["run"], [wanted["number"]], wanted["accepted"])
    assert {row["number"] for row in found} == {wanted["number"]} and found[0]["event"] == schema.ACCEPTED
    assert reader.about(REQUESTS, wanted["run"], [wanted["number"]]) == [wanted]
    assert reader.about(REQUESTS, wanted["run"], [10**9]) == []


def test_torn_odd_and_hidden_files(journal: Path, tmp_path: Path) -> None:
    segment = runs.segments(journal)[0]
    place = tmp_path.joinpath(*segment.path.parts[-4:])
    place.parent.mkdir(parents=True)
    content = segment.path.read_bytes()
    place.write_bytes(content[: len(content) // 2])
    place.with_name("." + place.name).write_bytes(b"half of the next")
    place.with_name("notes.txt").write_text("not a segment")
    reader = Reader([tmp_path])
    assert reader.rows(segment.kind) == []
    (problem,) = reader.problems
    assert problem.startswith(f"{place}: cannot be read: ") and "\n" not in problem


def test_an_empty_directory_has_no_rows(tmp_path: Path) -> None:
    assert Reader([tmp_path]).rows(MESSAGES) == [] and Reader([tmp_path]).last_run() is None


def older(kind: str, without: int) -> pa.Table:
    """A table as an earlier version may have written it: without the last columns."""
    names = schema.names(kind)[:-without]
    rows = [schema.row(kind, run=1, seq=1, time=datetime(2026, 1, 1, tzinfo=UTC))]
    return pa.Table.from_pylist(rows, schema.arrow(kind)).select(names)


@pytest.mark.parametrize("kind", KINDS)
def test_an_earlier_version_has_nothing_in_later_columns(kind: str) -> None:
    table = conform(older(kind, 3), kind)
    assert table.schema.names == schema.names(kind)
    (row,) = table.to_pylist()
    for column in schema.COLUMNS[kind][-3:]:
        assert row[column.name] == column.nothing


def test_a_newer_version_is_read_as_far_as_known_and_reported(journal: Path, tmp_path: Path) -> None:
    place = tmp_path / "kind=messages" / "date=2026-01-01" / "hour=00" / runs.segment_name(1, 1, 1)
    place.parent.mkdir(parents=True)
    table = older(MESSAGES, 1).append_column("colour", pa.array(["red"]))
    with pq.ParquetWriter(place, table.schema) as writer:
        writer.add_key_value_metadata({"polydomo.version": str(schema.VERSION + 1)})
        writer.write_table(table)
    reader = Reader([tmp_path])
    (row,) = reader.rows(MESSAGES)
    assert "colour" not in row and row["seq"] == 1
    assert "newer than this program's" in reader.problems[0]


# --- the schema's own rules ---------------------------------------------------------------------------------------------------

# Version 1 as it was first written. A change here is a change of what is on people's disks: add versions, do not edit them.
FIRST: dict[str, str] = {
    MESSAGES: (
        "time broker run seq event peer protocol dialect connection client service number attempt hop worker released size queue workers "
        "credit auto silence_us allowed_us outcome reason topic body body_cut level covers_run covers_first covers_last"
    ),
    REQUESTS: (
        "time broker run seq request number service last_service client client_peer client_protocol worker worker_peer worker_protocol "
        "accepted first_dispatched dispatched first_partial wait_us run_us total_us wait_bucket run_bucket total_bucket attempts "
        "max_attempts dispatches hops partials request_bytes reply_bytes outcome reason trace parent"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_only_added_at_the_end(kind: str) -> None:
    columns = schema.COLUMNS[kind]
    assert [column.name for column in columns if column.since == 1] == FIRST[kind].split()
    assert [column.since for column in columns] == sorted(column.since for column in columns)
    assert max(column.since for column in columns) <= schema.VERSION
    assert len({column.name for column in columns}) == len(columns)
    assert all(column.says for column in columns)


def test_the_ddl_names_every_column() -> None:
    for kind in KINDS:
        words: list[Any] = [part.split() for part in schema.ddl(kind, partitions=True).split(", ")]
        assert [name for name, _ in words] == [*schema.names(kind), "date", "hour"]
