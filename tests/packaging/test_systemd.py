"""The systemd units are valid, and name options that the command line has."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted(path.name for path in PACKAGING.glob("*.service"))


def command_of(unit: str) -> list[str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(PACKAGING / unit, encoding="utf-8")
    return parser["Service"]["ExecStart"].split()


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = (PACKAGING / unit).read_text(encoding="utf-8")
    text = text.replace("/opt/polydomo/bin/polydomo", sys.executable)  # verify looks for the program
    copy = tmp_path / unit.replace("@", "@resize")
    copy.write_text(text, encoding="utf-8")
    run = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    mine = [line for line in run.stderr.splitlines() if "polydomo" in line]
    assert (run.returncode, mine) == (0, []), run.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_has_options_that_exist(unit: str) -> None:
    _, command, *arguments = command_of(unit)
    text = subprocess.run(
        [sys.executable, "-m", "polydomo", command, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    options = [
        word for word in arguments[: arguments.index("--") if "--" in arguments else None] if word.startswith("--")
    ]
    assert options
    for option in options:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), option


def test_the_containerfile_copies_files_that_exist() -> None:
    root = PACKAGING.parent
    lines = (PACKAGING / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert (root / name).exists(), name
