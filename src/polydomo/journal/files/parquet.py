"""Segments: how a batch of rows is written to Parquet files and published."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401  pyarrow imports it with the first array, when there may be no file left to open
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polydomo.journal import schema
from polydomo.journal.files.columns import tables
from polydomo.journal.files.seal import SEALED, seal
from polydomo.journal.files.segments import Segment, segment_name

__all__ = ["PendingRows", "by_hour", "hour_of", "publish", "tables"]

HOUR = 3_600_000_000  # in microseconds

_TEXTS = {
    kind: [c.name for c in schema.COLUMNS[kind] if c.type == schema.TEXT and c.name != "request"]
    for kind in schema.KINDS
}
_ENCODINGS = {
    kind: {c.name: "DELTA_BINARY_PACKED" for c in schema.COLUMNS[kind] if c.type not in (schema.TEXT, schema.BYTES)}
    for kind in schema.KINDS
}
_ENCODINGS[schema.REQUESTS]["request"] = "DELTA_BYTE_ARRAY"  # ids share their beginning with the one before
_STATISTICS = ["time", "run", "seq", "number", "service", "outcome", "total_us", "accepted"]  # what readers prune by


class PendingRows:
    """The rows of the next segment: Arrow tables by kind."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {}
        self.first = 0
        self.last = 0
        self.rows = 0
        self.bytes = 0
        self.hour = 0
        self.since = 0.0

    def add(self, made: dict[str, Any], first: int, last: int) -> None:
        if not self.rows:
            self.first = first
            self.since = time.monotonic()
            self.hour = hour_of(made)
        self.last = last
        for kind, table in made.items():
            self.tables.setdefault(kind, []).append(table)
            self.rows += table.num_rows
            self.bytes += table.nbytes

    def accounts(self) -> "list[tuple[int, int, int]]":
        """The missing rows that rows of this batch state: run, first, last."""
        found = []
        for table in self.tables.get(schema.MESSAGES, ()):
            covering = table.filter(pc.not_equal(table["covers_run"], 0))
            for row in covering.select(["covers_run", "covers_first", "covers_last"]).to_pylist():
                found.append((row["covers_run"], row["covers_first"], row["covers_last"]))
        return found


def hour_of(made: dict[str, Any]) -> int:
    return int(min(pc.min(table["time"]).value for table in made.values()) // HOUR)


def by_hour(made: dict[str, Any], first: int, last: int) -> list[tuple[dict[str, Any], int, int]]:
    """The rows of each hour, with the first and last of their sequence numbers; nearly always one part."""
    start = hour_of(made)
    end = int(max(pc.max(table["time"]).value for table in made.values()) // HOUR)
    if start == end:
        return [(made, first, last)]
    found = []
    for hour in range(start, end + 1):
        part = {}
        for kind, table in made.items():
            hours = pc.divide(table["time"].cast(pa.int64()), HOUR)
            rows = table.filter(pc.equal(hours, hour))
            if rows.num_rows:
                part[kind] = rows
        if part:
            begins = min(pc.min(table["seq"]).as_py() for table in part.values())
            found.append((part, begins, max(pc.max(table["seq"]).as_py() for table in part.values())))
    # numbers that no row has (a chunk in between was dropped) belong to what came before them
    return [
        (part, first if i == 0 else begins, last if i == len(found) - 1 else found[i + 1][1] - 1)
        for i, (part, begins, _) in enumerate(found)
    ]


def failure(error: Exception) -> str:
    """Why a segment could not be written, if a retry can succeed; other errors are raised again."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, pa.ArrowException):
        return str(error)
    raise error


def publish(directory: Path, run: int, batch: PendingRows) -> list[Segment]:
    """Writes and syncs one file for each kind, then renames them all."""
    moment = datetime.fromtimestamp(batch.hour * HOUR / 1e6, UTC)
    folders = {
        kind: directory / f"kind={kind}" / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}" for kind in batch.tables
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return publish_files(
        folders, run, batch.first, batch.last, lambda path, kind: write(path, kind, batch.tables[kind])
    )


def publish_files(
    folders: Mapping[str, Path],
    run: int,
    first: int,
    last: int,
    fill: Callable[[Path, str], None],
    step: Callable[[str], None] = lambda name: None,
) -> list[Segment]:
    """``fill`` writes the file of one kind under a hidden name. When all are written, all are renamed. ``step`` names each step."""
    name = segment_name(run, first, last)
    hidden: list[Path] = []
    try:
        for kind, folder in folders.items():
            path = folder / f".{name}"
            hidden.append(path)
            fill(path, kind)
            step(f"wrote {kind}")
    except BaseException:
        for path in hidden:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    made = []
    for path in hidden:
        final = path.with_name(name)
        path.rename(final)
        step(f"published {final}")
        made.append(Segment(final, False, run, first, last))
    for path in hidden:
        sync(path.parent)
    return made


def write(path: Path, kind: str, parts: list[Any]) -> None:
    """Writes and syncs one Parquet file."""
    table = pa.concat_tables(parts).unify_dictionaries()
    with file_writer(path, kind, table.schema) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    seal(path)
    sync(path)


def file_writer(path: Path, kind: str, columns: Any, **metadata: str) -> Any:
    """A pyarrow writer with the settings of all segments. ``seal`` the file when it is closed."""
    writer = pq.ParquetWriter(
        path,
        columns,
        compression="zstd",
        compression_level=1,
        use_dictionary=_TEXTS[kind],
        column_encoding=_ENCODINGS[kind],
        write_statistics=[name for name in _STATISTICS if name in columns.names],
        store_schema=False,
        write_batch_size=8192,
        write_page_checksum=True,  # for readers that do not know the seal
    )
    known = {"polydomo.version": str(schema.VERSION), "polydomo.kind": kind, f"polydomo.{SEALED}": "crc32"}
    writer.add_key_value_metadata(known | {f"polydomo.{name}": value for name, value in metadata.items()})
    return writer


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
