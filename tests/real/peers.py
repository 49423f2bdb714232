"""Processes of the real programs, in the environment that ``make real-peers`` makes for them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

ROOT = Path(__file__).parents[2]
# That of the Python that runs the tests: `.venv-real-3.12` belongs to `.venv-3.12`.
OTHER = re.fullmatch(r"\.venv(-[\d.]+)", Path(sys.prefix).name)
HOME = ROOT / f".venv-real{OTHER[1] if OTHER else ''}"
PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 60.0  # seconds for anything that should happen at once, on a machine that is busy


def needs(module: str) -> pytest.MarkDecorator:
    """Skips what needs a package that is not installed there, and says why."""
    why = ""
    if not (HOME / "done").exists():
        failed = HOME / "failed"
        why = failed.read_text(encoding="utf-8").strip() if failed.exists() else "`make real-peers` has not been run"
    elif not list(HOME.glob(f"lib/python3*/site-packages/{module}/__init__.py")):
        why = f"{module} could not be installed with this version of Python"
    return pytest.mark.skipif(bool(why), reason=f"real peers: {why}")


class Program:
    """A process that is gone when the test is over. ``words`` begin with a script of theirs, one of ours, or ``-m module``."""

    inside: tuple[str, ...] = ()  # words that run it somewhere else, such as another network namespace

    def __init__(self, *words: str, **variables: str) -> None:
        first, *rest = words
        if first.endswith(".py"):
            command = [str(HOME / "bin" / "python"), "-u", str(PROGRAMS / first), *rest]
        elif first.startswith("-"):
            command = [str(HOME / "bin" / "python"), "-u", first, *rest]
        else:
            command = [str(HOME / "bin" / "python"), "-u", str(HOME / "bin" / first), *rest]
        # EventMQ's job manager starts processes of its own: they end with it, as a group.
        self.process = subprocess.Popen(
            [*self.inside, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1", **variables},
            start_new_session=True,
        )
        self.log: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.log.append(line.rstrip("\n"))
                self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def kill(self) -> None:
        """Is gone at once, with everything it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """Is asked to leave, as by a person or a service manager; returns its status."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def logged(self, text: str) -> str:
        """Waits for a line of its log that has ``text`` in it."""

        def found() -> list[str]:
            return [line for line in self.log if text in line]

        with self._news:
            self._news.wait_for(lambda: bool(found()), PATIENCE)
            assert found(), f"no {text!r}: {self.log}"
        return found()[-1]

    def say(self, *words: object) -> Any:
        """A line of JSON on its standard input; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.line()

    def line(self) -> Any:
        """The next line of its standard output, read as JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it has ended: {self.log}"
        return json.loads(line)


def run(*words: str, **variables: str) -> list[str]:
    """Runs a program to its end; the lines that it printed."""
    with Program(*words, **variables) as program:
        assert program.process.stdout is not None
        lines = program.process.stdout.read().splitlines()
        assert program.process.wait(PATIENCE) == 0, program.log
    return lines
