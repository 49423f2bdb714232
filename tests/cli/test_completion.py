"""Completion in shells, and the man page."""

import doctest
import shutil
import subprocess

import pytest

from polydomo.cli import completion
from polydomo.cli.loading import PANELS
from tests.cli.shell import Broker, complaint, run
from tests.server.harness import wait_for


def completed(words: str, to: str = "tcp://127.0.0.1:9") -> list[str]:
    """What bash offers for the last of the words."""
    last = str(words.count(" "))
    result = run(_POLYDOMO_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=last, POLYDOMO_TO=to)
    return result.stdout.decode().split()


def test_the_examples_in_the_module() -> None:
    assert doctest.testmod(completion).failed == 0


def test_commands_and_options_are_completed() -> None:
    assert completed("polydomo req") == ["requests"]
    assert "--timeout" in completed("polydomo call --ti")


def test_names_of_services_are_completed(served: Broker) -> None:
    found: list[str] = []

    def find() -> bool:
        """The broker has half a second: a machine that pauses needs another try."""
        found[:] = completed("polydomo call u", served.url)
        return bool(found)

    wait_for(find, "names")
    assert found == ["upper"]
    assert completed("polydomo call u") == [], "no broker, and no complaint"


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.returncode == 0 and b"_POLYDOMO_COMPLETE" in result.stdout
    if shell == "bash" and shutil.which("bash"):
        assert subprocess.run(["bash", "-n"], input=result.stdout, check=False).returncode == 0


def test_another_shell() -> None:
    result = run("completion", "csh")
    assert result.returncode == 2 and "must be one of bash, zsh, fish, powershell" in complaint(result)


def test_the_man_page_has_every_command() -> None:
    page = run("man").stdout.decode()
    assert page.startswith(".TH POLYDOMO 1")
    for names in PANELS.values():
        for name in names:
            escaped = name.replace("-", "\\-")
            assert f'.SS "polydomo {escaped}' in page, name
    assert "\\-\\-timeout" in page and "`" not in page and "**" not in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_is_well_formed() -> None:
    page = run("man").stdout
    shown = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, check=False)
    assert shown.returncode == 0 and shown.stderr == b""
