"""Every program in examples/ runs, and prints what its docstring says."""

import ast
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from polydomo import testing
from tests.ports import free_port

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def expected(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring is not None
    _, marker, output = docstring.partition("Prints:\n\n")
    assert marker, f"the docstring of {path.name} does not say what it prints"
    return textwrap.dedent(output).strip() + "\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_prints_the_documented_output(path: Path) -> None:
    with testing.broker(jobs=True) as broker:
        run = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, "POLYDOMO_TO": broker.url},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert (run.returncode, run.stdout) == (0, expected(path)), run.stderr


def test_the_node_of_the_catalog_finds_the_broker_by_its_beacon() -> None:
    path = ROOT / "examples" / "catalog_node.py"
    port = free_port(socket.SOCK_DGRAM)
    with testing.broker(settings={"dbp.beacon": f"127.0.0.1:{port}"}):
        run = subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, "POLYDOMO_TO": f"discover://127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert (run.returncode, run.stdout) == (0, expected(path)), run.stderr


def test_the_list_names_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"[{path.name}]({path.name})" in page
