"""The user's program, in a child process of `polydomo dev`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from polydomo.cli.common.child_guard import ChildGuard
from polydomo.cli.dev.shown import Line

STOP_TIME = 3.0  # seconds; then it is killed


class DevProgram:
    """``show`` gets each line that it prints."""

    def __init__(self, path: Path, arguments: list[str], url: str, show: Callable[[Line], None]) -> None:
        self._words = [sys.executable, "-u", "-m", "polydomo.cli.dev.run_app", str(path), *arguments]
        self._environment = {**os.environ, "POLYDOMO_TO": url}
        self._show = show
        self._guard = ChildGuard()  # it does not outlive this process
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        self._guard.start()
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for this process, which then stops the program
            preexec_fn=self._guard.enter,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._show(Line("app", line.decode(errors="backslashreplace").rstrip()))

    def ended(self) -> int | None:
        """The exit status, once, if it has ended by itself."""
        process = self._process
        if process is None or process.poll() is None:
            return None
        self._finish(process)
        return process.returncode

    def stop(self) -> None:
        """Lets running calls finish, for a moment."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIME)
        except subprocess.TimeoutExpired:
            pass
        self._finish(process)

    def _finish(self, process: "subprocess.Popen[bytes]") -> None:
        """Ends what is left of its process group."""
        self._process = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        self._guard.ended(process.pid)
        if self._reader is not None:
            self._reader.join(STOP_TIME)

    def close(self) -> None:
        self.stop()
        self._guard.close()
