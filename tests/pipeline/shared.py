"""One Spark session for all tests of a process, created on first use, and batch runs in it."""

import atexit
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.pipeline import batch, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_open: "list[tuple[SparkSession, tempfile.TemporaryDirectory[str]]]" = []


def shared() -> "SparkSession":
    if not _open:
        scratch = tempfile.TemporaryDirectory(prefix="polydomo-spark-")
        conf = {
            "spark.driver.extraJavaOptions": session.QUICK,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            "spark.local.dir": scratch.name,
            "spark.sql.warehouse.dir": str(Path(scratch.name) / "warehouse"),
        }
        atexit.register(close)
        _open.append((session.build("local[2]", conf=conf, rows=0), scratch))
    return _open[0][0]


def close() -> None:
    while _open:
        spark, scratch = _open.pop()
        session.close(spark)
        scratch.cleanup()


def load(journals: list[str], tables: str, options: batch.Options | None = None, **more: Any) -> batch.Summary:
    """``batch.run`` in the session that all tests share."""
    return batch.run(journals, tables, options, shared(), **more)
