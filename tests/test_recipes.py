"""The recipes of CONTRIBUTING.md, followed with an example that is in the code: the files they name exist and have the example in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polydomo"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (.+?)\n\n(.+?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PATH = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md))`")

# For each recipe: the words that stand for the example's names, and how the example is written in code and pages.
EXAMPLES = {
    "Add a protocol": ({"NAME": "dcp"}, r"\bdcp\b|Dcp|DCP"),
    "Add a limit": ({}, r"MAX_QUEUE|max_queue"),
    "Add a setting": ({}, r"max_queue"),
    "Add a command": ({"GROUP": "calls", "NAME": "publish"}, r"publish"),
    "Add a journal column": ({}, r"\"trace\"|\btrace=|`trace`"),
    "Add a table to the pipeline": ({"NAME": "topology"}, r"\btopology\b"),
    "Add a built-in service": ({}, r"polydomo\.services|def services|\bservices\("),
    "Add an HTTP endpoint": ({"NAME": "jobs"}, r"/v1/jobs|JobsEndpoint"),
}

# Files that a recipe names for what they check, or for other examples than its own.
OTHERS = {
    "tests/test_docs_facts.py",  # compares pages with the code, without names
    "tests/journal/test_documentation.py",
    "tests/fuzz/targets.py",  # DCP is frames
    "model/tuning.py",  # settings of protocols
    "tests/broker/test_bounds.py",  # limits of other names
    "tests/server/test_bounds.py",
    "tests/server/settings/test_settings.py",
    "journal/recording/event_fields.py",  # columns of rare events
    "journal/recording/chunk.py",  # columns that are computed
    "journal/reading/rules.py",  # columns that the audit needs
    "sim/mutants.py",  # mutants are named by what they break
    "server/http/site.py",  # endpoints that need the server
    "broker/guard/rules.py",  # the rights, which endpoints share
    "broker/guard/access.py",
}

# How a module imports or registers the example.
REGISTERED = {
    "Add a protocol": r"DcpSession|DcpClientEnd|DcpWorkerEnd",
    "Add a command": r"calls[./]publish",
    "Add a table to the pipeline": r"tables import \([^)]*\btopology\b|tables[./]topology",
    "Add an HTTP endpoint": r"\bJobsEndpoint\b",
}


def place(name: str) -> Path:
    """A path of the page: below the package, or below the repository."""
    return SOURCE / name if (SOURCE / name).exists() else ROOT / name


def paths(recipe: str) -> list[str]:
    text = RECIPES[recipe]
    for word, name in EXAMPLES[recipe][0].items():
        text = text.replace(word, name)
    return list(dict.fromkeys(PATH.findall(text)))


def test_every_recipe_has_an_example() -> None:
    assert set(RECIPES) == set(EXAMPLES)
    assert all("Example: `" in text for text in RECIPES.values())


@pytest.mark.parametrize("recipe", EXAMPLES)
def test_the_files_of_the_recipe_have_its_example(recipe: str) -> None:
    names = paths(recipe)
    assert len(names) >= 3
    assert [name for name in names if not place(name).is_file()] == []
    pattern = re.compile(EXAMPLES[recipe][1])
    without = [name for name in names if not pattern.search(place(name).read_text(encoding="utf-8"))]
    assert set(without) <= OTHERS


@pytest.mark.parametrize("recipe", REGISTERED)
def test_the_recipe_forgets_no_module(recipe: str) -> None:
    """Whatever in the package imports or registers the example is a file of the recipe."""
    named = {place(name) for name in paths(recipe)}
    knowing = {path for path in SOURCE.rglob("*.py") if re.search(REGISTERED[recipe], path.read_text(encoding="utf-8"))}
    assert knowing, "the example is gone: choose another one"
    assert sorted(str(path.relative_to(SOURCE)) for path in knowing - named) == []
