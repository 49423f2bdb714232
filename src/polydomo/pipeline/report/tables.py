"""Reads the tables of a local directory for the report: with pyarrow, in batches, without Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from polydomo.errors import PolydomoError, SettingError
from polydomo.pipeline.tables import TABLES

Row = dict[str, Any]
HOURS = pa.schema([("date", pa.string()), ("hour", pa.int32())])  # directories


class NoTables(PolydomoError):
    """The directory has no tables."""


class Tables:
    """The tables of a directory; a missing table is empty."""

    def __init__(self, directory: str | Path) -> None:
        if "://" in str(directory):
            raise SettingError(f"--tables: {directory} is not a local directory; copy the tables to this machine first")
        self.directory = Path(directory)
        if not (self.directory / "requests").is_dir():
            raise NoTables(f"there are no tables in {directory}; create them with `polydomo pipeline run`")

    def dataset(self, name: str) -> Any:
        if not (self.directory / name).is_dir():
            return None
        shape = None
        if name in TABLES:  # columns that an earlier version did not write are null
            shape = pa.schema([*TABLES[name].arrow, *HOURS])
        layout = ds.partitioning(HOURS, flavor="hive")
        found = ds.dataset(self.directory / name, shape, format="parquet", partitioning=layout)
        return found if found.files else None

    def batches(self, name: str, columns: Sequence[str], where: Any = None) -> Iterator[pa.Table]:
        found = self.dataset(name)
        if found is None:
            return
        for batch in found.to_batches(columns=list(columns), filter=where, batch_readahead=2, fragment_readahead=1):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def rows(self, name: str, columns: Sequence[str] | None = None, where: Any = None) -> list[Row]:
        found = self.dataset(name)
        if found is None:
            return []
        made: list[Row] = found.to_table(columns=columns and list(columns), filter=where).to_pylist()
        return made

    def own(self) -> list[tuple[str, int, list[str]]]:
        """The tables of the user and of payloads: name, number of rows, columns."""
        found = []
        for path in sorted(self.directory.iterdir()):
            if path.is_dir() and path.name[0] not in "._" and path.name not in TABLES:
                data = self.dataset(path.name)
                if data is not None:
                    columns = [name for name in data.schema.names if name not in HOURS.names]
                    found.append((path.name, data.count_rows(), columns))
        return found
