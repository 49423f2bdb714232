"""DuckDB for tasks: one connection with views of the journal; results are written as Parquet."""

import builtins
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from polydomo import limits
from polydomo.journal import histogram, schema
from polydomo.journal.segments import successor
from polydomo.pipeline.engine.plan import Plan
from polydomo.pipeline.segments import largest, parse
from polydomo.pipeline.storage import has_scheme, local_path, storage_for
from polydomo.pipeline.tables.table import Table
from polydomo.scratch import scratch_directory

# The logarithmic bucket of a duration. The check for null is needed because greatest() ignores nulls.
BUCKET = f"if({{us}} IS NULL, NULL, CAST(floor(ln(greatest({{us}}, 1)) / ln({histogram.RATIO})) AS INTEGER))"
HOUR_US = 3_600_000_000
MANY = 8  # files of one view


def bucket(us: str) -> str:
    """SQL for the bucket of a duration."""
    return BUCKET.format(us=us)


@contextmanager
def connected(plan: Plan) -> Iterator["Duck"]:
    """A connection for one task, with its own temporary tables and variables. All tasks of a process share the database."""
    connection = _database(plan.threads, plan.memory, os.getpid()).cursor()
    try:
        connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        yield Duck(connection, plan)
    finally:
        connection.close()


@lru_cache(maxsize=1)
def _database(threads: int, memory: str, process: int) -> Any:
    """The database of a process. Spark forks its Python workers, and a database must not be used in another process."""
    scratch = scratch_directory("duckdb")
    return duckdb.connect(config={"threads": threads, "memory_limit": memory, "temp_directory": str(scratch)})


class Duck:
    def __init__(self, connection: Any, plan: Plan) -> None:
        self.connection = connection
        self.plan = plan
        self.widths: dict[str, int] = {}  # number of columns by segment

    def run(self, sql: str, **values: Any) -> None:
        """Runs statements. ``values`` are variables that they read with ``getvariable``."""
        self.set(**values)
        self.connection.execute(sql)

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            self.connection.execute(f"SET VARIABLE {name} = $1", [value])

    def table(self, sql: str) -> pa.Table:
        return self.connection.sql(sql).to_arrow_table()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(sql).fetchall()
        return found

    def value(self, sql: str) -> Any:
        return self.rows(sql)[0][0]

    def load(self, name: str, table: pa.Table) -> None:
        """Loads an Arrow table as a temporary table."""
        self.connection.register("arrow_table", table)
        self.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT * FROM arrow_table')
        self.connection.unregister("arrow_table")

    def journal(self, view: str, kind: str, paths: Sequence[str], where: str = "true") -> None:
        """Creates a view of the rows of segments with the columns of the current version, within the times of the plan."""
        names = schema.names(kind)
        if not paths:
            self.load(f"{view}_of_none", schema.arrow(kind).empty_table())
            source = f"{view}_of_none"
        elif any(map(has_scheme, paths)):
            storage = storage_for(paths[0])
            found = ds.dataset(
                [_inner(path) for path in paths], filesystem=getattr(storage, "system", None), format="parquet"
            )
            self.connection.register(f"{view}_remote", found)
            names = [name for name in names if name in found.schema.names]
            source = f"{view}_remote"
        else:
            self.set(**{f"{view}_paths": [local_path(path) for path in paths]})
            union = len({self.widths.get(path, 0) for path in paths}) > 1  # segments of several versions
            source = f"read_parquet(getvariable('{view}_paths'), union_by_name = {union}, hive_partitioning = false)"
            names = [row[0] for row in self.rows(f"DESCRIBE SELECT * FROM {source}") if row[0] in names]
        columns = []
        for column in schema.COLUMNS[kind]:
            columns.append(_column(column, column.name in names))
        bounds = []
        for name, moment, sign in (("since", self.plan.since, ">="), ("until", self.plan.until, "<=")):
            if moment is not None:
                self.set(**{name: moment.astimezone(UTC)})
                bounds.append(f"time {sign} getvariable('{name}')")
        condition = " AND ".join([f"({where})", *bounds])
        sql = f"SELECT * FROM (SELECT {', '.join(columns)} FROM {source}) WHERE {condition}"
        if (
            len(paths) > MANY
            and sum(one.rows for path in paths if (one := parse(path)) is not None) <= limits.PIPELINE_TASK_ROWS
        ):
            # loaded into a table: otherwise every statement would open all files again
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {view}_rows AS {sql}")
            sql = f"SELECT * FROM {view}_rows"
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS {sql}")

    def readable(self, paths: Iterable[str], problems: list[str], read: "builtins.set[str] | None" = None) -> list[str]:
        """The readable segments. ``problems`` gets a line for each of the others, ``read`` the paths whose rows are included.

        A segment that has gone since it was listed was merged into a larger one, which is read instead, or removed by retention.
        """
        good: list[str] = []
        replaced = False
        for path in paths:
            found = path
            try:
                try:
                    footer = storage_for(found).footer(found)
                except FileNotFoundError:
                    merged = None if has_scheme(path) else successor(Path(local_path(path)))
                    if merged is None:
                        continue
                    found, replaced = str(merged), True
                    footer = storage_for(found).footer(found)
                version = int((footer.metadata or {}).get(b"polydomo.version", b"1"))
            except (OSError, ValueError, pa.ArrowException) as error:
                problems.append(f"{path}: skipped: cannot be read: {str(error).splitlines()[0]}")
                continue
            if version > schema.VERSION:
                problems.append(
                    f"{path}: version {version} of the schema is newer than the one that this program knows: unknown columns are ignored"
                )
            good.append(found)
            self.widths[found] = footer.num_columns
            if read is not None:
                read.add(path)
        if replaced:
            known = [segment for path in dict.fromkeys(good) if (segment := parse(path)) is not None]
            return [segment.path for segment in largest(known)]
        return good

    def stage(self, table: Table, unit: str, name: str, sql: str) -> int:
        """Stages the rows of a query as a file of a table; the commit publishes it. Returns the number of rows."""
        date, hour = unit.split("/")
        path = f"{self.plan.staging}/{table.name}/date={date}/hour={hour}/{name}.parquet"
        return self.write(path, table.select(f"({sql})"))

    def write(self, path: str, sql: str) -> int:
        if has_scheme(path):
            made = self.table(sql)
            if made.num_rows:
                storage_for(path).write_table(path, made)
            return int(made.num_rows)
        path = local_path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        quoted = path.replace("'", "''")
        rows = int(
            self.connection.execute(f"COPY ({sql}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)").fetchone()[0]
        )
        if not rows:
            os.unlink(path)
        return rows


def _inner(path: str) -> str:
    storage: Any = storage_for(path)
    return str(storage.inner(path))


_TYPES = {
    schema.TIME: "TIMESTAMPTZ", schema.LONG: "BIGINT", schema.INT: "INTEGER", schema.SHORT: "SMALLINT", schema.TEXT: "VARCHAR",
    schema.BYTES: "BLOB",
}  # fmt: skip
_NOTHING = {schema.TIME: "NULL", schema.TEXT: "''", schema.BYTES: "''"}


def _column(column: schema.Column, there: bool) -> str:
    """SQL for a column; it is empty in rows of versions that lack it."""
    nothing = f"CAST({_NOTHING.get(column.type, '0')} AS {_TYPES[column.type]})"
    if not there:
        return f'{nothing} AS "{column.name}"'
    if column.since > 1 and column.type != schema.TIME:
        return f'coalesce("{column.name}", {nothing}) AS "{column.name}"'
    return f'"{column.name}"'


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)
