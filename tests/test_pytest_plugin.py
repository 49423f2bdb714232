"""The plugin for pytest, and the examples of docs/testing.md."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```python ([a-z-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
MORE = """
import pytest
from polydomo import CallFailed


def test_typed_and_several_workers(polydomo_broker, polydomo_offer, polydomo_client):
    def add(a: int, b: int) -> int:
        return a + b

    first = polydomo_offer("add", add, concurrency=2)
    second = polydomo_offer("add", add)
    assert first is not second
    assert polydomo_client.call("add", a=1, b=2).json() == 3
    with pytest.raises(CallFailed, match="invalid-arguments"):
        polydomo_client.call("add", a="x", b=2)


@pytest.mark.polydomo(settings={"attempts": 2})
def test_settings(polydomo_broker):
    seen = []
    polydomo_broker.wait_until(lambda server: not seen.append(server.broker.policy.attempts))
    assert seen[0] == 2
"""


def test_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"pytest_polydomo": "polydomo.pytest_polydomo"}


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    assert set(EXAMPLES) == {"fixtures", "module-fixture", "testing", "testing-jobs"}
    for name, code in EXAMPLES.items():
        (tmp_path / f"test_{name.replace('-', '_')}.py").write_text(code, encoding="utf-8")
    (tmp_path / "test_more.py").write_text(MORE, encoding="utf-8")
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "polydomo.pytest_polydomo",
            "--strict-markers",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 passed" in result.stdout
