"""The examples of docs/libraries.md and of the docstrings run as they stand, but for the address; docs/modules.md is complete."""

import doctest
import importlib
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import polydomo
from polydomo import testing
from polydomo.broker.requests.transitions import STATES, TABLE
from tests import modules_page, transitions_page

ROOT = Path(__file__).parents[1]
WAIT = 60.0

BLOCK = re.compile(r"^```python ([a-z-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# tests/test_pytest_plugin.py has the examples of docs/testing.md.
EXAMPLES = dict(BLOCK.findall((ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")))


def example(name: str, url: str) -> str:
    code: str = EXAMPLES[name]
    assert "tcp://127.0.0.1:5246" in code
    return code.replace("tcp://127.0.0.1:5246", url)


def test_there_are_examples() -> None:
    started = {"worker", "client", "async-client", "headers"}
    assert set(EXAMPLES) == started | set(SELF_CONTAINED)


def test_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker() as broker:
        names: dict[str, object] = {}
        source = example("worker", broker.url).removesuffix("worker.run()\n")
        exec(compile(source, "worker", "exec"), names)
        worker = names["worker"]
        assert isinstance(worker, polydomo.Worker)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            exec(compile(example("client", broker.url), "client", "exec"), {})
            lines = capsys.readouterr().out.splitlines()
            assert lines[0] == "hello"
            assert lines[1:5] == ["0 False", "1 False", "2 False", "that was all True"]
            assert lines[5] == "CALL 999"
            assert lines[6] == "no reply from missing within 0.1 s"
            exec(compile(example("async-client", broker.url), "async-client", "exec"), {})
            assert capsys.readouterr().out.splitlines() == ["CALL 999", "0", "1", "that was all"]
            exec(compile(example("headers", broker.url), "headers", "exec"), {})
        finally:
            worker.stop()
            thread.join(WAIT)


# Examples that need a broker only; their comments are what they print.
SELF_CONTAINED = ("topics", "async-topics", "catalog", "schedule", "chain", "processes", "batches", "map")


@pytest.mark.parametrize("name", SELF_CONTAINED)
def test_an_example_prints_what_its_comments_say(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker(jobs=True) as broker:
        code = example(name, broker.url)
        exec(compile(code, name, "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)


def test_the_example_of_publishing() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/publish.md").read_text(encoding="utf-8"), re.DOTALL)
    with testing.broker() as broker:
        run = subprocess.run(
            [sys.executable, "-c", code.replace("tcp://127.0.0.1:5246", broker.url)],
            capture_output=True,
            text=True,
            timeout=250,
        )
    assert (run.returncode, run.stdout, run.stderr) == (0, "[b'weather.oslo', b'snow']\n", "")


def test_the_fixture_of_the_docstring(tmp_path: Path) -> None:
    assert testing.__doc__ is not None
    (code,) = re.findall(r"```python\n(.*?)```", testing.__doc__, re.DOTALL)
    (tmp_path / "test_mine.py").write_text(code, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout


@pytest.mark.parametrize(
    "name",
    [
        "polydomo.cli.inspect.inspection",
        "polydomo.cli.inspect.logs",
        "polydomo.cli.inspect.watch_view",
        "polydomo.cli.pipeline.pipeline",
        "polydomo.cli.inspect.tap",
        "polydomo.client.message",
        "polydomo.worker.call",
        "polydomo.protocols.registry",
        "polydomo.wire.address",
    ],
)
def test_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert (failed, tried > 0) == (0, True)


def test_the_package_is_cheap_to_import() -> None:
    """``import polydomo`` loads the errors and nothing else; the names come when they are asked for."""
    code = "import sys, polydomo; print(int('asyncio' in sys.modules)); polydomo.Client; polydomo.Worker; print(dir(polydomo))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=250,
    )
    first, names = run.stdout.splitlines()
    assert first == "0"
    for name in polydomo.__all__:
        assert repr(name) in names
        assert getattr(polydomo, name)


def test_unknown_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        polydomo.Broker  # noqa: B018


def test_the_list_of_packages_and_their_modules_is_current() -> None:
    """If this fails after a module was added, moved or removed: ``python -m tests.modules_page``."""
    assert modules_page.PAGE.read_text(encoding="utf-8") == modules_page.page()


def test_every_package_says_what_it_is_for() -> None:
    assert [str(package) for package in modules_page.packages() if len(modules_page.purpose(package)) < 8] == []


def test_the_states_of_a_request_are_documented() -> None:
    """If this fails after the table changed: ``python -m tests.transitions_page``."""
    text = transitions_page.PAGE.read_text(encoding="utf-8")
    assert text == transitions_page.page(text)


def test_what_happens_to_a_request_follows_the_table_of_transitions() -> None:
    names = {name: state for state, name in STATES.items()}
    rows = transitions_page.details(transitions_page.PAGE.read_text(encoding="utf-8"))
    assert {state for _, state, _ in rows} == {"QUEUED", "HELD", "PARKED", "DONE"}
    for happens, state, text in rows:
        after = {names[word] for word in re.findall(r"\b[A-Z]{4,}\b", text)}
        assert after <= set(TABLE[names[state]].values()), f"{happens}: {state} cannot become {text}"
