"""kill -9 at random moments: every closed segment can be read, exactly a tail is lost, and the next run states how much."""

import random
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import polydomo
from polydomo.journal import schema
from polydomo.journal.files import runs
from polydomo.journal.ids import decode
from polydomo.journal.reading.audit import holes
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.cli.shell import PATIENCE, Broker

SMALL: dict[str, float] = {"JOURNAL_ROLL_SECONDS": 0.1, "JOURNAL_ROLL_ROWS": 500}


def busy(url: str, seconds: float) -> None:
    """Calls, one after the other, until the time is over."""
    worker = polydomo.Worker(url)
    worker.add("echo", lambda call: call.body)
    end = time.monotonic() + seconds
    with worker, polydomo.Client(url) as client:
        while time.monotonic() < end:
            client.call("echo", b"hello", timeout=PATIENCE)


def check(journal: Path, last: dict[int, int]) -> None:
    """``last`` has the last row of each run that was killed."""
    for segment in runs.segments(journal):
        assert pq.ParquetFile(segment.path).read().num_rows > 0  # whole
    reader = Reader([journal])
    rows = reader.rows(MESSAGES) + reader.rows(REQUESTS)
    assert reader.problems == []
    assert holes(sorted(rows, key=lambda row: (row["run"], row["seq"]))) == []
    covers = {row["covers_run"]: row for row in rows if row.get("event") in (schema.STARTED, schema.MISSING)}
    there: dict[int, list[int]] = {run: [] for run in last}
    for row in rows:
        there.setdefault(row["run"], []).append(row["seq"])
    for run, end in last.items():
        assert sorted(there[run]) == list(range(1, len(there[run]) + 1))  # what is lost is a tail
        assert (covers[run]["covers_first"], covers[run]["covers_last"]) == (len(there[run]) + 1, end)
    assert any(end > len(there[run]) for run, end in last.items()), "no kill lost a row: the test has seen nothing"


def kills(tmp_path: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    journal = tmp_path / "journal"
    last: dict[int, int] = {}
    for _ in range(times):
        with Broker(tmp_path, "--journal", "messages", limits=SMALL) as broker:
            mark = next(
                path
                for path in (journal / runs.RUNS).iterdir()
                if path.name != "lock" and decode(path.name) not in last
            )
            busy(broker.url, dice.uniform(0.0, 0.6))
            broker.send(signal.SIGKILL)
            broker.status()
        last[decode(mark.name)] = int.from_bytes(mark.read_bytes()[16:24], "little")
    with Broker(tmp_path, "--journal", "messages", limits=SMALL):
        pass
    check(journal, last)


def test_killed_a_few_times(tmp_path: Path) -> None:
    kills(tmp_path, 5, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    kills(tmp_path, 200, 2)
