"""``polydomo dev``: a broker, a program that is restarted when its files change, and what is printed."""

import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from polydomo import Client
from polydomo.cli.dev.source_files import MOST_FILES, SourceFiles
from tests.cli.shell import PATIENCE, Running, complaint, run

APP = """
import words
from polydomo import Worker

worker = Worker()

@worker.service("greet")
def greet(call):
    print("greeting", call.text)
    if call.text == "nobody":
        raise ValueError("no name")
    return words.HELLO + call.text
"""


class Developing(Running):
    """``polydomo dev`` in a directory. Its output is read in the background."""

    def __init__(self, here: Path, *words: str) -> None:
        flags = ("--listen", "tcp://127.0.0.1:0")
        super().__init__("dev", *flags, "app.py", *words, cwd=here, limits={"BEATS_MISSED": 40})
        self.lines: list[str] = []
        self.url = self.shows("broker at ").split()[4].rstrip(",")

    def shows(self, text: str) -> str:
        """Waits for a line with this text, after those that were found before."""
        while True:
            line = self.line().decode().rstrip()
            self.lines.append(line)
            if text in line:
                return line

    def shows_both(self, *texts: str) -> list[str]:
        """The same for lines in any order: those of the program come through a pipe of its own."""
        found: dict[str, str] = {}
        while len(found) < len(texts):
            line = self.shows("")
            found |= {text: line for text in texts if text in line}
        return [found[text] for text in texts]

    def call(self, text: str) -> str:
        with Client(self.url, timeout=PATIENCE) as client:
            return client.call("greet", text).text


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "words.py").write_text('HELLO = "hello "\n')
    return tmp_path


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_program_is_restarted_when_a_file_changes(here: Path) -> None:
    with Developing(here) as developing:
        developing.shows("offers greet")
        assert developing.call("ann") == "hello ann"
        developing.shows("call  greet  ok  ")
        (here / "words.py").write_text('HELLO = "good morning "\n')  # a module that it imports
        developing.shows("starting (words.py)")
        developing.shows("offers greet")
        assert developing.call("ben") == "good morning ben"
        developing.shows("app   greeting ben")

        # A syntax error is shown, the worker stays, and the next save tries again.
        (here / "app.py").write_text(APP + "\ndef broken(:\n")
        developing.shows("SyntaxError")
        developing.shows("app.py has a syntax error; waiting for the next change")
        assert developing.call("cat") == "good morning cat"
        (here / "app.py").write_text(APP.replace("words.HELLO", "'bye '"))
        developing.shows("offers greet")
        assert developing.call("dan") == "bye dan"

        # So is a program that ends.
        (here / "app.py").write_text("raise SystemExit(3)")
        developing.shows("app.py ended with status 3")
        (here / "app.py").write_text(APP)
        developing.shows("offers greet")
        with Client(developing.url, timeout=PATIENCE) as client:
            job = client.submit_job("greet", "eve")
            assert client.result(job, wait=PATIENCE).text == "good morning eve"
        developing.send(signal.SIGINT)
        developing.shows("stopping")
        assert developing.status() == 0


def test_both_end_together(here: Path) -> None:
    code = APP + textwrap.dedent("""
        import os, subprocess
        child = subprocess.Popen(["sleep", "1000"])
        print("pids", os.getpid(), child.pid)
        worker.run()
    """)
    for number in (signal.SIGINT, signal.SIGKILL):
        (here / "app.py").write_text(code)
        with Developing(here, "an argument") as developing:
            printed, _ = developing.shows_both("pids ", "offers greet")
            pids = [int(word) for word in printed.split()[-2:]]
            developing.send(number)
            developing.status()
            until(lambda: not any(map(alive, pids)))  # noqa: B023


def test_it_needs_a_program(tmp_path: Path) -> None:
    assert complaint(run("dev", "missing.py", cwd=tmp_path)) == "dev: no such file: missing.py"


def test_the_files_that_are_watched(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", "sub/c.py", ".git/d.py", "node_modules/e.py", "env/f.py", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    files = SourceFiles(tmp_path)
    assert files.changed() == []
    for name in ("a.py", "b.txt", "sub/c.py", ".git/d.py", "node_modules/e.py", "env/f.py"):
        (tmp_path / name).write_text("x = 1")
    assert files.changed() == [tmp_path / "a.py", tmp_path / "sub" / "c.py"]
    (tmp_path / "a.py").unlink()
    (tmp_path / "new.py").write_text("")
    assert files.changed() == [tmp_path / "a.py", tmp_path / "new.py"]
    assert files.changed() == [] and MOST_FILES > 1_000
