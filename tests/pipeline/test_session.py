"""The class archive of sessions: what a killed process left behind is removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polydomo.pipeline import java, session


def test_archives_that_nothing_will_use_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(java, "own_directory", lambda: tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = tmp_path / f"spark-0123456789ab.{ended.pid}"
    writing = tmp_path / f"spark-0123456789ab.{os.getpid()}"
    old, recent = tmp_path / "spark-00000000000a.jsa", tmp_path / "spark-00000000000b.jsa"
    own = session.ClassArchive("/java").path
    for file in (killed, writing, old, recent, own):
        file.write_bytes(b"classes")
    for file in (old, own):
        os.utime(file, (0, 0))
    archive = session.ClassArchive("/java")
    assert sorted(tmp_path.iterdir()) == sorted([writing, recent, own])
    archive.keep()
    assert own.stat().st_mtime > 0, "an archive in use must not look old"
