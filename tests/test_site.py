"""The documentation site builds without a warning: a broken link or a name that autodoc cannot find is an error."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(source: Path, out: Path, builder: str = "html") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(source / "docs"), "-b", builder]
    return subprocess.run([*command, str(source), str(out)], capture_output=True, text=True, timeout=300, check=False)


def test_the_pages_have_no_warning(tmp_path: Path) -> None:
    """All pages are read and their links resolved, without writing HTML."""
    pytest.importorskip("sphinx")
    run = build(ROOT, tmp_path, "dummy")
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.long
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    run = build(ROOT, tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert "Client" in (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT)).with_suffix(".html").is_file()


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "conf.py").write_text((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), encoding="utf-8")
    (source / "docs" / "index.md").write_text("# Index\n\n[gone](no-such-page.md)\n", encoding="utf-8")
    run = build(source, tmp_path / "out")
    assert run.returncode != 0
    assert "no-such-page" in run.stderr
