"""``make demo``: it exits, all its checks hold, and no process is left."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIME = 600  # seconds; most of it would be Spark's, on a machine that is busy with other tests

pytest.importorskip("zmq", reason="the demo's peers are pyzmq programs")
pytest.importorskip("pynng", reason="one of the demo's clients is an NNG program")

KEY_LINES = [
    r"^1\. One command, one port$",
    r"^   ✓ the broker is up \(tcp://127\.0\.0\.1:\d+\)$",
    r"^   ✓ a client of any protocol reaches a worker of any other \(99 of 99 calls\)$",
    r"^ .* SIGKILL$",
    r"^   ✓ another worker takes over \(\d+\.\d\d s after the kill\)$",
    r"^   ✓ the client gets one reply, not two",
    r"^ .* broker: stale reply of w\d+ dropped, ",
    r"^   ✓ the late reply is dropped",
    r"^ .* MDX client: 'tile 1 of Oslo'$",
    r"^   polydomo: failed: RuntimeError: out of toner$",
    r"^   ✓ clients of a service are served round robin",
    r"^   ✓ metadata is returned unchanged$",
    r"^   ✓ the catalog lists services of every protocol",
    r"^   ✓ a late subscriber gets the last value \(20\.4\)$",
    r"^You will see \d+ short steps",
    r"^   ✓ an HTTP client reaches an MDP worker \(Kim greets curl\)$",
    r"^   ✓ the new broker has the job \(queued\)$",
    r"^   ✓ its result can be fetched \(STILL HERE\)$",
    r"^   ✓ bob may not call another one \(denied: ",
    r"^   ✓ a client without a known key is rejected",
    r"^   \$ polydomo services$",
    r"^   ✓ no process is left",
    r"^All \d+ checks passed \(\d+ s\)\.$",
]
REPORT_LINES = [r"^   ✓ the report is written \(.*\.html\)$|^The pipeline is not shown: "]


def living(group: int) -> list[str]:
    """The running processes of a group, without zombies."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
            state, _, number = stat.rpartition(")")[2].split()[:3]
            if int(number) == group and state not in "ZX":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # ended while it was looked at
    return found


def play(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the demo in a process group of its own, which is empty afterwards."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=TIME)
        end = time.monotonic() + 60  # a process that was told to end may take a moment on a busy machine
        while left := living(process.pid):
            assert time.monotonic() < end, left
            time.sleep(0.05)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out)


WITHOUT_REPORT = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from demo import demo, stage, steps; steps.STEPS.remove((steps.report.TITLE, steps.report.run));"
    "stage.SETTINGS += ['--beats-missed', '12']; steps.stale.CROSSED *= 4;"  # a slow machine keeps workers silent
    "sys.exit(demo.main())"
)


@pytest.mark.timeout(TIME + 20)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_demo_exits_and_prints_correct_results(whole: bool, tmp_path: Path) -> None:
    """The short form leaves out the step that starts Spark, which takes more time than all others; tests/pipeline has its parts."""
    words = (str(ROOT / "demo" / "demo.py"),) if whole else ("-c", WITHOUT_REPORT, str(ROOT))
    run = play(*words, TMPDIR=str(tmp_path))
    assert run.returncode == 0, run.stdout
    for line in KEY_LINES + REPORT_LINES * whole:
        assert re.search(line, run.stdout, re.MULTILINE), f"no {line}\n{run.stdout}"
    assert "✗" not in run.stdout
    assert "\x1b" not in run.stdout  # no terminal, no colours


def test_a_failed_check_is_the_exit_status() -> None:
    """A demo that could not fail would show nothing."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from demo import demo, steps;"
        "steps.STEPS[1:] = [('Broken', lambda stage: stage.show.check('two is three', 2 == 3)), ('Raises', lambda stage: 1 / 0)];"
        "sys.exit(demo.main())"
    )
    run = play("-c", code, str(ROOT))
    assert run.returncode == 1, run.stdout
    assert "✗ two is three" in run.stdout
    assert "✗ the step runs to its end (ZeroDivisionError: division by zero)" in run.stdout
    assert "2 of 3 checks failed" in run.stdout


def test_output_without_unicode_uses_words_instead_of_ticks() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from demo import demo, steps; del steps.STEPS[1:]; sys.exit(demo.main())"
    )
    run = play("-c", code, str(ROOT), PYTHONIOENCODING="ascii")
    assert run.returncode == 0, run.stdout
    assert "   ok the broker is up" in run.stdout
