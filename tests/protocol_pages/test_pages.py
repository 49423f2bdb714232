"""docs/protocols: what every page of a protocol has. The dialogue is what a broker sends, and the example prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polydomo import testing
from tests.protocol_pages.dialogues import DIALOGUES, FURTHER
from tests.protocol_pages.write import PAGES, page
from tests.statements.raw import PATIENT

PARTS = {
    "a table of its messages": re.compile(r"^## On the wire$", re.MULTILINE),
    "a table of states and events": re.compile(r"^\| event.*\|$", re.MULTILINE | re.IGNORECASE),
    "its decisions": re.compile(r"^## Decisions where the \w+ (?:is|are) silent$", re.MULTILINE),
    "what happens on each violation": re.compile(r"^## Violations$", re.MULTILINE),
    "a legend": re.compile(r"^\| notation \| meaning \|$", re.MULTILINE),
    "a sequence diagram": re.compile(r"^```mermaid\nsequenceDiagram$", re.MULTILINE),
    "a state diagram": re.compile(r"^```mermaid\nstateDiagram-v2$", re.MULTILINE),
}


def text_of(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_page_has_its_parts(name: str) -> None:
    text = text_of(name)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[:2] == ["A dialogue", "Try it"]
    assert f"conformance-{name}.md" in text or name == "mdp"  # MDP is none of the five documents
    for what, pattern in PARTS.items():
        assert pattern.search(text), f"{name}.md lacks {what}"


@pytest.mark.parametrize("name", DIALOGUES)
def test_the_dialogue_is_what_a_broker_exchanges(name: str) -> None:
    """If this fails after a change of the protocol or of its states: ``python -m tests.protocol_pages.write``."""
    text = text_of(name)
    assert text == page(name, text)


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_name_of_the_dialogue_is_in_its_legend(name: str) -> None:
    dialogue, legend = text_of(name).split("```text\n")[1].split("```\n", 1)
    names = set(re.findall(r"<[a-z ]+>", dialogue))
    assert names
    for found in names:
        assert f"| `{found}` |" in legend


@pytest.mark.parametrize("name", DIALOGUES)
def test_the_example_runs_as_printed(name: str, tmp_path: Path) -> None:
    examples = re.findall(r"^```python raw\n(.*?)^```$", text_of(name), re.MULTILINE | re.DOTALL)
    assert len(examples) == 1 + len(FURTHER.get(name, {}))
    for code in examples:
        says = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
        assert len(says) == code.count("print(") > 0 and "tcp://127.0.0.1:5246" in code
        with testing.broker(settings=PATIENT) as broker:
            run = subprocess.run(
                [sys.executable, "-c", code.replace("tcp://127.0.0.1:5246", broker.url)],
                capture_output=True,
                text=True,
                timeout=250,
                cwd=tmp_path,
            )
        assert (run.stdout.splitlines(), run.returncode, run.stderr) == (says, 0, "")


DIAGRAMS = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the diagrams of these pages consist of, in the grammar of Mermaid: `;` ends a statement, and `#` begins a code of a character.
LINES = {
    "sequenceDiagram": (r"participant \w+( as [\w ]+)?", r"\w+->>\w+: [^;#]+"),
    "stateDiagram-v2": (r'state "[^"]+" as \w+', r"\[\*\] --> \w+", r"\w+ --> \w+: [^:;#]+"),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_mermaid_can_read_the_diagrams(name: str) -> None:
    """Without Mermaid itself, which is no part of the tests: every line has a form that version 11 was seen to draw."""
    for diagram in DIAGRAMS.findall(text_of(name)):
        kind, *lines = diagram.splitlines()
        for line in lines:
            assert any(re.fullmatch("    " + form, line) for form in LINES[kind]), line
