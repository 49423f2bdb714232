"""A clock that jumps deletes nothing; a directory that is removed under a broker is noticed."""

import shutil
import signal
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from polydomo import limits
from polydomo.journal.files.retention import AgeClock, JournalBounds, StoredSegments
from polydomo.journal.files.runs import RUNS, segment_name
from polydomo.journal.reading.audit import audit
from tests.cli.shell import Broker, Running
from tests.journal.files.test_writer import everything, started, until

DAY = 86_400.0
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def test_a_steady_clock_is_followed() -> None:
    clock = AgeClock(NOW - DAY, NOW, 100.0)
    assert clock.read(NOW + 5.0, 105.0) == NOW + 5.0
    assert clock.read(NOW + 3 * DAY + 20.0, 100.0 + 3 * DAY) == NOW + 3 * DAY + 20.0  # brought in line slowly


@pytest.mark.parametrize("step", [40 * DAY, -40 * DAY, 120.0])
def test_a_clock_that_jumps_does_not_age_anything(step: float) -> None:
    clock = AgeClock(NOW, NOW, 0.0)
    moved = clock.read(NOW + 10.0 + step, 10.0)
    assert clock.doubted and moved == min(NOW + 10.0, NOW + 10.0 + step)
    assert clock.read(NOW + 20.0, 20.0) == NOW + 20.0  # it was set right
    assert clock.doubted
    steady = 20.0 + limits.JOURNAL_CLOCK_TRUST
    assert clock.read(NOW + steady, steady) == NOW + steady
    assert not clock.doubted


def test_a_clock_that_jumped_while_the_broker_was_off() -> None:
    clock = AgeClock(NOW, NOW + 40 * DAY, 0.0)
    assert clock.doubted and clock.read(NOW + 40 * DAY + 60.0, 60.0) == NOW + 60.0
    later = limits.JOURNAL_CLOCK_TRUST
    assert clock.read(NOW + 40 * DAY + later, later) == NOW + 40 * DAY + later


def put(directory: Path, when: float, run: int = 7) -> Path:
    moment = datetime.fromtimestamp(when, UTC)
    folder = directory / "kind=messages" / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / segment_name(run, 1 + int(when), 1 + int(when))
    path.write_bytes(b"x" * 100)
    return path


def test_removed_segments_are_logged(tmp_path: Path) -> None:
    old, new = put(tmp_path, NOW - 40 * DAY), put(tmp_path, NOW)
    kept = StoredSegments(tmp_path)
    assert kept.newest is not None and abs(kept.newest - NOW) <= 3600.0
    assert kept.sweep(JournalBounds(), NOW - 20 * DAY).files == 0
    removed = kept.sweep(JournalBounds(), NOW)
    assert removed == (1, 100, "date=2026-01-20/hour=12", "journal.keep_age")
    assert new.exists() and not old.exists()
    assert kept.sweep(JournalBounds(keep_bytes=10), NOW).why == "journal.keep_bytes"


def test_a_directory_that_vanishes_is_made_again_and_its_rows_are_accounted_for(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    world, journal = started(directory)
    world.client().ask()
    journal.flush()
    until(lambda: journal.writer.closed == journal.recorder.seq)
    gone = journal.recorder.seq
    shutil.rmtree(directory)
    journal._looked = 0.0
    journal.tick()
    assert (directory / RUNS / "lock").exists()
    world.client().ask()
    world.broker.shutdown()
    journal.stop()
    rows = everything(directory)
    assert [(row["covers_first"], row["covers_last"]) for row in rows if row.get("covers_run")] == [(1, gone)]
    assert [str(breach) for breach in audit(rows)] == []
    assert started(directory)[1]._dead[0].lost == 0


@pytest.mark.xdist_group("processes")
def test_only_the_brokers_user_can_read_its_files(tmp_path: Path) -> None:
    class Open(Running):
        inside = ("sh", "-c", 'umask 022 && exec "$0" "$@"')

    data = tmp_path / "data"
    with Open("up", "--listen", "tcp://127.0.0.1:0", "--data", str(data), "--log-json") as broker:
        broker.logged("ready")
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
    found = [data, *data.rglob("*")]
    assert any(path.suffix == ".parquet" for path in found)
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.xdist_group("processes")
def test_a_running_broker_notices_that_its_data_is_gone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, "--journal=requests") as broker:
        shutil.rmtree(data)
        broker.logged("the journal's directory was removed; creating it again")
        with Running("up", "--listen", "tcp://127.0.0.1:0", "--data", str(data), "--journal", "requests") as second:
            assert second.status() == 2  # the lock is held again


@pytest.mark.xdist_group("processes")
def test_a_broker_that_cannot_have_its_data_again_ends(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data, "--journal=requests") as broker:
        shutil.rmtree(data)
        data.write_bytes(b"in the way")
        broker.logged("stopping the broker: the data directory is gone")
        assert broker.status() == 0


@pytest.mark.xdist_group("processes")
def test_a_broker_with_next_to_no_files_does_not_start() -> None:
    class Limited(Running):
        inside = ("sh", "-c", 'ulimit -n 64 && exec "$0" "$@"')

    with Limited("up", "--listen", "tcp://127.0.0.1:0", "--journal", "off") as broker:
        assert broker.status() == 2
    assert "may open only 64 files" in " ".join(broker.said)
