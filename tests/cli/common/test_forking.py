"""Commands that are forked (tests/cli/forking.py) behave like those that Python starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.forking import POLYDOMO, Forked, forks
from tests.cli.shell import Broker, complaint, environment, run
from tests.server.harness import wait_for
from tests.test_running import ended

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("--nonsense",),
        ("access", "check", "--access", "missing.toml"),
        ("config", "--data", "x"),
        ("work",),
    ],
)
def test_the_same_output_and_status(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [*POLYDOMO, *words]
    fresh = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment(), timeout=120)
    forked = run(*words, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_signal_is_its_status(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        assert os.getpgid(broker.process.pid) == os.getpgid(0)
        broker.send(signal.SIGKILL)
        assert broker.status() == -signal.SIGKILL


def test_what_it_reads_and_writes_is_the_callers(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with target.open("wb") as out, Forked([*POLYDOMO, "--version"], stdout=out, env=environment()) as process:
        assert process.wait(120) == 0
    assert target.read_text().startswith("polydomo ")
    assert "no broker answers" in complaint(run("services", POLYDOMO_TO="tcp://127.0.0.1:1"))


def test_variables_of_python_start_it_anew() -> None:
    """-X importtime lists what Python imports: everything, because nothing was loaded before."""
    fresh = run("--version", PYTHONPROFILEIMPORTTIME="1")
    assert fresh.returncode == 0 and b"polydomo.cli.main" in fresh.stderr


def test_the_process_that_forks_has_one_thread_and_ends_with_the_tests() -> None:
    if not os.environ.get("FRESH_PROCESSES"):
        assert len(list(Path(f"/proc/{forks().process.pid}/task").iterdir())) == 1
    program = "from tests.cli.forking import forks; import os; print(forks().process.pid, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=120)
    pid = int(done.stdout)
    wait_for(lambda: ended(pid), "its end")
