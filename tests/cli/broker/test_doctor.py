"""``polydomo doctor`` finds what is wrong with real files, ports and settings, and says what to do."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from polydomo.cli.main import app
from polydomo.server.backup import read_only
from tests.cli.forking import FRESH
from tests.cli.shell import Broker, run


def findings(*words: str, cwd: Path, status: int = 0) -> dict[str, dict[str, Any]]:
    """The worst finding of each check."""
    result = run("doctor", "--json", "--listen", "tcp://127.0.0.1:0", *words, cwd=cwd)
    assert result.returncode == status, result
    order = ["ok", "note", "warning", "error"]
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(json.loads(result.stdout), key=lambda row: order.index(row["level"])):
        found[row["check"]] = row
    return found


def test_a_new_machine_is_fine(tmp_path: Path) -> None:
    found = findings(cwd=tmp_path)
    assert {row["level"] for row in found.values()} <= {"ok", "note"}
    assert not list(tmp_path.iterdir())  # nothing was made


def test_a_running_broker_and_its_data_are_fine(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", default_journal=True) as broker:
        port = broker.url.rpartition(":")[2]
        assert run("submit", "later", "x", "--to", broker.url).returncode == 0
        result = run("doctor", "--data", "data", "--listen", f"tcp://127.0.0.1:{port}", cwd=tmp_path)
    assert result.returncode == 0 and b"a broker answers" in result.stdout, result
    found = findings("--data", "data", cwd=tmp_path)
    assert "jobs.db is sound" in found["jobs"]["finding"] and found["journal"]["level"] == "ok"


def test_damaged_files_are_found(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", default_journal=True) as broker:
        assert run("call", "later", "x", "--timeout", "100ms", "--to", broker.url).returncode != 0
        assert run("submit", "later", "x" * 50_000, "--to", broker.url).returncode == 0
    store = tmp_path / "data" / "jobs.db"
    content = bytearray(store.read_bytes())
    content[4096 + 8 : 3 * 4096] = bytes(len(content[4096 + 8 : 3 * 4096]))
    store.write_bytes(content)
    segment = next((tmp_path / "data" / "journal").rglob("[0-9A-Z]*.parquet"))
    cut = segment.read_bytes()
    segment.write_bytes(cut[:-20])
    found = findings("--data", "data", cwd=tmp_path, status=1)
    assert found["jobs"]["level"] == found["journal"]["level"] == "error"
    assert "restore a backup" in found["jobs"]["remedy"]
    assert store.read_bytes() == bytes(content)  # nothing was changed


def test_a_changed_byte_inside_a_stored_body_is_found(tmp_path: Path) -> None:
    """SQLite's own check does not find it."""
    with Broker(tmp_path / "data") as broker:
        submitted = run("submit", "later", "a body to change", "--to", broker.url)
        assert run("memo", "put", f'"a Node to change{" " * 99}"', "--to", broker.url).returncode == 0
    for name in ("jobs.db", "memo.db"):
        path = tmp_path / "data" / name
        path.write_bytes(path.read_bytes().replace(b"to change", b"to chance"))
    found = findings("--data", "data", cwd=tmp_path, status=1)
    assert found["jobs"]["finding"] == (f"jobs.db has damaged records: job {submitted.stdout.decode().strip()}")
    assert found["memo"]["finding"] == "memo.db has damaged records: a node"


def test_the_directory_of_a_broker_is_not_its_data_directory(tmp_path: Path) -> None:
    with Broker(tmp_path / "polydomo-data"):
        pass
    found = findings("--data", str(tmp_path), cwd=tmp_path)
    assert found["data"]["remedy"] == f"--data {tmp_path / 'polydomo-data'}"


def test_what_has_the_place_of_a_store_is_found(tmp_path: Path) -> None:
    assert findings("--data", str(Path(__file__)), cwd=tmp_path, status=1)["data"]["level"] == "error"
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "jobs.db").mkdir()
    (data / "memo.db").touch()
    (data / "journal").touch()
    found = findings("--data", "data", cwd=tmp_path, status=1)
    assert [found[check]["level"] for check in ("jobs", "memo", "journal")] == ["error", "warning", "error"]


def test_what_this_user_may_not_read_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(Path, "iterdir", denied)
    shown = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0"])
    assert shown.exit_code == 1
    assert "Permission denied" in shown.stdout and "run it as the broker's user" in shown.stdout
    assert "access" in shown.stdout, "the other checks are made"


def test_a_stopped_brokers_store_on_a_read_only_file_system_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path / "data") as broker:
        assert run("submit", "later", "x", "--to", broker.url).returncode == 0
    writable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and writable(path, mode))
    before = sorted((tmp_path / "data").iterdir())
    with read_only(tmp_path / "data" / "jobs.db") as store:
        assert store.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    assert sorted((tmp_path / "data").iterdir()) == before, "SQLite made no files"


def test_what_is_exposed_or_strange_is_warned_about(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    (data / "jobs.db.damaged-20260101T000000Z-1").touch()
    later = tmp_path / "data" / "later"
    later.touch()
    os.utime(later, (4e9, 4e9))
    found = findings("--data", "data", cwd=tmp_path, status=1)
    assert found["data"]["level"] == "warning" and found["clock"]["level"] == "error"
    (data / "jobs.db").symlink_to(later)
    assert findings("--data", "data", cwd=tmp_path, status=1)["data"]["level"] == "error"


def test_a_port_of_another_program_and_wrong_settings_are_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        result = run("doctor", "--listen", address, cwd=tmp_path, **FRESH)
        assert b"not by a broker that answers" in result.stdout, result
    assert findings("--grace", "soon", cwd=tmp_path, status=1)["settings"]["level"] == "error"
    (tmp_path / "access.toml").write_text("[nonsense]\n")
    assert findings("--access", "access.toml", cwd=tmp_path, status=1)["access"]["level"] == "error"
