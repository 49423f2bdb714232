"""The data directory: who can write to it, what is in it, and the shares of its disk."""

import os
from pathlib import Path

import pytest

from polydomo.errors import SettingError
from polydomo.server.data_directory import prepare_data, shares_of, used_bytes


def test_a_directory_of_ones_own_is_used_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = prepare_data(str(tmp_path / "deep" / "data"))
    assert path.stat().st_mode & 0o777 == 0o700 and not list(path.iterdir())
    assert caplog.text == ""


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_directory_that_others_can_write_is_warned_about(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    prepare_data(str(data))
    assert "other users can write to the data directory" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_another_user_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 12345, -1)
    prepare_data(str(data))
    assert "belongs to another user" in caplog.text


@pytest.mark.parametrize("name", ["jobs.db", "memo.db", "jobs.db-wal", "journal", "jobs.db.lock"])
def test_symbolic_links_are_refused_by_name(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (data / name).symlink_to(target)
    with pytest.raises(SettingError, match=f"{name} is a symbolic link"):
        prepare_data(str(data))
    assert target.read_text() == "precious"


def test_the_probe_does_not_write_through_a_link(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (data / ".writable").symlink_to(target)
    prepare_data(str(data))
    assert target.read_text() == "precious"


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    prepare_data(str(tmp_path / "data"))


def test_shares_of_a_limit() -> None:
    shares = shares_of("/nowhere", 1000)
    assert (shares.memo, shares.jobs, shares.journal) == (250, 500, 250)


def test_shares_of_the_space_that_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    assert used_bytes(tmp_path) == 10_000
    shares = shares_of(str(tmp_path), 0)
    assert 0 < sum(shares) < os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert shares_of(str(tmp_path / "gone"), 0) == (0, 0, 0)
