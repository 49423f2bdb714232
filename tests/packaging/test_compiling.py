"""The build says why it does not compile the core, and the build for tests has a seam wherever a test replaces something.

The sources are free of constructs that behave differently when they are compiled.
"""

import ast
import configparser
import importlib.util
import re
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


def test_values_of_other_libraries_are_not_checked_by_compiled_code() -> None:
    core = load("compiled_core")
    imported = set()
    for name in core.sources():
        imported |= set(re.findall(r"^(?:import|from) (\w+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
    settings = configparser.ConfigParser()
    settings.read(ROOT / core.CONFIG)
    others = imported - sys.stdlib_module_names - {"polydomo"}
    assert "numpy" in others
    for section in settings.sections():
        if settings[section].get("follow_imports") == "skip":
            others -= {pattern.removesuffix(".*") for pattern in section.removeprefix("mypy-").split(",")}
    assert others == set(), f"name them in {core.CONFIG}"


def test_compiled_classes_are_not_changed_after_their_definition() -> None:
    """Compiled code does not see a method that is set on a compiled class."""
    core = load("compiled_core")
    change = re.compile(r"\bsetattr\((cls|[A-Z])|^[A-Z]\w*\.\w+ = ", re.MULTILINE)
    assert change.search("Tee.ended = _to_both()") and change.search("setattr(Tee, name, _to_both())")
    assert [name for name in core.sources() if change.search((ROOT / name).read_text(encoding="utf-8"))] == []
