"""One Spark session for all tests of a process, created on first use."""

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
        session.close(made)


SMALL = (
    "test_tables.py",
    "test_docs.py",
    "test_java.py",
    "test_session.py",
    "test_report.py",
    "test_local_query.py",
    "test_maintain.py",
    "test_same_rows.py",
    "test_commit.py",
    "test_connect.py",
    "test_payloads.py",
)  # in every run; the others are long forms


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark run in one process with a long timeout: a timeout inside the JVM would break all later tests."""
    for item in items:
        if "tests/pipeline/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.path.name not in SMALL:
                item.add_marker(pytest.mark.long)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
