"""One Spark session for all tests of a process, made when the first one asks."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark")
    from polydomo.pipeline import session

    with tempfile.TemporaryDirectory(prefix="polydomo-spark-") as scratch:
        conf = {
            "spark.driver.extraJavaOptions": session.QUICK,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.adaptive.enabled": "false",  # nothing to adapt to in a few rows, and every stage would be planned anew
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse"),
        }
        made = session.build(conf=conf, master="local[2]")
        yield made
        made.stop()
