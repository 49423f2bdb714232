"""The journal as a Spark data source: which segments it opens, and which rows it returns."""

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual

import polydomo
from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.journal.files import merge
from polydomo.journal.files.segments import segments
from polydomo.pipeline.source import Group, JournalStreamReader, PushingReader, RowFilter, read
from pyspark_polydomo import DefaultSource, journal_of
from tests.cli.shell import PATIENCE, Broker
from tests.pipeline import journals
from tests.pipeline.journals import NOON, at, message, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two runs; the first with an hour of echo, then one of resize, in which a request failed; the second is of an earlier version."""
    directory = tmp_path / "journal"
    failed: dict[str, Any] = {"service": "resize", "outcome": "failed", "reason": "no"}
    journals.write(
        directory,
        [message(1, schema.STARTED, 0, level="requests"), *(record(2 + n, n, n, n + 0.5, n + 1) for n in range(10))],
    )
    journals.write(
        directory,
        [
            record(20 + n, n, 3600 + n, None, 3601 + n, **(failed if n == 5 else {"service": "resize"}))
            for n in range(10)
        ],
    )
    journals.write(
        directory,
        [record(1 + n, n, n, n + 0.5, n + 1, run=2, service="ocr") for n in range(5)],
        drop=("trace", "parent"),
    )
    return directory


def reader(directory: Path, **options: str) -> Any:
    return DefaultSource({"path": str(directory), **options}).reader(None)


def opened(found: Any) -> list[str]:
    """The segments of which any row is read."""
    made = [
        part
        for group in found.partitions()
        for part in group.parts
        if list(read(Group((part,)), found.wanted, RowFilter()))
    ]
    return sorted(Path(part.path).parent.name + "/" + Path(part.path).name[:8] for part in made)


def rows(found: Any) -> list[dict[str, Any]]:
    return [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]


A, B, C = "hour=12/00000001", "hour=12/00000002", "hour=13/00000001"


def test_all_versions_are_rows_of_todays(journal: Path) -> None:
    found = rows(reader(journal))
    assert len(found) == 25
    assert {tuple(row) for row in found} == {tuple(schema.names(schema.REQUESTS))}
    assert {row["trace"] for row in found} == {""}
    assert [row["event"] for row in rows(reader(journal, kind="messages"))] == ["started"]


@pytest.mark.parametrize(
    ("options", "segments", "number"),
    [
        ({}, [A, B, C], 25),
        ({"since": "2026-01-31T13:00"}, [C], 10),
        ({"until": at(2).isoformat()}, [A, B], 4),
        ({"since": at(8).isoformat(), "until": at(9).isoformat()}, [A], 2),
        ({"service": "ocr"}, [B], 5),
        ({"service": "resize", "outcome": "failed"}, [C], 1),
        ({"outcome": "failed"}, [C], 1),
        ({"outcome": "timeout"}, [], 0),
        ({"service": "nobody"}, [], 0),
    ],
)
def test_only_segments_that_may_have_it_are_opened(
    journal: Path, options: dict[str, str], segments: list[str], number: int
) -> None:
    found = reader(journal, **options)
    assert opened(found) == segments
    assert len(rows(found)) == number


def test_query_conditions_skip_segments_and_spark_filters_rows(journal: Path) -> None:
    found = reader(journal, pushdown="true")
    assert isinstance(found, PushingReader) and not isinstance(reader(journal), PushingReader)
    filters = [
        IsNotNull(("service",)),
        EqualTo(("service",), "ocr"),
        LessThanOrEqual(("time",), NOON + timedelta(seconds=1)),
    ]
    assert list(found.pushFilters(filters)) == filters
    assert opened(found) == [B]
    assert len(rows(found)) == 5
    late = reader(journal, pushdown="true")
    list(late.pushFilters([GreaterThan(("time",), at(1800)), In(("outcome",), ("ok", "failed"))]))
    assert opened(late) == [C]


def test_invalid_options_are_reported(journal: Path) -> None:
    for options, words in [
        ({"kind": "x"}, "option kind"),
        ({"since": "soon"}, "option since"),
        ({"path": ""}, "name a journal"),
    ]:
        with pytest.raises(SettingError, match=words):
            DefaultSource({"path": str(journal), **options}).reader(None).partitions()


def test_a_damaged_segment_is_skipped_with_a_warning(journal: Path) -> None:
    whole = next(journal.glob("kind=requests/date=*/hour=13/*.parquet"))
    os.truncate(whole, whole.stat().st_size // 2)
    with pytest.warns(UserWarning, match="skipped: cannot be read"):
        assert opened(reader(journal)) == [A, B]


def test_a_stream_reads_each_segment_once_and_the_same_again(journal: Path) -> None:
    stream = DefaultSource({"path": str(journal)}).streamReader(None)
    assert isinstance(stream, JournalStreamReader)
    first = stream.latestOffset({}, None)
    (group,) = stream.partitions({}, first)
    assert len(group.parts) == 3
    assert stream.latestOffset(first, None) == first and stream.partitions(first, first) == []
    journals.write(journal, [record(40, 11, 7200, None, 7201)])
    second = stream.latestOffset(first, None)
    (group,) = stream.partitions(first, second)
    (part,) = group.parts
    assert "hour=14" in part.path and len(list(read(group, stream.wanted))) == 1
    assert stream.partitions(first, second) == [group]  # a replay
    for path in journal.glob("kind=requests/date=*/hour=12/*"):
        path.unlink()  # retention
    assert stream.latestOffset(second, None) == second
    journals.write(journal, [record(50, 12, 7300, None, 7301)])
    assert set(stream.latestOffset(second, None)) == {"00000001"}  # the run that is gone is forgotten


def test_a_broker_flushes_its_journal_and_returns_its_directory(tmp_path: Path) -> None:
    with Broker(tmp_path, "--journal", "requests") as broker, broker.worker("upper", "--", "tr", "a-z", "A-Z"):
        with polydomo.Client(broker.url) as client:
            for _ in range(3):
                client.call("upper", b"hello", timeout=PATIENCE)
        assert Path(journal_of(broker.url)) == tmp_path / "journal"
        found = DefaultSource({"broker": broker.url, "service": "upper"}).reader(None)
        assert [row["outcome"] for row in rows(found)] == ["ok"] * 3


def test_in_spark_as_a_batch_and_as_a_stream(spark: "SparkSession", journal: Path, tmp_path: Path) -> None:
    found = spark.read.format("polydomo").load(str(journal))
    assert {(row.service, row["count"]) for row in found.groupBy("service").count().collect()} == {
        ("echo", 10),
        ("resize", 10),
        ("ocr", 5),
    }
    stream = spark.readStream.format("polydomo").option("service", "resize").load(str(journal))
    for expected in (10, 11):
        writer = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "seen"))
            .trigger(availableNow=True)
        )
        writer.start(str(tmp_path / "out")).awaitTermination()
        assert spark.read.parquet(str(tmp_path / "out")).count() == expected
        journals.write(journal, [record(70, 70, 7200, None, 7201, service="resize")])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = spark.read.format("polydomo").option("pushdown", "true").load(str(journal))
        assert pushed.where("service = 'ocr' AND number > 2").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_reads_each_row_once_though_segments_are_merged_between_batches(tmp_path: Path) -> None:
    directory = tmp_path / "journal"

    def add(*numbers: int) -> None:
        for n in numbers:
            journals.write(directory, [record(n, n, n, n + 0.5, n + 1)])

    def merge_all() -> None:
        for group in merge.plan(merge.batches((one, one.path.stat().st_size) for one in segments(directory))):
            merge.merge(group)

    def numbers(parts: Any) -> list[int]:
        return sorted(row["number"] for part in parts for batch in stream.read(part) for row in batch.to_pylist())

    stream = JournalStreamReader(DefaultSource({"path": str(directory)}), RowFilter())
    add(1, 2, 3)
    begin = stream.initialOffset()
    first = stream.latestOffset(begin, None)
    add(4, 5)
    merge_all()  # after the batch was planned: its offset ends inside the merged segment
    assert numbers(stream.partitions(begin, first)) == [1, 2, 3]
    second = stream.latestOffset(first, None)
    assert numbers(stream.partitions(first, second)) == [4, 5]
    add(6)
    third = stream.latestOffset(second, None)
    planned = stream.partitions(second, third)
    merge_all()  # after its parts were listed
    assert numbers(planned) == [6]
    assert numbers(stream.partitions(begin, third)) == [1, 2, 3, 4, 5, 6]  # a batch may be read again
    assert stream.latestOffset(third, None) == third


def test_one_task_reads_many_small_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polydomo import limits

    for n in range(1, 31):
        journals.write(tmp_path, [record(n, n, n, n + 0.5, n + 1)])
    (whole,) = reader(tmp_path).partitions()
    assert len(whole.parts) == 30
    monkeypatch.setattr(limits, "SOURCE_TASK_ROWS", 10)
    assert [len(group.parts) for group in reader(tmp_path).partitions()] == [10, 10, 10]


def test_a_query_for_what_is_available_ends_there(journal: Path) -> None:
    stream: Any = DefaultSource({"path": str(journal)}).streamReader(None)
    stream.prepareForTriggerAvailableNow()
    journals.write(journal, [record(60, 60, 7200, None, 7201)])
    end = stream.latestOffset({}, None)
    assert end["00000001"] < 60 and stream.latestOffset(end, None) == end
