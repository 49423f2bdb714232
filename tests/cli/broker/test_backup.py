"""``polydomo backup`` of real brokers, also while they are killed, and ``polydomo restore``."""

import contextlib
import json
import shutil
import sqlite3
import subprocess
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
