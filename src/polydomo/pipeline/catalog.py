"""The tables in the catalog of a Spark session: ``SELECT ... FROM polydomo.requests``, with a comment on each column."""

from typing import TYPE_CHECKING

from polydomo.errors import PolydomoError
from polydomo.pipeline.commit import OWN, TableStore
from polydomo.pipeline.session import settings_of
from polydomo.pipeline.tables import TABLES
from polydomo.pipeline.tables.table import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "polydomo"
# Spark would list partitions in its catalog, and see none of an hour that is computed later.
LISTS_PARTITIONS = "spark.sql.hive.manageFilesourcePartitions"


def register(spark: "SparkSession", tables: str, database: str = DATABASE) -> list[str]:
    """Puts the tables of the directory ``tables`` into the catalog of the session and returns their names.

    ``SELECT count(*) FROM polydomo.requests`` reads them, and ``DESCRIBE polydomo.requests`` explains their columns. Call it again to see
    what later runs of the pipeline wrote. The tables are external: dropping one removes no file.
    """
    store = TableStore(tables)
    names = store.tables()
    if not names:
        raise PolydomoError(f"there are no tables in {tables}; create them with `polydomo pipeline run`")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database} LOCATION {_literal(f'{store.root}/{OWN}/catalog')}")
    with settings_of(spark, {LISTS_PARTITIONS: "false"}):
        for name in names:
            spark.sql(f"DROP TABLE IF EXISTS {database}.{name}")
            spark.sql(_creation(f"{database}.{name}", name, store.path(name)))
    return names


def views(spark: "SparkSession", tables: str) -> None:
    """Registers the tables, and creates a view of each under its plain name. A table without rows is an empty view."""
    names = register(spark, tables)
    for name in dict.fromkeys([*TABLES, *names]):
        frame = spark.table(f"{DATABASE}.{name}") if name in names else spark.createDataFrame([], TABLES[name].ddl)
        frame.createOrReplaceTempView(name)


def _creation(full_name: str, name: str, path: str) -> str:
    place = f"USING parquet LOCATION {_literal(path)}"
    if name not in TABLES:
        return f"CREATE TABLE {full_name} {place}"  # its files say which columns it has
    table = TABLES[name]
    columns = ", ".join(map(_column, table.columns))
    return f"CREATE TABLE {full_name} ({columns}) {place} PARTITIONED BY (date, hour) COMMENT {_literal(f'A row is {table.says}.')}"


def _column(column: Column) -> str:
    return f"`{column.name}` {column.type} COMMENT {_literal(column.says)}"


def _literal(text: str) -> str:
    """
    >>> _literal("it's")
    "'it\\\\\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
