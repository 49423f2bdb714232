"""The systemd units and the container: they are valid, are documented as they are, and name options that the command line has."""

import configparser
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from polydomo import testing

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted(path.name for path in PACKAGING.glob("*.service"))


def command_of(unit: str) -> list[str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(PACKAGING / unit, encoding="utf-8")
    return parser["Service"]["ExecStart"].split()


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    text = (PACKAGING / unit).read_text(encoding="utf-8")
    text = text.replace("/opt/polydomo/bin/polydomo", sys.executable)  # verify looks for the program
    copy = tmp_path / unit.replace("@", "@resize")
    copy.write_text(text, encoding="utf-8")
    run = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    mine = [line for line in run.stderr.splitlines() if "polydomo" in line]
    assert (run.returncode, mine) == (0, []), run.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_has_options_that_exist(unit: str) -> None:
    _, command, *arguments = command_of(unit)
    text = subprocess.run(
        [sys.executable, "-m", "polydomo", command, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    options = [
        word for word in arguments[: arguments.index("--") if "--" in arguments else None] if word.startswith("--")
    ]
    assert options
    for option in options:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), option


def test_the_documented_unit_is_the_one_in_the_repository() -> None:
    page = (PACKAGING.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    assert shown == (PACKAGING / "polydomo.service").read_text(encoding="utf-8")
    steps = page[: page.index("```ini")].rpartition("```sh")[2]
    assert f"{command_of('polydomo.service')[0]} man > " in steps, "the man page that the unit cites is installed"
    assert command_of("polydomo.service")[3] in steps, "the settings file that the unit names is made"
    assert steps.count('data = "/var/lib/polydomo"') == 1, "where the other commands of the page look for the data"


def test_an_environment_file_has_single_percent_signs() -> None:
    """systemd expands specifiers in units, but not in the files that EnvironmentFile names."""
    page = (PACKAGING.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    unit = (PACKAGING / "polydomo-worker@.service").read_text(encoding="utf-8")
    commands = re.findall(r"COMMAND=(.*?)(?:\n|`)", unit + page)
    assert len(commands) == 2 and all("50% -" in command for command in commands)


class Checked:
    """An HTTP server that answers any request with one status."""

    def __init__(self, status: int) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        asked = self.asked = list[str]()
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def healthy(port: int) -> int:
    """The exit status of the container's health check."""
    lines = (PACKAGING / "Containerfile").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("HEALTHCHECK ")]
    command = json.loads(line.partition(" CMD ")[2])
    assert "polydomo" not in command[0] and "python" not in " ".join(command)
    settings = {"PATH": os.environ["PATH"], "POLYDOMO_LISTEN": f"tcp://0.0.0.0:{port}"}
    return subprocess.run(command, env=settings, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_health_check_of_the_container() -> None:
    with testing.broker() as broker:
        port = int(broker.url.rpartition(":")[2])
        assert healthy(port) == 0
    assert healthy(port) != 0
    for status in (200, 503):
        server = Checked(status)
        try:
            assert (healthy(server.port) == 0) == (status == 200)
            assert server.asked == ["/healthz"]
        finally:
            server.close()


def test_the_builder_of_the_container_gets_what_it_copies_and_nothing_else() -> None:
    lines = (PACKAGING.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(copied_files())


def test_the_containerfile_copies_files_that_exist() -> None:
    assert copied_files()
    for name in copied_files():
        assert (PACKAGING.parent / name).exists(), name


def copied_files() -> list[str]:
    lines = (PACKAGING / "Containerfile").read_text(encoding="utf-8").splitlines()
    return [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
