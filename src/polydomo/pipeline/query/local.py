"""SQL queries over local tables with DuckDB, without a JVM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from polydomo.errors import PolydomoError
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.delta import LOG
from polydomo.pipeline.query.cells import BadQuery, plain
from polydomo.pipeline.tables import TABLES

_TYPES = (("STRING", "VARCHAR"), ("BINARY", "BLOB"), ("TIMESTAMP", "TIMESTAMPTZ"))  # Spark's and DuckDB's


class LocalTables:
    """A directory of tables. Each table is a view of the same name; a missing table is an empty view."""

    def __init__(self, directory: str) -> None:
        self.root = Path(directory.removeprefix("file://")).absolute()
        self._connection = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        self._connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        names = TableStore(str(self.root)).tables()
        with_rows = [name for name in names if any((self.root / name).glob("**/*.parquet"))]
        if not with_rows:
            raise PolydomoError(f"there are no tables in {directory}; create them with `polydomo pipeline run`")
        for name in dict.fromkeys([*TABLES, *with_rows]):
            parts = [_empty(name)] if name in TABLES else []
            if name in with_rows:
                # A log has Parquet files of its own.
                folders = "date=*/hour=*" if (self.root / name / LOG).is_dir() else "**"
                files = str(self.root / name / folders / "*.parquet").replace("'", "''")
                parts.append(f"SELECT * FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true)")
            self._connection.execute(f"CREATE VIEW {_quoted(name)} AS {' UNION ALL BY NAME '.join(parts)}")

    def ask(self, sql: str) -> "LocalResult":
        try:
            relation: Any = self._connection.sql(sql)
            if relation is None:  # a statement without a result, in some versions of DuckDB
                relation = self._connection.sql("SELECT 1 AS done WHERE false")
            return LocalResult(relation.to_arrow_reader(10_000))
        except duckdb.Error as error:
            raise BadQuery(said(error)) from None

    def close(self) -> None:
        self._connection.close()


class LocalResult:
    """Rows, computed as they are read."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.names: list[str] = reader.schema.names

    @property
    def numeric(self) -> set[str]:
        return {
            column.name
            for column in self._reader.schema
            if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
        }

    def rows(self) -> Iterator[list[Any]]:
        try:
            for batch in self._reader:
                # by position: two columns may have the same name
                yield from ([plain(value) for value in row] for row in zip(*map(_values, batch.columns), strict=True))
        except (duckdb.Error, pa.ArrowException) as error:
            raise BadQuery(said(error)) from None


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [dict(value) if value is not None else None for value in values] if pa.types.is_map(column.type) else values


def said(error: Exception) -> str:
    """The first line of DuckDB's message, without the error class."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    head, divided, rest = first.partition(": ")
    return rest.strip() if divided and head.endswith("Error") else first


def _empty(name: str) -> str:
    columns = ", ".join(
        f"CAST(NULL AS {_type(column.type)}) AS {_quoted(column.name)}" for column in TABLES[name].columns
    )
    return f"SELECT {columns} WHERE false"


def _type(ddl: str) -> str:
    """
    >>> _type("MAP<STRING, BIGINT>"), _type("ARRAY<STRUCT<a: INT, b: STRING>>")
    ('MAP(VARCHAR, BIGINT)', 'STRUCT(a INT, b VARCHAR)[]')
    """
    if ddl.startswith("ARRAY<"):
        return f"{_type(ddl[6:-1])}[]"
    if ddl.startswith("STRUCT<"):
        ddl = f"STRUCT({ddl[7:-1].replace(':', '')})"
    for spark, own in _TYPES:
        ddl = ddl.replace(spark, own)
    return ddl.replace("<", "(").replace(">", ")")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
