"""Few rows that the driver has, as a DataFrame. They go as Arrow, and stand in the plan: from a list of tuples Spark would make a job for
Python workers, which have to be started first, each time that the DataFrame is used."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {
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


def frame(spark: "SparkSession", rows: Iterable[Sequence[Any]], columns: Sequence[tuple[str, str]]) -> "DataFrame":
    """``columns`` are names and types in Spark's DDL. Times are as Spark's ``collect`` gives them: without a zone, in the machine's."""
    given = [*rows]
    arrays = [
        pa.array([_aware(row[place]) if kind == "TIMESTAMP" else row[place] for row in given], _TYPES[kind])
        for place, (_, kind) in enumerate(columns)
    ]
    # over Spark Connect the types of no rows at all have to be told
    return spark.createDataFrame(
        pa.table(arrays, [name for name, _ in columns]), ", ".join(f"{name} {kind}" for name, kind in columns)
    )


def _aware(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
