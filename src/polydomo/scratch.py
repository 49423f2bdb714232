"""Temporary directories that are removed when the process ends."""

import atexit
import shutil
import tempfile
from pathlib import Path


def scratch_directory(use: str) -> Path:
    """A new directory that only this user can enter. A process that is killed, and a Python worker of Spark, leave it behind."""
    path = tempfile.mkdtemp(prefix=f"polydomo-{use}-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)
