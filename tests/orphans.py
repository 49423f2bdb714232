"""Ends the processes that tests left behind when the run is over, and names them.

The process that starts the workers of pytest-xdist puts a mark into the environment, which every process of the run inherits. So nothing
survives a run that was interrupted, or a worker that was killed.
"""

import os
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.stress import send

MARK = "TEST_RUN"
PATIENCE = 20.0  # seconds; a JVM that is told to end may take some


class Orphans:
    """A plugin for the process that starts the others."""

    def __init__(self) -> None:
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        os.environ[MARK] = self.mark.partition("=")[2]

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        end = time.monotonic() + PATIENCE
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.05)
        for process, command in left.items():
            print(f"left behind by a test, and ended: {process} {command}", file=sys.stderr)
        send(list(left), signal.SIGKILL)

    def living(self) -> dict[int, str]:
        """The processes of this run, with their commands, where the system shows them."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue  # it has just ended, or is not ours
        return found
