"""SQL over tables that are not on this machine, by Spark: each table is a view of its own name."""

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.cells import plain
from polydomo.pipeline.commit import PARQUET, Store
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CODE = re.compile(r"^\[[A-Z_.]+\] ")


class BadQuery(PolydomoError):
    """Spark rejected the query, or it failed."""


def views(spark: "SparkSession", tables: str, format: str = PARQUET) -> None:
    """Makes a view of every table; one that has no rows yet is empty."""
    store = Store(tables)
    names = [name for name in store.storage.names(store.root) if name[0] not in "._"]
    if not names:
        raise PolydomoError(f"there are no tables in {tables}; create them with `polydomo pipeline run`")
    for name in dict.fromkeys([*TABLES, *names]):
        reader = spark.read.format(format)
        if name in TABLES and format == PARQUET:
            reader = reader.schema(TABLES[name].ddl)
        there = name in names
        (
            reader.load(store.path(name)) if there else spark.createDataFrame([], TABLES[name].ddl)
        ).createOrReplaceTempView(name)


class Answer:
    """Rows, computed as they are read."""

    def __init__(self, frame: "DataFrame") -> None:
        self._frame = frame
        self.names: list[str] = frame.columns

    @property
    def numeric(self) -> set[str]:
        kinds = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
        return {name for name, kind in self._frame.dtypes if kind.startswith(kinds)}

    def rows(self) -> Iterator[list[Any]]:
        try:
            for row in self._frame.toLocalIterator():
                yield [plain(value) for value in row]
        except Exception as error:  # of many classes
            raise BadQuery(said(error)) from None


def ask(spark: "SparkSession", sql: str) -> Answer:
    """The answer, not computed yet. Raises BadQuery."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would print a mistake once more, as a page of JSON
    try:
        return Answer(spark.sql(sql))
    except Exception as error:  # of many classes, all of them with a first line that says it
        raise BadQuery(said(error)) from None


def said(error: Exception) -> str:
    """Spark's error message without its code, its SQL state and the repeated query."""
    text = getattr(error, "desc", None) or str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CODE.sub("", first.split(" SQLSTATE:")[0]).strip()
