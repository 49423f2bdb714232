"""Every program in examples/spark runs, and prints what its docstring says; the notebook's cells run one after the other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from polydomo import testing
from tests.test_examples import ROOT, expected

FOLDER = ROOT / "examples" / "spark"
WITHOUT_JAVA = ("model",)
NO_PROGRAM = ("late_orders",)  # definitions of tables: tests/pipeline/test_user_tables.py runs them
PATHS = [
    pytest.param(path, id=path.stem, marks=() if path.stem in WITHOUT_JAVA else pytest.mark.long)
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem not in NO_PROGRAM
]


def run(*words: str) -> str:
    with testing.broker() as broker:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "POLYDOMO_TO": broker.url, "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PATHS)
def test_the_example_prints_the_documented_output(path: Path) -> None:
    found = run(str(path))
    assert [line.split() for line in found.split("\n") if line.strip()] == [
        line.split() for line in expected(path).split("\n") if line.strip()
    ]


@pytest.mark.long
def test_the_cells_of_the_notebook_run(tmp_path: Path) -> None:
    notebook = json.loads((FOLDER / "scoring.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(cells), encoding="utf-8")
    found = run(str(tmp_path / "cells.py"))
    assert [line.split() for line in found.splitlines() if line.startswith("|")][1:] == [
        ["|", f"{n}|", "200|"] for n in range(1, 6)
    ]
    assert "3 rows failed" in found
    assert not any(cell.get("outputs") for cell in notebook["cells"])


def test_the_list_names_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.*"):
        if path.suffix in (".py", ".ipynb"):
            assert f"[spark/{path.name}](spark/{path.name})" in page
