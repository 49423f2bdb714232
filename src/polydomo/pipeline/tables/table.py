"""The definition of a table: its name, its columns, the tables that it reads, and the function that computes it.

``@table`` declares one. The tables of the pipeline and those of ``polydomo pipeline run --with FILE`` use the same decorator:

    @table("late_orders", reads=["requests"], by="hour")
    def late_orders(requests):
        return requests.where("service = 'orders' AND total_us > 2000000").select("request", "total_us", "date", "hour")

The function gets a DataFrame for each name in ``reads`` and returns one. The frames have the rows of the hours that a run recomputes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from polydomo.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BY_HOUR, BY_RUN = "hour", "run"


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # in Spark's DDL
    says: str


def columns(text: str) -> tuple[Column, ...]:
    """Columns, each with its type and a comment: ``name TYPE -- comment``. A line without a comment continues the one before it."""
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if " -- " in line:
            lines.append(line)
        else:
            lines[-1] += f" {line}"
    made = []
    for line in lines:
        declared, _, says = line.partition(" -- ")
        name, _, kind = declared.partition(" ")
        made.append(Column(name, kind, says))
    return (*made, *UNIT)


_ARROW: dict[str, Any] = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


def arrow_type(ddl: str) -> Any:
    """Arrow's type for a type in Spark's DDL.

    >>> arrow_type("ARRAY<STRUCT<a: INT, b: STRING>>")
    ListType(list<element: struct<a: int32, b: string>>)
    """
    if ddl.startswith("ARRAY<"):
        return pa.list_(pa.field("element", arrow_type(ddl[6:-1])))
    if ddl.startswith("MAP<"):
        key, value = ddl[4:-1].split(", ")
        return pa.map_(arrow_type(key), arrow_type(value))
    if ddl.startswith("STRUCT<"):
        fields = (part.split(": ") for part in ddl[7:-1].split(", "))
        return pa.struct([(name, arrow_type(kind)) for name, kind in fields])
    return _ARROW[ddl]


@dataclass(frozen=True)
class Table:
    name: str
    says: str  # what one row is
    columns: tuple[Column, ...]  # of a user's table: empty, its rows say them
    reads: tuple[str, ...] = ()
    by: str = BY_HOUR
    compute: "Callable[..., DataFrame] | None" = None

    def __call__(self, *frames: "DataFrame") -> "DataFrame":
        assert self.compute is not None, self.name
        return self.compute(*frames)

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
        return pa.schema([(column.name, arrow_type(column.type)) for column in self.stored])

    def markdown(self) -> str:
        """The section of docs/pipeline.md about this table."""
        rows = "\n".join(f"| `{column.name}` | {column.type} | {column.says} |" for column in self.columns)
        return f"### `{self.name}`\n\nA row is {self.says}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"


def table(
    name: str, says: str = "", *, reads: Sequence[str], by: str = BY_HOUR, columns: Sequence[Column] = ()
) -> "Callable[[Callable[..., DataFrame]], Table]":
    """Declares a table. ``by="hour"``: the table is replaced hour by hour, and its rows have the columns ``date`` and ``hour``."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SettingError(f"@table: {name!r} is not a name of lower-case letters, digits and underscores")
    if by not in (BY_HOUR, BY_RUN) or (by == BY_RUN and not columns):
        raise SettingError(f"@table: {name}: by must be {BY_HOUR!r}, not {by!r}")

    def declared(compute: "Callable[..., DataFrame]") -> Table:
        return Table(name, says or (compute.__doc__ or "").strip(), tuple(columns), tuple(reads), by, compute)

    return declared


# Every table is partitioned into directories by date and hour, and replaced hour by hour.
HOUR = Column("hour", "INT", "hour (UTC) of the row: a directory")
DATE = Column("date", "DATE", "date (UTC) of the row: a directory")
UNIT = (HOUR, DATE)
