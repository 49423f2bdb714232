"""A source install is pure unless compiling is asked for, and the build for tests has a seam wherever a test replaces something.

The sources are free of constructs that behave differently when they are compiled.
"""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.modules import ROOT, load

PATIENCE = 120.0  # seconds


def test_a_source_install_is_pure_by_default(tmp_path: Path) -> None:
    """The backend builds a wheel for any machine, without mypy, also where a C compiler is present."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("packaging", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    code = (
        "import sys; sys.path.insert(0, 'packaging'); import backend; "
        "print([name for name in backend.get_requires_for_build_wheel() if 'mypy' in name], backend.build_wheel('.'))"
    )
    settings = {name: value for name, value in os.environ.items() if name != "POLYDOMO_COMPILED"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("[] polydomo-")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as files:
        assert not [name for name in files.namelist() if name.endswith((".so", ".pyd"))]
        assert "polydomo/broker/broker.py" in files.namelist()


def test_compiling_is_asked_for_and_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDOMO_COMPILED", "1")
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    backend = load("backend")
    assert any(needed.startswith("mypy") for needed in backend.get_requires_for_build_wheel())
    with pytest.raises(
        RuntimeError, match=r"the core cannot be compiled: no C compiler \(no-such-compiler\) was found"
    ):
        backend.build_wheel(str(tmp_path))
    assert "POLYDOMO_COMPILE_CORE" not in os.environ


def test_released_wheels_and_containers_are_compiled() -> None:
    made = subprocess.run(
        ["make", "-n", "wheel"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    assert re.search(r"POLYDOMO_COMPILED=1 .*pip.* wheel ", made)
    assert "POLYDOMO_COMPILED=1" in (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")


def test_the_core_is_compiled_with_as_many_processes_as_there_are_cores() -> None:
    assert len(os.sched_getaffinity(0)) == load("compiled_core").JOBS


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
    queues = (tmp_path / "src/polydomo/broker/requests/queues.py").read_text(encoding="utf-8")
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
