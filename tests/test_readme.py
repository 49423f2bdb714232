"""The commands and programs of README.md give the printed output (with another address), and its links are valid."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import shell

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^```(?:python|console) ([a-z]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = dict(BLOCK.findall(README))
ADDRESS = "tcp://127.0.0.1:5246"


def session(name: str) -> "list[tuple[str, str]]":
    """The commands of a console block, each with what it prints."""
    found: list[tuple[str, str]] = []
    for line in BLOCKS[name].splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            command, printed = found[-1]
            found[-1] = (command, printed + line + "\n")
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shell.Broker]:
    with shell.Broker(tmp_path_factory.mktemp("readme"), "--journal=requests") as broker:
        yield broker


def run(words: "list[str]", url: str, directory: Path | None = None) -> str:
    """The output of a program that must succeed; `polydomo` is the one of this environment."""
    path = f"{Path(sys.executable).parent}:{shell.environment()['PATH']}"
    done = subprocess.run(
        words,
        env=shell.environment(PATH=path, POLYDOMO_TO=url),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=shell.PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_part_of_the_quick_start_is_tried_here() -> None:
    assert set(BLOCKS) == {"work", "call", "jobs", "flow", "limit", "access", "worker", "client", "pyzmq"}


def test_make_up_installs_the_journal_dependencies() -> None:
    """``polydomo requests --since`` and ``trace`` read the journal, so a broker started by ``make up`` must keep one."""
    assert "polydomo requests --since" in README
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "up: $(VENV)/.base" in makefile
    (recipe,) = re.findall(r"^\$\(VENV\)/\.base:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "$(call install,journal " in recipe


@pytest.mark.skipif(shutil.which("tr") is None, reason="the example needs tr")
def test_the_shell_part(broker: shell.Broker, tmp_path: Path) -> None:
    ((work, nothing),) = session("work")
    assert nothing == ""
    service, *command = work.removeprefix("polydomo work ").split()
    with broker.worker(service, *command):
        for typed, printed in [*session("call"), *session("jobs"), *session("limit"), *session("access")]:
            if "curl" in typed and shutil.which("curl") is None:
                continue
            typed = typed.replace(ADDRESS.replace("tcp", "http"), broker.url.replace("tcp", "http"))
            assert run(["sh", "-c", typed], broker.url, tmp_path).rstrip("\n") == printed.rstrip("\n")
        program = tmp_path / "flow.py"
        program.write_text(BLOCKS["flow"].replace(ADDRESS, broker.url), encoding="utf-8")
        assert run([sys.executable, str(program)], broker.url) == "HELLO, WORLD AGAIN\n"


def test_the_python_part(broker: shell.Broker, tmp_path: Path) -> None:
    programs = {}
    for name in ("worker", "client", "pyzmq"):
        assert ADDRESS in BLOCKS[name]
        programs[name] = tmp_path / f"{name}.py"
        programs[name].write_text(BLOCKS[name].replace(ADDRESS, broker.url), encoding="utf-8")
    process = subprocess.Popen([sys.executable, programs["worker"]], env=shell.environment())
    try:
        broker.logged("worker registered", services="double")
        assert run([sys.executable, str(programs["client"])], broker.url) == "42\n"
        pytest.importorskip("zmq", reason="the last example is a pyzmq program")
        assert run([sys.executable, str(programs["pyzmq"])], broker.url) == "42\n"
    finally:
        process.terminate()
        assert process.wait(shell.PATIENCE) == 0  # a worker exits cleanly on SIGTERM


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} in {page}"
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{target} in {page}"


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_listed() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "index.md" or f"({name})" in index, f"docs/index.md does not list {name}"
