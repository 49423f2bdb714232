"""``polydomo keys`` and ``polydomo access``, as a shell runs them."""

import hashlib
import json
import signal
import stat
import subprocess
from pathlib import Path

import zmq.auth

from tests.cli.shell import Running, complaint, run


def test_keys_new_writes_two_files_that_pyzmq_reads(tmp_path: Path) -> None:
    result = run("keys", "new", "alice", "--dir", "keys", cwd=tmp_path)
    assert result.returncode == 0 and b"alice.key_secret" in result.stdout
    public, secret = tmp_path / "keys" / "alice.key", tmp_path / "keys" / "alice.key_secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert zmq.auth.load_certificate(public)[0] == zmq.auth.load_certificate(secret)[0]
    key = zmq.auth.load_certificate(secret)[1]
    assert key is not None and key not in result.stdout
    again = run("keys", "new", "alice", "--dir", "keys", cwd=tmp_path)
    assert again.returncode == 2 and "exists" in complaint(again)
    assert run("keys", "new", "../alice", cwd=tmp_path).returncode == 2


def test_keys_token_prints_a_token_and_its_digest(tmp_path: Path) -> None:
    lines = run("keys", "token", "ci", cwd=tmp_path).stdout.decode().splitlines()
    token = lines[1].strip()
    assert len(token) == 43 and hashlib.sha256(token.encode()).hexdigest() in lines[-1]
    assert list(tmp_path.iterdir()) == []


def test_access_init_asks_only_for_keys_that_are_missing(tmp_path: Path) -> None:
    assert run("keys", "new", "server", cwd=tmp_path).returncode == 0
    assert b"\n  polydomo keys new alice\n" in run("access", "init", cwd=tmp_path).stdout
    assert run("keys", "new", "alice", cwd=tmp_path).returncode == 0
    (tmp_path / "access.toml").unlink()
    assert run("access", "init", cwd=tmp_path).stdout == b"Wrote access.toml. It refers to the keys server and alice.\n"


def test_access_init_and_check(tmp_path: Path) -> None:
    first = run("access", "init", cwd=tmp_path)
    assert first.returncode == 0
    for line in first.stdout.decode().splitlines():
        if line.startswith("  polydomo "):
            assert run(*line.split()[1:], cwd=tmp_path).returncode == 0
    assert run("access", "init", cwd=tmp_path).returncode == 2
    right = run("access", "check", cwd=tmp_path)
    assert right.returncode == 0 and right.stdout == b"access.toml is valid: 1 principal, 1 rule\n"
    with (tmp_path / "access.toml").open("a") as file:
        file.write('[principals.bob]\nuid = 0\n[[allow]]\nwho = ["bob"]\ncall = ["resize"]\n')
    allowed = run("access", "check", "--access", "access.toml", "bob", "call", "resize", cwd=tmp_path)
    assert (allowed.returncode, allowed.stdout) == (0, b"allowed by rule 2\n")
    denied = run("access", "check", "--access", "access.toml", "bob", "call", "resize2", cwd=tmp_path)
    assert (denied.returncode, denied.stdout) == (1, b"denied: no rule\n")
    for words in (("bob", "fly", "x"), ("nobody", "call", "x")):
        assert run("access", "check", *words, cwd=tmp_path).returncode == 2


def test_access_check_lists_every_problem(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text("[x]\n[y]\n")
    result = run("access", "check", cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.count(b"unknown key") == 2


def test_contexts(tmp_path: Path) -> None:
    def call(*words: str) -> "subprocess.CompletedProcess[bytes]":
        return run(*words, cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))

    for name in ("alice", "server"):
        call("keys", "new", name)
    url = "tcp://127.0.0.1:9"
    flags = ("--to", url, "--key", "alice.key_secret", "--server-key", "server.key")
    assert call("context", "save", "lab", *flags).returncode == 0
    saved = tmp_path / "config" / "polydomo" / "contexts" / "lab.toml"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600 and stat.S_IMODE(saved.parent.stat().st_mode) == 0o700
    text = saved.read_text()
    assert str(tmp_path / "alice.key_secret") in text and "secret-key" not in text
    (listed,) = json.loads(call("context", "list", "--json").stdout)
    assert (listed["name"], listed["to"]) == ("lab", url)
    config = str(tmp_path / "config")
    for result in (
        run("services", "--context", "lab", XDG_CONFIG_HOME=config),
        run("services", XDG_CONFIG_HOME=config, POLYDOMO_CONTEXT="lab"),
    ):
        assert result.returncode == 5 and url in complaint(result)
    assert "unknown context 'den'; the contexts are lab" in complaint(call("services", "--context", "den"))
    assert call("context", "remove", "lab").returncode == 0
    assert call("context", "list", "--json").stdout.strip() == b"[]"


def test_one_key_is_not_enough(tmp_path: Path) -> None:
    run("keys", "new", "alice", cwd=tmp_path)
    result = run("services", "--key", "alice.key_secret", cwd=tmp_path)
    assert result.returncode == 2 and "--server-key: is missing" in complaint(result)
    result = run("services", "--key", "alice.key", "--server-key", "alice.key", cwd=tmp_path)
    assert result.returncode == 2 and "has no secret-key" in complaint(result)


def test_sighup_reloads_the_access_file(tmp_path: Path) -> None:
    run("access", "init", cwd=tmp_path)
    for name in ("server", "alice"):
        run("keys", "new", name, cwd=tmp_path)
    words = ("--listen", "tcp://127.0.0.1:0", "--data", "data", "--access", "access.toml", "--log-json")
    with Running("up", *words, cwd=tmp_path) as broker:
        url = str(broker.logged("listening")["address"])
        broker.logged("ready")
        keys = ("--to", url, "--key", "alice.key_secret", "--server-key", "server.key")
        assert run("services", *keys, cwd=tmp_path).returncode == 0
        denied = run("services", "--to", url, cwd=tmp_path)
        assert denied.returncode == 1 and "requires credentials" in complaint(denied)
        broker.send(signal.SIGHUP)
        broker.logged("access file reloaded")
        (tmp_path / "access.toml").write_text("[nonsense]\n")
        broker.send(signal.SIGHUP)
        line = broker.logged("the access file is invalid; the old rules stay in force")
        assert "nonsense: unknown key" in line["why"]
        assert run("services", *keys, cwd=tmp_path).returncode == 0
    missing = run("up", "--access", "gone.toml", cwd=tmp_path)
    assert missing.returncode == 2 and "access: cannot read gone.toml" in complaint(missing)
    open_to_all = run("up", "--listen", "tcp://0.0.0.0:0", cwd=tmp_path)
    assert open_to_all.returncode == 2 and "polydomo access init" in complaint(open_to_all)
