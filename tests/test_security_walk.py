"""The commands of docs/security.md give the printed output, with another address."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import shell

PAGE = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(?:sh|toml|console|python) ([a-z]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
ADDRESS = "tcp://127.0.0.1:5246"


def run(directory: Path, words: "list[str]") -> str:
    """What a program prints, errors included; `polydomo` is the one of this environment."""
    path = f"{Path(sys.executable).parent}:{shell.environment()['PATH']}"
    done = subprocess.run(
        words,
        cwd=directory,
        env=shell.environment(PATH=path, XDG_CONFIG_HOME=str(directory / "config")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=shell.PATIENCE * 2,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def session(name: str) -> "list[tuple[str, str]]":
    found: list[tuple[str, str]] = []
    for line in BLOCKS[name].splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, printed = found[-1]
            found[-1] = (command, printed + line + "\n")
    return found


def test_every_part_is_tried_here() -> None:
    assert set(BLOCKS) == {"keys", "access", "check", "up", "work", "call", "client", "pyzmq"}


def test_the_walk(tmp_path: Path) -> None:
    run(tmp_path, ["sh", "-ec", BLOCKS["keys"]])
    (tmp_path / "access.toml").write_text(BLOCKS["access"])
    for command, printed in session("check"):
        assert run(tmp_path, ["sh", "-c", command]) == printed
    up = BLOCKS["up"].split()
    assert up[:4] == ["polydomo", "up", "--listen", "tcp://0.0.0.0:5246"]
    words = ["up", "--listen", "tcp://127.0.0.1:0", *up[4:], "--log-json", "--data", "data"]
    with shell.Running(*words, cwd=tmp_path) as broker:
        url = str(broker.logged("listening")["address"])
        work = BLOCKS["work"].replace(ADDRESS, url).split()
        with shell.Running(*work[1 : work.index("--")], "--", *work[work.index("--") + 1 :], cwd=tmp_path):
            broker.logged("worker registered", services="resize")
            for command, printed in session("call"):
                assert run(tmp_path, ["sh", "-c", command.replace(ADDRESS, url)]) == printed
            for name in ("client", "pyzmq"):
                assert ADDRESS in BLOCKS[name]
                (tmp_path / f"{name}.py").write_text(BLOCKS[name].replace(ADDRESS, url))
            assert run(tmp_path, [sys.executable, "client.py"]) == "HELLO\n"
            pytest.importorskip("zmq")
            assert run(tmp_path, [sys.executable, "pyzmq.py"]) == "HELLO\n"
    for path in (tmp_path / "data").rglob("*"):
        assert not path.stat().st_mode & 0o077, f"others can read {path}"
    secrets = [(tmp_path / f"{name}.key_secret").read_text() for name in ("server", "alice", "render-pool")]
    observed = "\n".join([*broker.said, *(str(entry) for entry in broker.entries)])
    for text in secrets:
        secret = re.search(r'secret-key = "(.*)"', text)
        assert secret is not None and secret[1] not in observed
