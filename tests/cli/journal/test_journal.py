"""``polydomo journal compact``: few files with the same rows, also after kill -9."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from polydomo.journal.files.segments import all_segments, segments
from tests.cli.shell import PATIENCE, Broker
from tests.journal.files.test_merge import journal_of_small_segments
from tests.journal.files.test_writer import everything


def compact(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "polydomo", "journal", "compact", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_it_merges_and_prints_how_many_files_are_left(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal_of_small_segments(journal)
    os.chmod(segments(journal)[0].path, 0o600)
    rows, count = everything(journal), len(segments(journal))
    dry = compact(str(tmp_path), "--dry-run")
    assert dry.stdout.startswith(f"{count} files would be ") and len(segments(journal)) == count
    assert compact(str(tmp_path), "--before", "2023-01-01", "-q").stdout.startswith(f"{count} files are now {count};")
    torn = sorted(segments(journal), key=lambda one: one.first)[4]
    content = torn.path.read_bytes()
    torn.path.write_bytes(content[:-9])
    done = compact(str(tmp_path))
    assert done.returncode == 0 and f"{torn.path}: not merged: " in done.stderr
    torn.path.write_bytes(content)
    assert everything(journal) == rows
    assert f"{count} files are now {len(segments(journal))};" in done.stdout and len(segments(journal)) < count / 2
    assert "are now" in compact(str(journal)).stdout  # the journal itself may be named, and nothing is left to do
    assert everything(journal) == rows


def test_killed_again_and_again_it_loses_nothing(tmp_path: Path) -> None:
    journal_of_small_segments(tmp_path, 30)
    rows = everything(tmp_path)
    for attempt in range(2):
        process = subprocess.Popen([sys.executable, "-m", "polydomo", "journal", "compact", str(tmp_path), "-q"])
        before = {segment.path for segment in all_segments(tmp_path)}
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:  # once something has changed
            hidden = list(tmp_path.glob("kind=*/*/*/.*"))
            if hidden if attempt % 2 else {one.path for one in all_segments(tmp_path)} != before:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert everything(tmp_path) == rows
    assert compact(str(tmp_path)).returncode == 0
    assert everything(tmp_path) == rows and all_segments(tmp_path) == segments(tmp_path)
    assert not list(tmp_path.glob("kind=*/*/*/.*"))


def test_it_does_not_touch_the_journal_of_a_running_broker(tmp_path: Path) -> None:
    with Broker(tmp_path, "--journal", "messages", limits={"JOURNAL_ROLL_SECONDS": 0.1}):
        end = time.monotonic() + PATIENCE
        while not segments(tmp_path / "journal") and time.monotonic() < end:
            time.sleep(0.05)
        done = compact(str(tmp_path))
    assert done.returncode == 2 and "a broker is writing the journal" in done.stderr


def test_a_directory_without_a_journal_is_named(tmp_path: Path) -> None:
    assert "there is no journal in" in compact(str(tmp_path)).stderr
    assert "no such directory" in compact(str(tmp_path / "none")).stderr
