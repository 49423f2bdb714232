"""The walks of docs/architecture.md: every file and every function that a step names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polydomo"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## Five walks\n")[1].split("\n## ")[0]
WALKS = dict(re.findall(r"^### (.+?)\n\n(.+?)(?=^### |\Z)", SECTION, re.MULTILINE | re.DOTALL))
# A file, and the functions that are named after it: `a/b.py` `One.two`, `three`
PLACE = re.compile(r"`((?:[\w]+/)*[\w]+\.(?:py|md))`((?:,? `[A-Za-z_][\w.]*`)*)")


def names(path: Path) -> set[str]:
    """Functions, classes, and ``Class.method`` of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{item.name}"
                for item in node.body
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
    return found


def test_there_are_five_walks_of_at_most_ten_steps() -> None:
    assert len(WALKS) == 5
    for text in WALKS.values():
        steps = [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1)) and 5 <= len(steps) <= 10
        assert "```mermaid" in text


@pytest.mark.parametrize("walk", WALKS)
def test_the_places_of_the_walk_exist(walk: str) -> None:
    places = PLACE.findall(WALKS[walk])
    assert len(places) >= 8
    missing = []
    for file, functions in places:
        path = SOURCE / file if (SOURCE / file).is_file() else ROOT / file
        if not path.is_file():
            missing.append(file)
            continue
        known = names(path) if path.suffix == ".py" else set()
        missing += [f"{file} {name}" for name in re.findall(r"`([\w.]+)`", functions) if name not in known]
    assert missing == []


@pytest.mark.parametrize("walk", WALKS)
def test_every_step_names_a_place(walk: str) -> None:
    steps = re.findall(r"^\| \d+ \| (.*?) \|", WALKS[walk], re.MULTILINE)
    assert [step for step in steps if not PLACE.search(step)] == []


def test_the_checker_finds_a_function_that_is_not_there() -> None:
    assert "Broker.request" in names(SOURCE / "broker" / "broker.py")
    assert "Broker.no_such_function" not in names(SOURCE / "broker" / "broker.py")
