"""``polydomo`` as a shell runs it: real processes, whose logs say when they are ready."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cli.forking import POLYDOMO as POLYDOMO  # imported from here, too
from tests.cli.forking import Forked

WITH_LIMITS = [sys.executable, str(Path(__file__).parent.parent / "with_limits.py")]
PATIENCE = 60.0  # seconds for anything that should happen at once, on a machine that is busy
COMMAND = 120.0  # ... for a whole command: it starts Python and loads its modules


def environment(**more: str) -> dict[str, str]:
    """The caller's variables without those that would set something."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("POLYDOMO_")}
    return {**plain, "COLUMNS": "200", **more}


def run(
    *words: str, stdin: bytes = b"", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    command = [*POLYDOMO, *words]
    pipe = subprocess.PIPE
    with Forked(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=environment(**variables)) as process:
        try:
            out, err = process.communicate(stdin, COMMAND)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run_into_timeout(*words: str) -> tuple[subprocess.CompletedProcess[bytes], str]:
    """A call that gets no reply, and its timeout: a longer one where the command cannot even connect within a shorter one."""
    for timeout in ("0.3", "3", "20"):
        result = run(*words, "--timeout", timeout)
        if result.returncode != 5:
            break
    assert result.returncode == 3
    return result, timeout


def complaint(result: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on standard error; a second line, or anything on standard output, is a failure."""
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert result.stdout == b""
    assert lines[0].startswith("polydomo: ")
    return lines[0].removeprefix("polydomo: ")


class Running:
    """A long-running process with a JSON log. It is always stopped after the test."""

    inside: tuple[str, ...] = ()  # words that run it somewhere else, such as another network namespace

    def __init__(
        self, *words: str, cwd: Path | None = None, limits: dict[str, float] | None = None, **variables: str
    ) -> None:
        program = [*WITH_LIMITS, *(f"{name}={value}" for name, value in limits.items())] if limits else POLYDOMO
        popen = subprocess.Popen if limits or self.inside else Forked
        self.process = popen(
            [*self.inside, *program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment(**variables),
        )
        RECENT.append(self)
        self.started = time.time()
        self.entries: list[dict[str, Any]] = []  # the log's lines that are JSON
        self.said: list[str] = []  # its other lines
        self._asked_to_stop = False
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            line = raw.decode(errors="replace").rstrip("\n")
            with self._news:
                try:
                    self.entries.append(json.loads(line))
                except ValueError:
                    self.said.append(line)
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def concerns(self, start: float) -> bool:
        """Whether a test that began at this time may have used the process."""
        return self.started >= start or self.process.poll() is None

    def summary(self) -> str:
        """Its state and the last lines of its log, for the report of a failed test."""
        with self._news:
            lines = [*map(json.dumps, self.entries[-12:]), *self.said[-12:]]
        return "\n".join([f"{self.process.args!r}: exit status {self.process.poll()}", *lines])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            if not self._asked_to_stop:  # a second signal would end it at once, with another exit status
                self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        if kind is None:
            bugs = [entry for entry in self.entries if entry.get("message") == "internal error"]
            assert not bugs, f"{self.process.args!r} logged internal errors: {bugs}"

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the log meets the condition."""
        with self._news:
            self._news.wait_for(lambda: condition() or self._over, PATIENCE)
            assert condition(), f"no {what}: {self.entries} {self.said}"

    def logged(self, message: str, **fields: object) -> dict[str, Any]:
        """Waits for a line of the log."""

        def found() -> list[dict[str, Any]]:
            return [entry for entry in self.entries if entry["message"] == message and fields.items() <= entry.items()]

        self.wait_until(lambda: bool(found()), message)
        return found()[0]

    def send(self, number: signal.Signals) -> None:
        self._asked_to_stop |= number in (signal.SIGTERM, signal.SIGINT)
        self.process.send_signal(number)

    def status(self) -> int:
        """Waits for its end."""
        return self.process.wait(PATIENCE)

    def line(self) -> bytes:
        """The next line of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()


RECENT: deque[Running] = deque(maxlen=8)  # the newest processes: a failed test reports their logs


class Broker(Running):
    """``polydomo up``, ready. It keeps a journal only where a flag says so: loading its library takes as long as the rest of the start.

    A worker may be silent for more than a minute, since a busy machine lets one wait for many seconds. A test that wants another time has
    a flag for it.
    """

    def __init__(
        self,
        data: Path,
        *words: str,
        listen: str = "tcp://127.0.0.1:0",
        default_journal: bool = False,
        limits: dict[str, float] | None = None,
    ) -> None:
        if not default_journal and not any(word.startswith("--journal") for word in words):
            words = ("--journal=off", *words)
        if not any(word.startswith("--beat") for word in words):
            words = ("--beats-missed=40", *words)
        super().__init__("up", "--listen", listen, "--data", str(data), "--log-json", *words, limits=limits)
        try:
            self.logged("ready")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.url: str = self.logged("listening")["address"]

    @contextlib.contextmanager
    def worker(self, service: str, *words: str) -> Iterator[Running]:
        """``polydomo work``, registered."""
        with Running("work", service, "--to", self.url, "--log-json", *words) as worker:
            self.logged("worker registered", services=service)
            yield worker

    def ask(self, what: str) -> Any:
        """The broker's answer to a listing command."""
        result = run(what, "--to", self.url, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


def script(text: str) -> list[str]:
    """The words after ``work SERVICE`` that serve it with a shell script."""
    return ["--", "sh", "-c", text]


class Gate:
    """Lets a program wait until the test continues it: the program writes to one FIFO and reads from another."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._inside = directory / "inside"
        self._go = directory / "go"
        os.mkfifo(self._inside)
        os.mkfifo(self._go)
        self.script = f"echo in >'{self._inside}'; read word <'{self._go}'"

    def wait(self) -> None:
        """Until the program is at the gate."""
        assert self._inside.read_text() == "in\n"

    def open(self) -> None:
        self._go.write_text("go\n")
