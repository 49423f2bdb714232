"""The build says why it does not compile the core, and the build for tests has a seam wherever a test replaces something."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", ROOT / "packaging" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"POLYDOMO_COMPILED": "0"}, "POLYDOMO_COMPILED=0"),
        ({"CC": "no-such-compiler -O2"}, "no C compiler (no-such-compiler) was found"),
    ],
)
def test_a_core_that_cannot_be_compiled_is_installed_interpreted(
    settings: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    backend = load("backend")
    assert backend.obstacle() == why
    assert not any(needed.startswith("mypy") for needed in backend.get_requires_for_build_wheel())


def test_everything_that_tests_replace_has_a_seam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seams, core = load("seams"), load("compiled_core")
    seams.copy_with_seams(ROOT, tmp_path, core.sources())
    assert capsys.readouterr().out == ""
    changed = 0
    for name in core.sources():
        text = (tmp_path / name).read_text(encoding="utf-8")
        if "REPLACED.get(" in text:
            ast.parse(text)
            changed += 1
    assert changed > 20
    queues = (tmp_path / "src/polydomo/broker/queues.py").read_text(encoding="utf-8")
    assert "def pop(" in queues and "def pop__original(" in queues
    limits = (tmp_path / "src/polydomo/limits.py").read_text(encoding="utf-8")
    assert "OVERSLEPT: float = " in limits and "MAX_QUEUE: Final = " in limits
