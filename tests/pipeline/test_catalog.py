"""The tables in the catalog of a session."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from polydomo import pipeline
from polydomo.errors import PolydomoError
from polydomo.pipeline.tables import TABLES
from tests.pipeline import small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tables_have_names_and_comments_and_show_later_hours(spark: "SparkSession", tmp_path: Path) -> None:
    tables = tmp_path / "it's the tables"
    for name in TABLES:
        small.write(tables, name, [small.request(1, 0.0, 0.1, 0.2)] if name == "requests" else [])
    session = spark.newSession()
    assert set(TABLES) <= set(pipeline.register(session, str(tables)))
    assert session.sql("SELECT count(*) FROM polydomo.requests").head() == (1,)
    comments = {row.col_name: row.comment for row in session.sql("DESCRIBE polydomo.requests").collect() if row.comment}
    comments.pop("# col_name", None)  # the heading of the partitions
    assert comments == {column.name: column.says for column in TABLES["requests"].columns}
    (hour,) = (tables / "requests").glob("date=*/hour=*")
    shutil.copytree(hour, hour.with_name("hour=08"))
    pipeline.register(session, str(tables))
    found = session.sql("SELECT hour, count(*) AS n FROM polydomo.requests GROUP BY hour ORDER BY hour").collect()
    assert [row.n for row in found] == [1, 1]
    # nothing but metadata is dropped with it
    session.sql("DROP DATABASE polydomo CASCADE")
    pipeline.register(session, str(tables))
    assert session.sql("SELECT count(*) FROM polydomo.requests").head() == (2,)
    session.sql("DROP DATABASE polydomo CASCADE")


def test_a_directory_without_tables(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(PolydomoError, match="there are no tables in"):
        pipeline.register(spark, str(tmp_path))
