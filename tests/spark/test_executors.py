"""A session that the user built: tasks find polydomo although the first ``python3`` on the path lacks it."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import polydomo.testing
from polydomo.pipeline import java

PROGRAM = """
    import sys

    import polydomo
    from polydomo.spark import prepare, register, through
    from pyspark.sql import SparkSession

    broker, journal = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    words = spark.createDataFrame([("a",), ("b",)], "word STRING")
    shouts = through(words, "upper", to=broker, body="word", schema="shout STRING")
    print("through", sorted(row.shout for row in shouts.collect()))
    register(spark, to=broker)
    print("sql", spark.sql("SELECT CAST(polydomo_call('upper', 'x') AS STRING)").head()[0])
    prepare(spark)
    words.write.format("polydomo").mode("append").option("to", broker).option("service", "upper").save()
    print("source", spark.read.format("polydomo").option("path", journal).load().count())
"""


@pytest.mark.long
def test_a_plain_session_of_an_interpreter_that_is_not_first_on_the_path(
    tmp_path: Path, broker: polydomo.testing.Broker
) -> None:
    other = tmp_path / "bin" / "python3"  # has none of our packages: -S leaves site-packages out
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    other.chmod(other.stat().st_mode | stat.S_IEXEC)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "journal").mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environ |= {"PATH": f"{other.parent}:/usr/bin:/bin", "JAVA_HOME": java.find(), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(program), broker.url, str(tmp_path / "journal")],
        capture_output=True, text=True, env=environ, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["through ['A', 'B']", "sql X", "source 0"], done.stderr[-3000:]
