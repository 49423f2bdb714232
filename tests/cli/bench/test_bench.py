import asyncio
import csv
import io
import json
import signal
import tempfile
import time
from array import array
from contextlib import suppress
from pathlib import Path

import pytest

from polydomo.cli.bench.bench import report
from polydomo.cli.bench.load import Load, LoadResult
from polydomo.cli.bench.pace import Pacer
from polydomo.cli.common.exit_status import FAILED
from tests.cli.shell import Broker, Running, complaint, run
from tests.server.harness import wait_for

FEW = ["--clients", "2", "--workers", "2", "--outstanding", "3"]


def measured(*words: str, scratch: str = tempfile.gettempdir()) -> "tuple[str, int]":
    """What a short run prints, and its seconds: more if a busy machine gave it no time for a whole call."""
    for seconds in (1, 5, 20):
        result = run("bench", "--duration", str(seconds), *FEW, *words, TMPDIR=scratch)
        if result.returncode != FAILED:
            break
    assert result.returncode == 0, (result.stdout, result.stderr)
    return result.stdout.decode(), seconds


def test_a_broker_of_its_own_and_a_row_for_each_protocol_and_size(tmp_path: Path) -> None:
    words = ["-p", "mdx", "-p", "mdp1", "--size", "0", "--size", "5000", "--csv"]
    printed, _ = measured(*words, scratch=str(tmp_path))
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [(row["protocol"], row["size_bytes"]) for row in rows] == [
        ("mdx", "0"),
        ("mdx", "5000"),
        ("mdp1", "0"),
        ("mdp1", "5000"),
    ]
    for row in rows:
        assert int(row["requests"]) > 0
        assert row["failed"] == "0"
        times = [float(row[f"{name}_us"]) for name in ("p50", "p90", "p99", "p999", "max")]
        assert times == sorted(times)
        assert times[0] > 0
    assert list(tmp_path.iterdir()) == []  # its broker's data went with it


def test_a_broker_that_runs(broker: Broker) -> None:
    printed, seconds = measured("--to", broker.url)
    lines = printed.splitlines()
    assert lines[0] == f"2 clients with 3 calls outstanding each, 2 workers, {seconds} s"
    assert lines[1].split() == ["PROTOCOL", "SIZE", "REQUESTS/S", "P50", "P90", "P99", "P99.9", "MAX", "FAILED"]
    assert lines[2].split()[0] == "mdx"
    assert broker.ask("workers") == []


def test_json(broker: Broker) -> None:
    printed, seconds = measured("--json", "--to", broker.url)
    [row] = json.loads(printed)
    assert row["requests_per_second"] == pytest.approx(row["requests"] / seconds, abs=0.1)
    assert row["broker_cpu_us"] is None  # the broker is not ours to look at


def test_no_broker(tmp_path: Path) -> None:
    result = run("bench", "--duration", "1", *FEW, "--to", f"ipc://{tmp_path}/s")
    assert result.returncode == 5
    assert "no broker answers" in complaint(result)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not show a process's children")
@pytest.mark.parametrize("own", [True, False])
def test_sigkill_leaves_no_process_behind(tmp_path: Path, broker: Broker, own: bool) -> None:
    """The broker that it started, and the workers."""
    words = [] if own else ["--to", broker.url]
    with Running("bench", "--duration", "600", *words, TMPDIR=str(tmp_path)) as bench:
        wait_for(lambda: len(programs_of(bench.process.pid)) == 1 + own, "its processes")
        started = programs_of(bench.process.pid)
        bench.send(signal.SIGKILL)
        assert bench.status() == -signal.SIGKILL
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), f"the end of {started}")


def programs_of(pid: int) -> list[int]:
    """Process ids of the other ``polydomo`` that this one runs. A child may end between two looks."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            if b"polydomo" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not show a process's children")
def test_ctrl_c_leaves_nothing_behind() -> None:
    with Running("bench", "--duration", "600") as bench:
        pid = bench.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        while len(started := children.read_text().split()) < 2:
            assert bench.process.poll() is None
        bench.send(signal.SIGINT)
        assert bench.status() == 130
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in started), "the end of all processes")
        assert bench.said == []


def test_percentiles_are_the_nearest_ranks() -> None:
    outcome = LoadResult(Load("mdx", 1, 1, 1, 1, 2.0), array("d", [0.4, 0.1, 0.3, 0.2]))
    assert outcome.percentiles(0.25, 0.5, 0.51, 0.99, 1.0) == [0.1, 0.2, 0.3, 0.4, 0.4]
    assert outcome.rate == 2.0
    [nothing] = LoadResult(Load("mdx", 1, 1, 1, 1, 2.0)).percentiles(0.5)
    assert nothing != nothing


def test_an_open_loop_with_several_processes_and_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "latency.svg"
    words = ["--rate", "200", "--duration", "1", "--processes", "2", "--plot", str(plot)]
    result = run("bench", *words, TMPDIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert lines[0] == "4 clients with 200 calls/s in all, 8 workers, broker processes: 2, 1 s"
    assert int(lines[2].split()[3]) <= 200  # calls that were answered after the end do not count
    assert any(line.startswith("  50.00 %") for line in lines)
    assert "<polyline" in plot.read_text()


def test_a_rate_that_is_too_high_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    load = Load("mdx", 1, 1, 1, 1, 2.0, credit=4, rate=1000.0)
    outcome = LoadResult(load, array("d", [0.1] * 500), late=300)
    outcome.errors["unanswered"] = 1500
    report([outcome])
    printed = capsys.readouterr()
    assert (
        printed.out.splitlines()[0] == "1 client with 1,000 calls/s in all, 1 worker, each holding up to 4 calls, 2 s"
    )
    assert printed.out.splitlines()[2].split()[3] == "100" and "1500 unanswered" in printed.out
    assert printed.err.startswith("Only 100 of 1,000 calls/s were answered in time")
    report([LoadResult(load, array("d", [0.1] * 2000), late=99)])
    assert capsys.readouterr().err == ""


def test_processes_of_a_broker_that_is_not_ours() -> None:
    result = run("bench", "--to", "tcp://127.0.0.1:1", "--processes", "2")
    assert result.returncode == 2
    assert "--processes" in complaint(result)


def test_calls_are_due_at_fixed_times_even_if_the_loop_stops() -> None:
    """The time at which a call was due counts, not the time at which it was made: no coordinated omission."""
    due: list[tuple[float, int]] = []

    async def play() -> tuple[float, int]:
        begin = time.perf_counter() + 0.01

        def made(when: float, count: int) -> None:
            due.append((when, count))
            if len(due) == 5:
                time.sleep(0.1)

        return begin, await Pacer(2000.0, begin, begin + 0.25, made).run()

    begin, count = asyncio.run(play())
    assert count == 500 and sum(number for _, number in due) == 500
    assert [when for when, _ in due] == pytest.approx([begin + 0.001 * step for step in range(250)])
