"""One Spark session for all tests of a process, created on first use."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    pytest.importorskip("pyspark")
    from tests.pipeline.shared import shared

    return shared()


SMALL = (
    "test_tables.py",
    "test_authority_audit.py",
    "test_docs.py",
    "test_java.py",
    "test_session.py",
    "test_report.py",
    "test_local_query.py",
    "test_maintain.py",
    "test_same_rows.py",
    "test_commit.py",
    "test_payloads.py",
    "test_user_tables.py",
    "test_catalog.py",
    "test_delta.py",
    "test_explain.py",
    "test_generated_journal.py",
    "test_combined.py",
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
