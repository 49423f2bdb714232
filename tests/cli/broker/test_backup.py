"""``polydomo backup`` of real brokers, also while they are killed, and ``polydomo restore``."""

import contextlib
import errno
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import polydomo
from polydomo.errors import PolydomoError, SettingError
from polydomo.server import backup
from polydomo.server.settings.settings import Settings
from tests.cli.shell import POLYDOMO, Broker, Running, complaint, environment, run


def states(url: str, jobs: list[str]) -> set[str]:
    with polydomo.Client(url) as client:
        return {client.job(job)["state"] for job in jobs}


def test_jobs_schedules_and_results_are_there_after_a_restore(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with broker.worker("upper", "--", "tr", "a-z", "A-Z"), polydomo.Client(broker.url) as client:
            done = client.submit_job("upper", "hello")
            assert client.result(done, wait=60).text == "HELLO"
        with polydomo.Client(broker.url) as client:
            waiting = client.submit_job("later", "x")
        assert run("schedule", "add", "daily", "0 7 * * *", "upper", "x", "--to", broker.url).returncode == 0
        made = run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
    restored = run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new"))
    assert f"polydomo up --data {tmp_path / 'new'}" in restored.stdout.decode(), restored
    with Broker(tmp_path / "new") as broker:
        with polydomo.Client(broker.url) as client:
            assert client.result(done).text == "HELLO"
        assert states(broker.url, [waiting]) == {"queued"}
        assert b"daily" in run("schedule", "ls", "--to", broker.url).stdout


def test_a_backup_of_a_broker_that_is_killed_has_every_job_that_was_acknowledged_before(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    def submit(url: str) -> None:
        try:
            with polydomo.Client(url) as client:
                while True:
                    acknowledged.append(client.submit_job("later", "x" * 20_000))
        except PolydomoError:
            pass  # the broker is gone

    with Broker(tmp_path / "data") as broker:
        with polydomo.Client(broker.url) as client:
            first = [client.submit_job("later", "x" * 20_000) for _ in range(50)]
        submitting = threading.Thread(target=submit, args=(broker.url,))
        submitting.start()
        words = [*POLYDOMO, "backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data")]
        with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as backing_up:
            while not (tmp_path / "backup").exists() and backing_up.poll() is None:
                pass
            broker.process.kill()
            _, errors = backing_up.communicate()
            assert backing_up.returncode == 0, errors
        submitting.join()
    assert run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new")).returncode == 0
    with Broker(tmp_path / "new") as restored:
        assert states(restored.url, first) == {"queued"}


def test_a_backup_that_was_interrupted_or_changed_is_not_restored(tmp_path: Path) -> None:
    with Broker(tmp_path / "data"):
        assert run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data")).returncode == 0
    again = run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data"))
    assert "a backup is never changed" in complaint(again)
    manifest = tmp_path / "backup" / "manifest.json"
    whole = manifest.read_text()
    store = tmp_path / "backup" / "jobs.db"
    content = bytearray(store.read_bytes())
    content[4000] ^= 1
    store.write_bytes(content)
    changed = run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new"))
    assert "jobs.db is missing or damaged" in complaint(changed) and not (tmp_path / "new").exists()
    manifest.write_text(whole[:100])
    assert "is damaged" in complaint(run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new")))
    manifest.unlink()
    assert "is not a whole backup" in complaint(
        run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new"))
    )


# Restores again and again, each time in a process that is killed before its next system call, until one comes to its end. Prints what is
# there after each.
KILLED_AT_EVERY_STEP = """
import itertools, json, os, shutil, signal, sys
from pathlib import Path
from polydomo.errors import SettingError
from polydomo.server.backup import restore

source, data, exists = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"
left = data.with_name(f".{data.name}.restoring")
for last in itertools.count():
    if exists:
        data.mkdir()
    child = os.fork()
    if not child:
        steps = itertools.count()

        def step(frame, event, called):
            if event == "c_call" and called.__module__ in ("posix", "_io") and next(steps) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(step)
        restore(source, data)
        os._exit(0)
    whole = os.waitpid(child, 0)[1] == 0
    names = sorted(path.name for path in data.iterdir()) if data.exists() else []
    again = ""
    if left.exists():
        try:
            restore(source, data)
        except SettingError as error:
            again = str(error)
        shutil.rmtree(left)
    if not names:
        restore(source, data)
    print(json.dumps({"whole": whole, "names": names, "again": again}))
    shutil.rmtree(data)
    if whole:
        break
"""


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_a_restore_that_is_killed_leaves_no_part_of_a_data_directory(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "data").mkdir()
    for name in ("jobs.db", "memo.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / "data" / name)) as store:
            store.execute("CREATE TABLE t (x)")
    assert run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data")).returncode == 0
    words = [sys.executable, "-c", KILLED_AT_EVERY_STEP, str(tmp_path / "backup"), str(tmp_path / "new"), str(exists)]
    killed = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert killed.returncode == 0, killed.stderr
    found = [json.loads(line) for line in killed.stdout.splitlines()]
    assert found[-1]["whole"] and not any(one["whole"] for one in found[:-1])
    for one in found:
        assert one["names"] in ([], ["jobs.db", "memo.db"]), one
    refused = {one["again"] for one in found if one["again"]}
    left = tmp_path / ".new.restoring"
    assert refused == {
        f"{left} belongs to a restore that was killed or still runs; if none runs, remove it and restore again: rm -r {left}"
    }


def test_a_restore_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(tmp_path / "data"):
        pass
    assert run("backup", "backup", "--data", "data", cwd=tmp_path).returncode == 0
    copy = backup._copy_file

    def full(path: Path, to: Path) -> None:
        copy(path, to)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "_copy_file", full)
    with pytest.raises(SettingError, match="the disk is full"):
        backup.restore(tmp_path / "backup", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]


def test_a_restore_goes_to_where_a_link_points_and_not_into_the_current_directory(tmp_path: Path) -> None:
    with Broker(tmp_path / "data"):
        pass
    assert run("backup", "backup", "--data", "data", cwd=tmp_path).returncode == 0
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    here = run("restore", "../backup", "--data", ".", cwd=tmp_path / "disk")
    assert "restore into a new directory below it" in complaint(here)
    assert run("restore", "backup", "--data", "link", cwd=tmp_path).returncode == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "jobs.db").is_file()


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "backup").mkdir()
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    found = {"format": 1, "version": "0.2.0", "time": "", "data": "", "store": "", "journal": "", "needs": []}
    found["files"] = {"../secret": {"size": 1, "sha256": digest}}
    (tmp_path / "backup" / "manifest.json").write_text(json.dumps(found))
    result = run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new"))
    assert "is missing or damaged" in complaint(result) and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words", [("--data", "missing"), ("--data", "data", "--store", "nonsense"), ("--data", "data")]
)
def test_what_cannot_be_backed_up_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "data").mkdir()
    result = run("backup", "backup", *words, cwd=tmp_path)
    assert result.returncode == 2 and complaint(result)
    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_the_directory_in_which_a_broker_was_started_is_not_its_data_directory(tmp_path: Path) -> None:
    with Broker(tmp_path / "polydomo-data"):
        pass
    result = run("backup", "backup", "--data", str(tmp_path), cwd=tmp_path)
    assert str(tmp_path / "polydomo-data") in complaint(result) and not (tmp_path / "backup").exists()


def test_a_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        assert run("submit", "later", "x" * 50_000, "--to", broker.url).returncode == 0
    store = tmp_path / "data" / "jobs.db"
    content = bytearray(store.read_bytes())
    content[4096 + 8 : 3 * 4096] = bytes(2 * 4096 - 8)
    store.write_bytes(content)
    result = run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data"))
    assert "if it is damaged, restart the broker" in complaint(result)
    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(tmp_path / "data"):
        pass

    class Full:
        def backup(self, target: sqlite3.Connection) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    monkeypatch.setattr(backup, "read_only", lambda path: contextlib.nullcontext(Full()))
    settings = Settings(data=str(tmp_path / "data"))
    with pytest.raises(SettingError, match="the disk is full; choose another directory"):
        backup.back_up(settings, tmp_path / "backup")


def test_the_access_file_is_copied_and_its_keys_are_named(tmp_path: Path) -> None:
    for words in (("keys", "new", "server"), ("keys", "new", "alice"), ("access", "init")):
        assert run(*words, cwd=tmp_path).returncode == 0
    (tmp_path / "data").mkdir()
    made = run("backup", "backup", "--data", "data", "--store", "off", "--access", "access.toml", cwd=tmp_path)
    assert f"not included: {tmp_path / 'server.key_secret'}" in made.stdout.decode(), made
    assert (tmp_path / "backup" / "access.toml").read_bytes() == (tmp_path / "access.toml").read_bytes()
    restored = run("restore", "backup", "--data", "new", cwd=tmp_path).stdout.decode()
    assert "the access file needs new/server.key_secret: copy it there" in restored, (
        "the file names it without a directory"
    )
    for name in ("server.key_secret", "alice.key"):
        shutil.copy(tmp_path / name, tmp_path / "new" / name)
    start = ("--data", "new", "--access", "new/access.toml", "--listen", "tcp://127.0.0.1:0", "--log-json")
    with Running("up", *start, cwd=tmp_path) as broker:
        broker.logged("ready")
