"""``python -m tests.statements.page``: writes docs/protocols/conformance-*.md from the lists of statements."""

import re
from pathlib import Path

from tests.statements.statements import DIFFERENT, NO, TITLES, YES, Passage, passages, statements

PAGES = Path(__file__).parents[2] / "docs" / "protocols"

INTRODUCTION = """\
# {title}: conformance, statement by statement

This page lists every statement of the {title} document (sentences, goals, figures, dialogs and frame layouts), whether it holds
for polydomo, and the test that shows it. [{name}.md]({name}.md) describes the protocol.
An *end* is our client or worker side of a protocol.

{count} statements: {yes} hold (*yes*), {different} are done differently for the reason given (*different*), {no} do not hold (*no*).
{asides} other passages say nothing about what a peer does: {kinds}.

`python -m tests.statements.page` writes this page from `tests/statements/lists/{name}.toml`. Tests compare the list with the text of
the document, word for word, and check that the tests exist.

| | statement | holds? | test | note |
|---|---|---|---|---|
"""


def plain(text: str) -> str:
    """A passage without its markup, in one line."""
    text = re.sub(r"!\[(.*?)\]\([^)]*\)", r"Figure: \1", text)
    text = re.sub(r"<img [^>]*>", "Figure: architecture of the Core Catalog Service", text)
    text = re.sub(r"\[\[(\d+)\]\([^)]*\)\]", "", text)
    text = re.sub(r"\[([^]]*)\]\((?:http|resources)[^)]*\)", r"\1", text)
    text = re.sub(r"\[([^]]*)\]\[\w+\]", r"\1", text)
    text = re.sub(r"^(?:> ?|[-*+] |\d\. )", "", text)
    text = re.sub(r"={5,}(?: =+)*", "", text)
    text = re.sub(r"-{5,}\|?", "", text).replace("\\*", "*").replace("|", " ")
    text = re.sub(r"\*\*_?|_\*\*", "", text).replace(" > ", " ")
    text = re.sub(r"(?<=[.:]) [-*+] |(?<=[a-z)]) \* (?=Frame)", " ", text)
    return " ".join(text.split())


def cell(text: str) -> str:
    """Text in a table: nothing in it is markup."""
    return re.sub(r"([*_<\[|])", r"\\\1", text) if "`" not in text else text.replace("|", "\\|")


def row(passage: Passage) -> str:
    tests = " ".join(f"`{test}`" for test in passage.tests) or "-"
    return f"| {passage.id} | {cell(plain(passage.text))} | {passage.holds} | {tests} | {passage.note} |\n"


def page(name: str) -> str:
    found = statements(name)
    asides = [passage.aside for passage in passages(name) if passage.aside]
    kinds = sorted(set(asides))
    head = INTRODUCTION.format(
        name=name,
        title=TITLES[name],
        count=len(found),
        yes=sum(passage.holds == YES for passage in found),
        different=sum(passage.holds == DIFFERENT for passage in found),
        no=sum(passage.holds == NO for passage in found),
        asides=len(asides),
        kinds=", ".join(f"{kind} ({asides.count(kind)})" for kind in kinds),
    )
    return head + "".join(row(passage) for passage in found)


def target(name: str) -> Path:
    return PAGES / f"conformance-{name}.md"


if __name__ == "__main__":
    for name in TITLES:
        target(name).write_text(page(name), encoding="utf-8")
