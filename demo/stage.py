"""The stage of the demo: a broker and workers as separate processes, and the command line. Nothing is left at the end."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polydomo
from demo.show import Show

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60.0  # seconds for anything that should happen immediately, on a busy machine
POLITE = 3.0  # seconds for a process to exit after SIGTERM

# MDP workers are lost after three of these intervals, instead of three times 2.5 s. The journal keeps every message for the last steps.
SETTINGS = ["--beat", "500ms", "--journal", "messages"]


class Process:
    """A child process: its standard output as lines, its standard error as JSON log entries."""

    def __init__(self, *words: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYDOMO_")}
        self.popen = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.log: list[dict[str, Any]] = []
        self.said: list[str] = []  # lines of standard error that are not log entries
        self._over = False  # it has closed its standard error, so it has exited
        self._news = threading.Condition()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.put(line.rstrip("\n"))

    def _read_log(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            with self._news:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.said.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def line(self) -> str:
        """The next line of its standard output."""
        try:
            return self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"the process printed nothing within {PATIENCE:g} s") from None

    def logged(self, message: str, since: int = 0, **fields: object) -> dict[str, Any]:
        """Waits for a log entry after the first ``since`` ones."""

        def found() -> dict[str, Any] | None:
            for entry in self.log[since:]:
                if entry.get("message") == message and fields.items() <= entry.items():
                    return entry
            return None

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._over, PATIENCE)
            entry = found()
        if entry is None:
            why = "since the process ended" if self._over else f"within {PATIENCE:g} s"
            raise TimeoutError(f"no log entry {message!r} {why}; {' '.join(self.said[-3:])}")
        return entry

    def go(self) -> None:
        """Lets a worker that holds a request continue."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("go\n")
        self.popen.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def end(self) -> int:
        """Stops the process gracefully or by force; returns the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)  # a stopped process (SIGSTOP) would not handle another signal
            self.popen.terminate()
            try:
                self.popen.wait(POLITE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        status = self.popen.wait()
        for reader in self._readers:
            reader.join(POLITE)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        return status


def polydomo_run(*words: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Runs ``polydomo ...`` until it exits."""
    return subprocess.run(
        [sys.executable, "-m", "polydomo", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=patience,
        cwd=ROOT,
    )


class Stage:
    """One broker for the whole demo, and the processes that the steps add."""

    broker: Process
    url = ""

    def __init__(self, show: Show) -> None:
        self.show = show
        self.processes: list[Process] = []
        self._directory = tempfile.TemporaryDirectory(prefix="polydomo-demo-")
        self.root = Path(self._directory.name)
        self.data = self.root / "data"

    # --- the broker ------------------------------------------------------------------------------------------------------

    def start_broker(self) -> None:
        self.broker, self.url = self.up(self.data, "tcp://127.0.0.1:0", *SETTINGS)

    def up(self, data: Path, listen: str, *settings: str) -> tuple[Process, str]:
        """Starts a broker; returns its process and its address."""
        words = ["-m", "polydomo", "up", "--listen", listen, "--data", str(data), "--log-json", *settings]
        process = self._start(*words)
        process.logged("ready")
        return process, str(process.logged("listening")["address"])

    def ask(self, what: str) -> Any:
        """An answer of the broker: ``services``, ``workers``, ``requests``, ..."""
        with polydomo.Client(self.url, "mdp1", timeout=PATIENCE) as client:
            return client.call(f"polydomo.{what}").json()

    def wait_until(self, what: str, condition: Callable[[Any], bool]) -> Any:
        """Asks until the answer meets the condition."""
        end = time.monotonic() + PATIENCE
        with polydomo.Client(self.url, "mdp1", timeout=PATIENCE) as client:
            while not condition(answer := client.call(f"polydomo.{what}").json()):
                if time.monotonic() > end:
                    raise TimeoutError(f"the broker's {what} did not reach the expected state: {answer}")
                time.sleep(0.02)
        return answer

    # --- workers ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def worker(self, protocol: str, service: str, job: str, name: str, hold: int = 0) -> Iterator[Process]:
        """A worker as a separate process; inside the ``with`` block it is registered."""
        known = self.known()
        process = self.start_worker(protocol, service, job, name, hold)
        try:
            self.registered(service, known)
            yield process
        finally:
            process.end()

    def known(self) -> set[str]:
        """The registered workers."""
        return {row["worker"] for row in self.ask("workers")}

    def registered(self, service: str, known: set[str]) -> None:
        """Waits for one worker more than the known ones. The log is no substitute, because it summarises many equal lines of one second."""
        self.wait_until(
            "workers", lambda rows: any(row["worker"] not in known and service in row["services"] for row in rows)
        )

    def start_worker(self, protocol: str, service: str, job: str, name: str, hold: int = 0) -> Process:
        return self._start("-m", "demo.peers.worker", self.url, protocol, service, job, name, str(hold))

    def _start(self, *words: str) -> Process:
        process = Process(*words)
        self.processes.append(process)
        return process

    # --- the command line ------------------------------------------------------------------------------------------------

    def command(self, *words: str) -> int:
        """Runs ``polydomo ...`` against the broker and prints the command and its output; returns the exit status."""
        run = polydomo_run(*words, "--to", self.url)
        self.show.output(f"polydomo {' '.join(words)}", run.stdout + run.stderr)
        return run.returncode

    # --- the end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stops every process, the broker last, and removes all files."""
        for process in reversed(self.processes):
            process.end()
        self._directory.cleanup()

    def left_over(self) -> list[int]:
        """Processes that are still running."""
        return [process.popen.pid for process in self.processes if process.popen.poll() is None]
