"""The definition of a table: name, meaning of a row, columns."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # in Spark's DDL
    says: str


_ARROW: dict[str, Any] = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
    "MAP<INT, BIGINT>": pa.map_(pa.int32(), pa.int64()),
}
_DUCKDB = {
    "STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP": "TIMESTAMPTZ", "ARRAY<BIGINT>": "BIGINT[]",
    "MAP<STRING, BIGINT>": "MAP(VARCHAR, BIGINT)", "MAP<INT, BIGINT>": "MAP(INTEGER, BIGINT)",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    name: str
    says: str  # what one row is
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def stored(self) -> list[Column]:
        """The columns in its files. Date and hour are directories."""
        return [column for column in self.columns if column not in UNIT]

    @property
    def arrow(self) -> pa.Schema:
        """The schema of its files."""
        return pa.schema([(column.name, _ARROW[column.type]) for column in self.stored])

    def select(self, relation: str) -> str:
        """DuckDB SQL that selects the stored columns of a relation, in order and with their types."""
        casts = (
            f'CAST("{column.name}" AS {_DUCKDB.get(column.type, column.type)}) AS "{column.name}"'
            for column in self.stored
        )
        return f"SELECT {', '.join(casts)} FROM {relation}"

    def markdown(self) -> str:
        """The section of docs/pipeline.md about this table."""
        rows = "\n".join(f"| `{column.name}` | {column.type} | {column.says} |" for column in self.columns)
        return f"### `{self.name}`\n\nA row is {self.says}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"


# Every table is partitioned into directories by date and hour, and replaced hour by hour.
HOUR = Column("hour", "INT", "hour (UTC) of the row: a directory")
DATE = Column("date", "DATE", "date (UTC) of the row: a directory")
UNIT = (HOUR, DATE)
