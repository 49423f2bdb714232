"""The statements of the five documents: each sentence, figure, dialog and frame layout, whether polydomo does what it says, and the
test that shows it.

``documents/NAME.txt`` is a document as it was published. ``lists/NAME.toml`` has its whole text again, cut into passages, in order.
A passage is a statement (it has ``holds``) or says nothing about what a peer does (it has ``aside``: a heading, the licence, history).
"""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TITLES = {"mdx": "MDX", "dcp": "DCP v1", "dbp": "DBP", "emqp": "eMQP/1.0", "memo01": "memo01"}
YES, DIFFERENT, NO = "yes", "different", "no"


@dataclass(frozen=True)
class Passage:
    text: str
    id: str = ""
    holds: str = ""
    tests: list[str] = field(default_factory=list)  # path::name, the first one is the proof
    note: str = ""
    aside: str = ""


@cache
def passages(name: str) -> list[Passage]:
    """All of a document, in order."""
    content = tomllib.loads((HERE / "lists" / f"{name}.toml").read_text(encoding="utf-8"))
    return [Passage(**entry) for entry in content["passage"]]


def statements(name: str) -> list[Passage]:
    return [passage for passage in passages(name) if passage.holds]


def document(name: str) -> str:
    return (HERE / "documents" / f"{name}.txt").read_text(encoding="utf-8")
