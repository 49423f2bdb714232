"""The declarative project of examples/spark/declarative: run again and again, its view has the rows of the tables."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="pip install 'polydomo[test]' installs what Spark Connect needs")
import pyarrow.parquet as pq
import pyspark

from polydomo.pipeline import java
from tests.pipeline import small
from tests.test_examples import ROOT

PROJECT = ROOT / "examples" / "spark" / "declarative" / "spark-pipeline.yml"


def run(directory: Path) -> list[tuple[str, str, str, int]]:
    """Runs the project in a process of its own, as docs/pipeline.md says, and returns the rows of its view."""
    home = Path(pyspark.__file__).parent
    words = [
        str(home / "bin" / "spark-pipelines"), "run", "--spec", str(PROJECT), "--conf", "spark.sql.catalogImplementation=hive",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false",
    ]  # fmt: skip
    environ = {
        **os.environ, "JAVA_HOME": java.find(), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1", "SPARK_TESTING": "1",  # the Connect server chooses a free port
    }  # fmt: skip
    done = subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    rows = pq.read_table(directory / "spark-warehouse" / "failures").to_pylist()
    return sorted((str(row["date"]), row["service"], row["outcome"], row["count"]) for row in rows)


@pytest.mark.long
@pytest.mark.timeout(1900)
def test_each_run_gives_the_rows_of_the_tables(tmp_path: Path) -> None:
    requests = [small.request(1, 0, 0.1, 1.0), small.request(2, 5, 0.1, 1.0, outcome="timeout")]
    small.write(tmp_path / "tables", "requests", requests)
    first = [("2026-01-31", "resize", "timeout", 1)]
    assert run(tmp_path) == first
    assert run(tmp_path) == first
    requests += [
        small.request(3, 6, 0.1, 1.0, outcome="timeout"),
        small.request(4, 7, 0.1, 1.0, "echo", outcome="expired"),
    ]
    shutil.rmtree(tmp_path / "tables")
    small.write(tmp_path / "tables", "requests", requests)
    assert run(tmp_path) == [("2026-01-31", "echo", "expired", 1), ("2026-01-31", "resize", "timeout", 2)]
