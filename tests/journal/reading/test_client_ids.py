"""Requests are found by the id that their client gave them, in journals of every version."""

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polydomo.journal import schema
from polydomo.journal.files import runs
from polydomo.journal.reading.client_ids import requests_named
from polydomo.journal.reading.reader import Reader
from polydomo.journal.recording.chunk import text
from polydomo.journal.schema import MESSAGES, REQUESTS

TIME = datetime(2026, 1, 1, tzinfo=UTC)
UUID = uuid.UUID("02a13400-62ff-4d57-9d07-10111213141b")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def write(directory: Path, kind: str, run: int, version: int, rows: list[dict[str, Any]]) -> None:
    """A segment as this version of the schema wrote it."""
    place = directory / f"kind={kind}" / "date=2026-01-01" / "hour=00" / runs.segment_name(run, 1, len(rows))
    place.parent.mkdir(parents=True, exist_ok=True)
    made = [
        schema.row(kind, run=run, seq=n, number=n, time=TIME + timedelta(seconds=n), **row)
        for n, row in enumerate(rows, 1)
    ]
    names = [column.name for column in schema.COLUMNS[kind] if column.since <= version]
    table = pa.Table.from_pylist(made, schema.arrow(kind)).select(names)
    with pq.ParquetWriter(place, table.schema) as writer:
        writer.add_key_value_metadata({"polydomo.version": str(version)})
        writer.write_table(table)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    write(tmp_path, REQUESTS, 1, 3, [{"trace": TRACE, "client_id": "order 7"}])
    ids = ["order 7", "", "order 8", "\\xff\\xfe", 128 * "y", "order 7", text(UUID.bytes)]
    write(tmp_path, REQUESTS, 2, 4, [{"client_id": identity} for identity in ids])
    write(tmp_path, MESSAGES, 1, 3, [{"event": "accepted", "client_id": "open"}])
    write(tmp_path, MESSAGES, 2, 4, [{"event": "accepted", "client_id": "open"}])
    return Reader([tmp_path])


@pytest.mark.parametrize(
    ("identity", "found"),
    [
        ("order 8", [(2, 3)]),
        ("order 7", [(2, 1), (2, 6)]),  # in order of time; version 3 had no such column
        ("\\xff\\xfe", [(2, 4)]),
        (str(UUID), [(2, 7)]),  # its bytes
        (UUID.hex.upper(), [(2, 7)]),
        ("\\x02\\xa14\\x00b\\xffMW\\x9d\\x07\\x10\\x11\\x12\\x13\\x14\\x1b", [(2, 7)]),  # as it is printed
        (300 * "y", [(2, 5)]),  # the beginning was recorded
        (TRACE, [(1, 1)]),
        ("4bf92f3577b34da6a3ce929d0e0e4736", [(1, 1)]),
        ("00f067aa0ba902b7", []),  # the span, not the trace
        ("open", [(2, 1)]),  # only accepted
        ("order", []),
        ("", []),
    ],
)
def test_requests_named(reader: Reader, identity: str, found: list[tuple[int, int]]) -> None:
    assert [(run, number) for _, run, number in requests_named(reader, identity)] == found
    assert reader.problems == []
