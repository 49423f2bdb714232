"""SQL queries over remote tables with Spark. Each table is a view of the same name."""

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
    """Creates a view of every table; a missing table is an empty view."""
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
    """The result, computed when it is read. Raises BadQuery."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would log the error again, as a page of JSON
    try:
        return Answer(spark.sql(sql))
    except Exception as error:  # of many classes; the first line of each names the error
        raise BadQuery(said(error)) from None


def said(error: Exception) -> str:
    """Spark's error message without its code, its SQL state and the repeated query."""
    text = getattr(error, "desc", None) or str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CODE.sub("", first.split(" SQLSTATE:")[0]).strip()
