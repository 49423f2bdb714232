"""How tests are run: those that failed while the machine stood still again, on a machine made slow, and with nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.stress import running, stop_for

ROOT = Path(__file__).parent.parent
SCENE = """
import os
import subprocess
import sys

sys.path.insert(0, {root!r})
RUNS = []

def stand_still():
    subprocess.run(["sh", "-c", f"(kill -STOP {{os.getpid()}}; sleep {pause}; kill -CONT {{os.getpid()}}) & wait"], check=True)

def test_once():
    RUNS.append(1)
    if len(RUNS) == 1:
        stand_still()
        assert False, "only the first time"

def test_never():
    stand_still()

def test_always():
    assert False, "the machine did not stand still"
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_end_of_a_run_counts_what_ran_again(tmp_path: Path, processes: str) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.stalls import Stalls\n\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Stalls())\n"
    )
    (tmp_path / "test_scene.py").write_text(SCENE.format(root=str(ROOT), pause=2.5))
    done = run(tmp_path, processes).stdout
    assert "1 failed, 2 passed" in done, done
    # test_always runs again as well if this machine pauses just then.
    assert re.search("(1 test|2 tests) ran again after the machine stood still", done), done
    assert "test_scene.py::test_once: it stood still for " in done, done
    assert "test_never" not in done, done


HANGING = """
import signal
import threading

import pytest

@pytest.mark.parametrize("n", range(40))
def test_before(n):
    pass

@pytest.mark.timeout(1)
def test_that_no_signal_ends():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()
"""


def test_a_test_that_its_time_limit_cannot_end_ends_with_its_process(tmp_path: Path) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["faulthandler_exit_on_timeout"] and options["faulthandler_timeout"] > options["timeout"]
    (restarts,) = [word for word in options["addopts"] if word.startswith("--max-worker-restart")]
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntimeout = 0\nfaulthandler_timeout = 15\nfaulthandler_exit_on_timeout = true\n"
        f"addopts = {restarts} --dist loadgroup\n"
    )
    (tmp_path / "test_scene.py").write_text(HANGING)
    done = run(tmp_path, "2")
    assert "1 failed, 40 passed" in done.stdout, done
    assert "crashed while running 'test_scene.py::test_that_no_signal_ends'" in done.stdout, done
    assert "in test_that_no_signal_ends" in done.stderr, done


def run(directory: Path, processes: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", "--rootdir", ".", "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "STALLED_"))}
    return subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=250)


def test_a_stop_reaches_every_process_and_leaves_alone_what_was_stopped_before() -> None:
    program = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            both = running(parent.pid)
            assert len(both) == 2
            os.kill(both[1], signal.SIGSTOP)
            while running(parent.pid) != both[:1]:
                pass
            stop_for(parent.pid, 0.01)
            assert running(parent.pid) == both[:1]  # the parent runs again; its child is stopped still
            os.kill(both[1], signal.SIGCONT)
            while running(parent.pid) != both:
                pass
        finally:
            parent.communicate(b"\n")


def test_processes_that_tests_leave_behind_are_ended_and_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests import orphans\norphans.PATIENCE = 0.2\n\n\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n        config.pluginmanager.register(orphans.Orphans())\n"
    )
    (tmp_path / "test_scene.py").write_text(
        "import os, signal, subprocess, sys\n\ndef test_it():\n"
        "    words = [sys.executable, '-c', 'import time; time.sleep(600)', 'left-behind']\n"
        "    process = subprocess.Popen(words, start_new_session=True)\n"
        "    open('process', 'w').write(str(process.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"  # the worker: nobody has time to end anything
    )
    done = run(tmp_path, "1")
    process = (tmp_path / "process").read_text()
    assert f"left behind by a test, and ended: {process} " in done.stderr, done.stdout + done.stderr
    while not ended(int(process)):
        pass


def ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
