"""The record of an actor: one line per event, written with one call, so that SIGKILL loses no event that happened before it.

S id service attempts     a call is about to be submitted; its client may send it up to this many times
E id outcome ms at        it ended after this many milliseconds, at this wall-clock time
T id                      a second outcome of it arrived
W id                      a reply arrived that belongs to another call
G id                      a reply arrived that differs from what the worker sent
X id                      a worker begins to execute it
Q                         the actor has stopped gracefully, with no open calls
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path


class Record:
    """The file of one actor."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def submitted(self, call: str, service: str, attempts: int) -> None:
        self._say(f"S {call} {service} {attempts}")

    def ended(self, call: str, outcome: str, seconds: float) -> None:
        self._say(f"E {call} {outcome} {seconds * 1000:.2f} {time.time():.3f}")

    def second(self, call: str) -> None:
        self._say(f"T {call}")

    def judge(self, call: str, said: bytes, expected: bytes) -> str:
        """The outcome of a reply, after comparison with the expected one."""
        if said == expected:
            return "reply"
        wrong = not said.startswith(call.encode() + b"|")
        self._say(f"{'W' if wrong else 'G'} {call}")
        return "wrong" if wrong else "garbled"

    def executing(self, call: str) -> None:
        self._say(f"X {call}")

    def quit(self) -> None:
        self._say("Q")

    def _say(self, line: str) -> None:
        os.write(self._file, line.encode() + b"\n")


@dataclass
class Submitted:
    """One call, reconstructed from the records."""

    service: str
    attempts: int
    outcome: str = ""
    took: float = 0.0  # milliseconds
    at: float = 0.0
    endings: int = 0
    executions: int = 0


@dataclass
class Tally:
    """All records together."""

    calls: dict[str, Submitted] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    garbled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # executed, but not submitted by any client
    executions: int = 0

    @classmethod
    def of(cls, directory: Path) -> "Tally":
        tally = cls()
        executed: list[str] = []
        for path in sorted(directory.glob("*.record")):
            tally._read(path, executed)
        for call in executed:
            tally.executions += 1
            if call in tally.calls:
                tally.calls[call].executions += 1
            else:
                tally.unknown.append(call)
        return tally

    def _read(self, path: Path, executed: list[str]) -> None:
        for line in path.read_text().splitlines():
            kind, _, rest = line.partition(" ")
            words = rest.split(" ")
            if kind == "S":
                self.calls[words[0]] = Submitted(words[1], int(words[2]))
            elif kind == "E":
                call = self.calls[words[0]]
                call.outcome, call.took, call.at = words[1], float(words[2]), float(words[3])
                call.endings += 1
            elif kind == "X":
                executed.append(words[0])
            elif kind != "Q":
                {"T": self.twice, "W": self.wrong, "G": self.garbled}[kind].append(words[0])
        self.twice += [name for name, call in self.calls.items() if call.endings > 1 and name not in self.twice]


def owner(call: str) -> str:
    """The actor, and its incarnation, that submitted a call: also the name of its record.

    >>> owner("client-mdx.2.17")
    'client-mdx.2'
    """
    return call.rpartition(".")[0]
