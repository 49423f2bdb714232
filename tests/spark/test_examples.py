"""Every program in examples/spark runs, and prints what its docstring says."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from polydomo import testing
from tests.test_examples import ROOT, expected

PATHS = sorted((ROOT / "examples" / "spark").glob("*.py"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_example_prints_what_it_says(path: "os.PathLike[str]") -> None:
    with testing.broker() as broker:
        run = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, "POLYDOMO_TO": broker.url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    from pathlib import Path

    assert run.returncode == 0, run.stderr
    assert [line.split() for line in run.stdout.split("\n") if line.strip()] == [
        line.split() for line in expected(Path(path)).split("\n") if line.strip()
    ]
