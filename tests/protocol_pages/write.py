"""``python -m tests.protocol_pages.write``: writes the dialogue, its legend and the two diagrams at the top of the pages of docs/protocols.

The dialogue is what raw sockets and a real broker exchanged."""

from pathlib import Path

from polydomo import testing
from tests.protocol_pages.dialogue import Dialogue
from tests.protocol_pages.dialogues import DIALOGUES, FURTHER
from tests.protocol_pages.states import MACHINES
from tests.statements.raw import PATIENT

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
BEGIN = "<!-- begin of the dialogue, written by python -m tests.protocol_pages.write -->\n"
END = "<!-- end of the dialogue -->\n"

SUBJECTS = {
    "mdp": "A worker of MDP/0.1 offers `upper`, and a client calls it",
    "mdp2": "The same in MDP/0.2 (RFC 18); the reply comes in two parts",
    "mdx": "A worker offers `upper`, and a client calls it; the reply comes in two parts",
    "dcp": "A worker that the broker does not know registers as `upper`, and a client calls it",
    "emqp": "A worker of the queue `upper` and a client, both in the document's form",
    "memo01": "A worker offers `upper` and leaves after one job",
    "dbp": "A service registers and takes requests, a client looks it up, and an MDP client calls it",
}

# notation -> meaning
FRAMES = {
    '`"text"`, `""`': "a frame with this text; an empty frame",
    "`01`": "a frame with these bytes, in hexadecimal",
}
TABLES = {
    "in tables, a plain word such as service": "a frame with that content",
    "in tables, body+ and body\\*": "one or more, and zero or more frames",
}
LEGENDS = {
    "mdp": {
        **FRAMES,
        "`<client>`": "the client's address: a token made by the broker, new for each attempt. The worker returns it",
        **TABLES,
    },
    "mdx": {
        **FRAMES,
        "`<token>`": "the client's address: made by the broker, new for each attempt. The worker returns it",
        **TABLES,
    },
    "dcp": {
        **FRAMES,
        '`"DGBX"+01`': "one frame: this text, then this byte",
        "`<address>`": "the client's address: made by the broker, new for each attempt. The worker returns it",
        "in tables, metadata\\*, data\\*": "zero or more frames",
    },
    "emqp": {
        '`"text"`, `""`': FRAMES['`"text"`, `""`'],
        "`<msgid>`": "the id of a message of the broker",
        "`<request>`": "the id of the request at this worker: made by the broker, new for each attempt",
        "in tables, a plain word such as queue": "a frame with that content",
    },
    "memo01": {
        "`[...]`": "the header, in the diagnostic notation of CBOR",
        "`h'00ff'`, `h''`": "a byte string in hexadecimal; an empty one",
        '`"hello"` after the header': "the payload",
        "second line of a message": "its bytes as NNG sends them, in hexadecimal",
        "`<worker id>`": "16 random bytes, made by the broker",
    },
    "dbp": {
        '`"text"`, `\'text\'`, `""`': "a frame with this text; an empty frame",
        "`<time>`": "seconds since the epoch; here an 8-byte double",
        "in tables, frame+ and frame\\*": "one or more, and zero or more frames",
    },
}


def section(name: str) -> str:
    with testing.broker(settings=PATIENT) as broker:
        dialogue = DIALOGUES[name](broker.url)
        further = {other: play(broker.url) for other, play in FURTHER.get(name, {}).items()}
    legend = "".join(f"| {notation} | {meaning} |\n" for notation, meaning in LEGENDS[name].items())
    return (
        f"{BEGIN}## A dialogue\n\n{SUBJECTS[name]}. Raw sockets and a broker exchanged these messages:\n\n"
        f"```text\n{dialogue.text()}```\n\n| notation | meaning |\n|---|---|\n{legend}\n{diagrams(name, dialogue)}"
        + "".join(
            f"\n{SUBJECTS[other]}:\n\n```text\n{found.text()}```\n\n{diagrams(other, found)}"
            for other, found in further.items()
        )
        + END
    )


def diagrams(name: str, dialogue: Dialogue) -> str:
    machine = MACHINES[name]
    return (
        f"```mermaid\n{dialogue.diagram()}```\n\n"
        f"The states of {machine.of}. A label is what the peer sends or what happens and, after the slash, what the broker sends to it:\n\n"
        f"```mermaid\n{machine.diagram()}```\n"
    )


def page(name: str, text: str) -> str:
    """The page with a new section."""
    before, rest = text.split(BEGIN)
    return before + section(name) + rest.split(END)[1]


if __name__ == "__main__":
    for name in DIALOGUES:
        path = PAGES / f"{name}.md"
        path.write_text(page(name, path.read_text(encoding="utf-8")), encoding="utf-8")
