"""What a table is: its name, what a row of it is, and its columns. The last step of every table is ``contract``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # in Spark's DDL
    says: str


@dataclass(frozen=True)
class Table:
    name: str
    says: str  # what one row is
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names and types."""
        return [(column.name, column.type) for column in self.columns]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def markdown(self) -> str:
        """The table as the documentation has it."""
        rows = "\n".join(f"| `{column.name}` | {column.type} | {column.says} |" for column in self.columns)
        return f"### `{self.name}`\n\nA row is {self.says}.\n\n| column | type | says |\n|---|---|---|\n{rows}\n"

    def contract(self, frame: "DataFrame") -> "DataFrame":
        """Exactly the stated columns, in their order and types."""
        return frame.selectExpr(*(f"CAST({column.name} AS {column.type}) AS {column.name}" for column in self.columns))


# Where a row is kept: every table is partitioned by date, and taken in hour by hour.
HOUR = Column("hour", "INT", "hour (UTC) to which the row belongs")
DATE = Column("date", "DATE", "date (UTC) to which the row belongs; the tables are partitioned by it")
UNIT = (HOUR, DATE)
FEW = 1000  # values that a filter may name


def unit(time: str) -> tuple[str, str]:
    """Hour and date of a time, as SQL. By arithmetic: Spark's own functions go through the calendar for every row."""
    seconds = f"unix_seconds({time})"
    return (
        f"CAST({seconds} DIV 3600 % 24 AS INT) AS hour",
        f"date_from_unix_date(CAST({seconds} DIV 86400 AS INT)) AS date",
    )


def hour_of(time: str) -> str:
    """When the hour of a time began, as SQL."""
    return f"timestamp_seconds(3600 * (unix_seconds({time}) DIV 3600))"


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
