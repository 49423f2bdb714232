"""A system that has too little left: starting, accepting and stopping fail with one clear line, and leave nothing behind."""

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from polydomo import limits
from polydomo.cli.broker.up import process_count
from polydomo.errors import SettingError
from polydomo.server import resources
from polydomo.server.resources import need_files, remedy
from polydomo.server.settings.settings import Settings
from tests.cli import shell
from tests.server.harness import Broker, wait_for
from tests.server.raw import Raw, dealer

MEMORY = 96 * limits.MIB
LIMIT = 256  # files that a broker of these tests may open
# ``polydomo`` without its check, as if the files were used up just after it
UNCHECKED = """
from polydomo.server import resources
resources.need_files = lambda: None
from polydomo.cli.main import app
app()
"""
STEPS = range(9, 24)  # files left; with fewer, modules cannot be loaded
# Leaves some files free for the program that it becomes
LAUNCHER = """
import os, resource, sys
most, free = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for number in range(3, most - free):
    os.dup2(0, number)
os.closerange(most - free, most)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def start(path: Path, free: int, program: tuple[str, ...] = tuple(shell.POLYDOMO)) -> subprocess.Popen[bytes]:
    """``polydomo up`` with ``free`` files left: the program that starts it has left all others open."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(LIMIT), str(free), *program,
         "up", "--listen", "tcp://127.0.0.1:0", "--listen", f"ipc://{path}/broker.sock",
         "--data", str(path / "data"), "--dbp-beacon", "127.0.0.1:9", "--log-json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shell.environment(),
    )  # fmt: skip


def ends(process: subprocess.Popen[bytes], path: Path) -> str:
    """Waits for its end: status 2, one line, and nothing left. Returns the line."""
    out, err = process.communicate(timeout=shell.PATIENCE)
    (line,) = err.decode().splitlines()
    assert (process.returncode, out) == (2, b"")
    assert line.startswith("polydomo: ")
    assert not (path / "broker.sock").exists() and not (path / "data" / ".writable").exists()
    return line


@pytest.mark.parametrize("free", [8, limits.START_FILES - 1])
def test_a_broker_with_too_few_free_files_names_the_limit_to_raise(tmp_path: Path, free: int) -> None:
    line = ends(start(tmp_path, free), tmp_path)
    assert f"only {free} more files can be opened, and the broker needs {limits.START_FILES} to start" in line
    assert "`ulimit -n 4096`" in line
    assert not (tmp_path / "data").exists(), "nothing was made"


@pytest.mark.parametrize(
    "free", [pytest.param(free, marks=() if free in (9, 14) else pytest.mark.long) for free in STEPS]
)
def test_a_start_without_free_files_reports_it_and_leaves_nothing_behind(tmp_path: Path, free: int) -> None:
    process = start(tmp_path, free, (sys.executable, "-c", UNCHECKED))
    lines: list[str] = []
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr as log:
        for raw in log:
            lines.append(raw.decode().rstrip("\n"))
            if '"message": "ready"' in lines[-1]:
                process.terminate()
    status = process.wait(shell.PATIENCE)
    # uvloop prints that line when it cannot open the files of an event loop
    others = [line for line in lines if not line.startswith("{") and line != "deallocating an open event loop"]
    if any('"message": "ready"' in line for line in lines):
        assert (status, others) == (0, [])
    else:
        assert len(others) == 1, others
        line = others[0]
        assert status == 2 and line.startswith("polydomo: ") and "too many open files; raise the limit" in line
    assert not (tmp_path / "broker.sock").exists()


def test_the_check_leaves_no_file_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    need_files(100)
    assert len(os.listdir("/proc/self/fd")) == before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, before + 50), hard))
    try:
        with pytest.raises(SettingError, match="more files can be opened, and the broker needs 100"):
            need_files(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before


def test_every_remedy_names_an_action() -> None:
    assert "LimitNOFILE" in remedy(OSError(errno.EMFILE, "Too many open files"))
    assert "fs.file-max" in remedy(OSError(errno.ENFILE, "Too many open files in system"))
    assert "memory" in remedy(MemoryError())
    assert remedy(OSError(errno.EACCES, "Permission denied")) == "Permission denied"


def test_a_broker_that_cannot_accept_logs_it_once_and_continues(tmp_path: Path) -> None:
    """libuv closes peers without a free file descriptor and does not report it."""
    with Broker(tmp_path) as broker:
        pid = broker.process.pid
        with dealer(broker.address) as first:
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (broker.files(), hard))
            extra = [Raw(broker.address) for _ in range(4)]
            why = broker.logged("connections are not accepted")["why"]
            assert "too many open files" in why and "ulimit -n" in why
            assert first.call(b"mmi.service", b"x") == [b"404"], "those who are there are served"
            time.sleep(1.5)  # two more looks
            assert len(broker.lines("connections are not accepted")) == 1
            for peer in extra:
                peer.socket.close()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            broker.logged("connections are accepted again")
        wait_for(lambda: broker.ask("status")["connections"] == 1, "new peers")


@pytest.mark.parametrize("words", [("--data", "/dev/null/x"), ("--listen", "ipc:///nowhere/at/all.sock")])
def test_other_failures_of_a_start_are_one_line_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*shell.POLYDOMO, "up", "--listen", f"ipc://{tmp_path}/broker.sock", "--log-level=warning", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=shell.environment(),
    )
    assert words[1].rpartition("/")[0].split("//")[-1] in ends(process, tmp_path)


# ``polydomo`` on a system that starts no more threads
WITHOUT_THREADS = """
import threading
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
from polydomo.cli.main import app
app()
"""


def test_a_start_without_threads_is_one_line_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            WITHOUT_THREADS,
            "up",
            "--listen",
            f"ipc://{tmp_path}/broker.sock",
            "--log-level=warning",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=shell.environment(),
    )
    line = ends(process, tmp_path)
    assert "cannot start the journal: can't start new thread" in line and "`ulimit -u`" in line
    assert not list(tmp_path.rglob("*.run")), "the run that never began is not left for the next start to recover"


@contextmanager
def limited(files: "list[tuple[str, str]]", limit: str) -> Iterator[Path]:
    """A control group with this limit, which is in the first of these files that exists."""
    for root, file in files:
        place = Path(root) / f"polydomo-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            if (place / file).exists():  # otherwise no control groups are mounted there
                (place / file).write_text(limit)
                yield place
                return
        except OSError:
            continue
        finally:
            place.rmdir()
    pytest.skip("control groups cannot be made here")


def printed_in(group: Path, expression: str) -> str:
    """What a process of the group prints."""
    code = f"from polydomo.server import resources; print(resources.{expression})"
    enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    words = ["sh", "-c", enter, str(group), sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=shell.PATIENCE, env=shell.environment())
    return done.stdout.strip() or done.stderr


def test_the_limit_of_the_control_group_is_the_memory_of_the_broker() -> None:
    files = [(root, memory) for root, memory, _ in resources.CGROUPS.values() if memory]
    with limited(files, str(MEMORY)) as group:
        inner = group / "inner"  # it has no limit of its own
        inner.mkdir()
        try:
            assert [printed_in(place, "available_memory()") for place in (group, inner)] == [str(MEMORY)] * 2
        finally:
            inner.rmdir()


def test_the_quota_of_the_control_group_limits_the_processes_of_the_broker() -> None:
    """Half of a core is one process, on a machine with any number of cores."""
    files = [(root, cpu) for root, _, cpu in resources.CGROUPS.values() if cpu]
    with limited(files, "50000") as group:
        assert printed_in(group, "available_cores()") == "1"


@pytest.mark.parametrize(
    ("file", "text", "period", "cores"),
    [
        ("cpu.max", "max 100000", "", 0.0),
        ("cpu.max", "250000 100000", "", 2.5),
        ("cpu.cfs_quota_us", "-1", "100000", 0.0),
        ("cpu.cfs_quota_us", "20000", "10000", 2.0),
        ("cpu.cfs_quota_us", "20000", "", 0.0),
        ("cpu.cfs_quota_us", "20000", "0", 0.0),
        ("cpu.max", "", "", 0.0),
    ],
)
def test_quotas_of_both_versions_of_control_groups(
    tmp_path: Path, file: str, text: str, period: str, cores: float
) -> None:
    (tmp_path / file).write_text(text + "\n")
    if period:
        (tmp_path / resources.PERIOD).write_text(period + "\n")
    assert resources._quota(tmp_path / file) == cores
    assert resources._quota(tmp_path / "no-such-file") == 0.0


def test_a_quota_is_rounded_up_and_the_smallest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [tmp_path / name for name in ("outer", "inner", "none")]
    for group, text in zip(groups, ("250000 100000", "150000 100000", "max 100000"), strict=True):
        group.mkdir()
        (group / "cpu.max").write_text(text)
    monkeypatch.setattr(resources, "_cgroups", lambda: [(group, "memory.max", "cpu.max") for group in groups])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert resources.available_cores() == 2
    assert process_count(Settings(processes=0)) == 2 and process_count(Settings(processes=5)) == 5
