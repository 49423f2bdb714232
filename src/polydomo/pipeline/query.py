"""SQL over the tables: each is a view of its own name."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.commit import PARQUET, Store
from polydomo.pipeline.tables import TABLES, local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CODE = re.compile(r"^\[[A-Z_.]+\] ")


class BadQuery(PolydomoError):
    """Spark does not understand it, or it failed."""


def views(spark: "SparkSession", tables: str, format: str = PARQUET) -> None:
    """Makes a view of every table; one that has no rows yet is empty."""
    store = Store(spark, tables, format)
    found = {name: store.read(name) for name in TABLES}
    if all(frame is None for frame in found.values()):
        raise PolydomoError(f"there are no tables in {tables}; `polydomo pipeline run` makes them")
    for name, frame in found.items():
        (frame if frame is not None else local.frame(spark, [], TABLES[name].pairs)).createOrReplaceTempView(name)


def ask(spark: "SparkSession", sql: str) -> "DataFrame":
    """The answer, not computed yet. Raises BadQuery."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it would print a mistake once more, as a page of JSON
    try:
        return spark.sql(sql)
    except Exception as error:  # of many classes, all of them with a first line that says it
        raise BadQuery(said(error)) from None


def rows(answer: "DataFrame", most: int | None = None) -> Iterator[list[Any]]:
    """Its rows as plain values, without holding them all."""
    try:
        for row in (answer.limit(most) if most is not None else answer).toLocalIterator():
            yield [plain(value) for value in row]
    except Exception as error:
        raise BadQuery(said(error)) from None


def said(error: Exception) -> str:
    """What Spark says of a mistake, without its code, its hint of a state and the query repeated under it."""
    text = getattr(error, "desc", None) or str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _CODE.sub("", first.split(" SQLSTATE:")[0]).strip()


def plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, datetime | date):
        # Spark gives times in the local zone without saying so
        return (
            value.astimezone(UTC).isoformat()
            if isinstance(value, datetime) and value.tzinfo is None
            else value.isoformat()
        )
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def cell(value: Any) -> str:
    """A value in a table or in CSV."""
    if value is None:
        return ""
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
