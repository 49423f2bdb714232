"""What a newcomer gets wrong, and what the command line says then: one line, and where to read on."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polydomo.cli import flags
from polydomo.cli.exit_status import typed
from polydomo.cli.loading import PANELS
from polydomo.errors import SettingError
from tests.cli.shell import PATIENCE, POLYDOMO, complaint, environment, run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["upp"], "No such command 'upp'. Did you mean 'up'? See `polydomo --help`"),
        (["call"], "Missing argument 'SERVICE'; see `polydomo call --help`"),
        (["--loud"], "No such option: --loud; see `polydomo --help`"),
        (["work", "echo"], "work: give a program after --, or --echo"),
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
    result = run("call", "echo", "--to", "tcp://127.0.0.1:9,tcp://127.0.0.1:10")
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
        "import signal, sys; from polydomo.cli.exit_status import write_everything; write_everything();"
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
