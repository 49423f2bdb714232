"""SQL queries over tables with Spark."""

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polydomo.pipeline.query.cells import BadQuery, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CODE = re.compile(r"^\[[A-Z_.]+\] ")


class SparkResult:
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


def ask(spark: "SparkSession", sql: str) -> SparkResult:
    """The result, computed when it is read. Raises BadQuery."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would log the error again, as a page of JSON
    try:
        return SparkResult(spark.sql(sql))
    except Exception as error:  # of many classes; the first line of each names the error
        raise BadQuery(said(error)) from None


def said(error: Exception) -> str:
    """Spark's error message without its code, its SQL state and the repeated query."""
    text = getattr(error, "desc", None) or str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CODE.sub("", first.split(" SQLSTATE:")[0]).strip()
