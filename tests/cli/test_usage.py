"""What a newcomer gets wrong, and what the command line says then: one line, and where to read on."""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from polydomo.cli.common import flags
from polydomo.cli.common.exit_status import typed
from polydomo.cli.loading import PANELS
from polydomo.errors import SettingError
from tests.cli.forking import FRESH
from tests.cli.shell import PATIENCE, POLYDOMO, Running, complaint, environment, run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["upp"], "No such command 'upp'. Did you mean 'up'? See `polydomo --help`"),
        (["call"], "Missing argument 'SERVICE'; see `polydomo call --help`"),
        (["--loud"], "No such option: --loud; see `polydomo --help`"),
        (["work", "echo"], "work: give a function as MODULE:FUNCTION, a program after --, or --echo"),
        (["up", "6000"], "'6000' is not a flag; `polydomo config` lists all settings"),
        (["up", "--insecure=yes"], "Option '--insecure' does not take a value; see `polydomo up --help`"),
        (
            ["up", "--listen", "tcp://127.0.0.1:1,tcp://127.0.0.1:2"],
            "listen (flag --listen): 'tcp://127.0.0.1:1,tcp://127.0.0.1:2' is not an address: these are several addresses; "
            "list the addresses separately, such as tcp://127.0.0.1:1",
        ),
        (["call", "echo", "-p", "amqp"], "--protocol: 'amqp' is not one of mdx, mdp1, mdp2, dcp, memo, emqp"),
    ],
)
def test_an_error_is_one_line(words: list[str], said: str) -> None:
    result = run(*words)
    assert complaint(result) == said
    assert result.returncode == 2


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["services"], {"POLYDOMO_TO": "foo"}, "POLYDOMO_TO: 'foo' is not an address: "),
        (["bench"], {"POLYDOMO_TO": "foo"}, "POLYDOMO_TO: 'foo' is not an address: "),
        (["services", "--to", "foo"], {"POLYDOMO_TO": "bar"}, "--to: 'foo' is not an address: "),
        (["context", "save", "lab"], {"POLYDOMO_TO": "foo"}, "POLYDOMO_TO: 'foo' is not an address: "),
        (["open"], {"POLYDOMO_TO": "ipc:///run/x"}, "POLYDOMO_TO: a browser reaches a broker at "),
        (["services"], {"POLYDOMO_CONTEXT": "lab"}, "POLYDOMO_CONTEXT: unknown context 'lab'; "),
        (["services", "--context", "lab"], {}, "--context: unknown context 'lab'; "),
        (["services", "--key", "/nope", "--server-key", "x"], {}, "--key: cannot read /nope: "),
        (["services", "--key", "/nope"], {}, "--server-key: is missing; "),
        (["services", "--user", "alice"], {}, "POLYDOMO_TOKEN: is missing; "),
        (["services", "--to", "7402"], {}, "--to: '7402' is not an address: it has no scheme; did you mean tcp://127."),
        (
            ["up", "--listen", "7402"],
            {},
            "listen (flag --listen): '7402' is not an address: it has no scheme; did you ",
        ),
        (["up"], {"POLYDOMO_LISTEN": "7402"}, "listen (variable POLYDOMO_LISTEN): '7402' is not an address: "),
        (["replay", "/nope"], {}, "DIR: no such directory: /nope"),
        (["trace", "7", "--journal", "/nope"], {}, "--journal: no such directory: /nope"),
    ],
)
def test_an_error_names_what_the_user_gave(
    words: list[str], variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = variables
    result = run(*words, XDG_CONFIG_HOME=str(tmp_path), **given)
    assert complaint(result).startswith(said)
    assert result.returncode == 2


def test_an_error_in_a_saved_context_names_the_context(tmp_path: Path) -> None:
    saved = tmp_path / "polydomo" / "contexts"
    saved.mkdir(parents=True)
    (saved / "lab.toml").write_text('to = "tcp://127.0.0.1:9"\nkey = "/nope"\nserver_key = "x"\n')
    result = run("services", POLYDOMO_CONTEXT="lab", XDG_CONFIG_HOME=str(tmp_path))
    assert complaint(result).startswith("POLYDOMO_CONTEXT lab: key: cannot read /nope: ")


@pytest.mark.parametrize("words", [[], ["call"], ["pipeline", "run"]])
def test_help_is_a_command(words: list[str]) -> None:
    result = run("help", *words)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == run(*words, "--help").stdout


def test_help_of_an_unknown_command() -> None:
    result = run("help", "upp")
    assert complaint(result) == "No such command 'upp'. Did you mean 'up'? See `polydomo --help`"
    assert result.returncode == 2


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.6\r\n"], ids=["silent", "ssh"])
def test_another_program_has_the_port(answer: bytes) -> None:
    """The advice is not to start a broker at the same address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def accept() -> None:
            with contextlib.suppress(OSError):  # the test is over
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        try:
            result = run("call", "echo", "--timeout", "2", "--to", url)
            opened = run("open", "--to", url, **FRESH)
            if not answer:
                with Running("work", "echo", "--echo", "--to", url, "--log-json", **FRESH) as worker:
                    advice = f"polydomo: no broker answers at {url}; another program may use this address"
                    worker.wait_until(lambda: any(line.startswith(advice) for line in worker.said), advice)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)
            for one in held:
                one.close()
    assert "another program may use this address" in complaint(opened)
    said = complaint(result)
    if answer:
        assert said == f"{url}: not a ZMTP greeting; is it a polydomo broker?"
    else:
        assert said.startswith(
            f"no broker answers at {url} (a program accepted the connection, but did not answer within "
        )
        assert said.endswith("; another program may use this address: stop it, or start the broker at another address")
        assert re.search(r"within [\d.]{1,3} s", said), said
        assert result.returncode == 5


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--journal", "journal.level"),
        ("--journal-level", "journal.level"),
        ("--bridge", "bridge.to"),
        ("--bridge-to", "bridge.to"),
        ("--beacon", "dbp.beacon"),
        ("--dbp-beacon", "dbp.beacon"),
    ],
)
def test_an_error_names_the_flag_that_was_given(flag: str, key: str) -> None:
    for options, rest in (({}, [flag, "?"]), ({}, [f"{flag}=?"]), ({key: "?"}, [])):
        if rest or flag == flags.SHORT[key]:  # a declared option has the short name
            with pytest.raises(SettingError, match=rf"{key} \(flag {flag}\): "):
                flags.load(None, options, rest)


@pytest.mark.parametrize(
    "words",
    [
        ["call", "echo", "--timeout", "200ms"],
        ["call", "echo", "--timeout=0.2s", "--wait", "1m"],
        ["status", "--timeout", "200ms"],
        ["services", "--timeout", "0.2"],
        ["logs", "--timeout", "200ms"],
        ["watch", "--interval", "1s", "--once"],
        ["catalog", "--timeout", "200ms"],
        ["bench", "--duration", "100ms", "--to", "tcp://127.0.0.1:9"],
    ],
)
def test_every_flag_that_takes_a_time_takes_a_unit(words: list[str]) -> None:
    result = run(*words, POLYDOMO_TO="tcp://127.0.0.1:9")
    assert result.returncode == 5 and "no broker answers" in result.stderr.decode(), result.stderr


def test_none_of_several_brokers_answers() -> None:
    result = run("call", "echo", "--to", "tcp://127.0.0.1:9,tcp://127.0.0.1:10", **FRESH)
    assert result.returncode == 5
    assert "no broker answers at tcp://127.0.0.1:9,tcp://127.0.0.1:10; check the addresses" in complaint(result)


def test_the_help_of_up_lists_the_beacon() -> None:
    assert any(
        "--beacon" in line and "[HOST:PORT]" in line for line in run("up", "--help").stdout.decode().splitlines()
    )


def test_a_wrong_number_names_its_option() -> None:
    result = run("call", "echo", "--timeout", "soon")
    assert "'--timeout'" in complaint(result)
    assert result.returncode == 2


@pytest.mark.parametrize("words", [["--help"], ["up", "--help"], ["work", "-h"], ["pipeline", "run", "--help"]])
def test_help_does_not_say_that_a_flag_takes_a_value(words: list[str]) -> None:
    result = run(*words)
    assert result.returncode == 0
    assert b"--help" in result.stdout
    assert b"bool" not in result.stdout


def test_help_knows_no_types_of_python() -> None:
    result = run("call", "--help")
    assert b"BODY" in result.stdout
    assert b"str]" not in result.stdout


def test_the_help_has_headings() -> None:
    text = run("--help").stdout.decode()
    places = [text.index(title) for title in PANELS]
    assert places == sorted(places)
    assert " Commands " not in text, "a command without a heading"


def shell(words: str) -> subprocess.CompletedProcess[str]:
    """The command with its streams led elsewhere."""
    command = f"{shlex.join(POLYDOMO)} {words}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE, env=environment(), check=False
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    result = shell("config >/dev/full")
    assert (result.returncode, result.stderr) == (1, "polydomo: cannot write the output: No space left on device\n")


def test_streams_that_are_closed_lead_nowhere() -> None:
    assert shell("config >&-").returncode == 0
    assert shell("call echo <&- - --to ipc:///nobody/there").returncode == 5
    assert shell("call echo 2>&- --to ipc:///nobody/there").returncode == 5


def test_no_arguments_show_the_help() -> None:
    result = run()
    assert b"Usage: polydomo" in result.stdout + result.stderr


def test_the_greeting_names_a_command_that_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make up`` starts a broker from .venv, where a new terminal does not look."""
    program = tmp_path / ".venv" / "bin" / "polydomo"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    assert typed() == ".venv/bin/polydomo"
    monkeypatch.chdir("/")
    assert typed() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert typed() == "polydomo"


def test_output_is_complete_if_signals_interrupt_its_writes() -> None:
    """A write to a full pipe that a signal interrupts is short, and Python without buffers does not write the rest."""
    code = (
        "import signal, sys; from polydomo.cli.common.exit_status import write_everything; write_everything();"
        "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01);"
        "print('first'); sys.stdout.buffer.write(bytes(1_000_000)); sys.stdout.buffer.flush(); print('x' * 1_000_000);"
        "sys.stdout.flush(); signal.setitimer(signal.ITIMER_REAL, 0)"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(PYTHONUNBUFFERED="1")) as process:
        assert process.stdout is not None
        found = b""
        while piece := os.read(process.stdout.fileno(), 50_000):
            found += piece
            time.sleep(0.005)  # the pipe stays full
    assert process.returncode == 0
    assert found == b"first\n" + bytes(1_000_000) + b"x" * 1_000_000 + b"\n"
