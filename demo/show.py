"""The output of the demo: plain text, with colours on a terminal."""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from polydomo.cli.common import render
from polydomo.cli.common.render import PrintedColumn

INDENT = "   "
WIDEST = 100  # longer lines are hard to read


@dataclass
class Promise:
    """One check, and whether it holds."""

    step: int
    text: str
    kept: bool
    seen: str


class Show:
    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.fancy = self.console.is_terminal
        self.promises: list[Promise] = []
        self.began = time.monotonic()
        self.step = 0
        try:
            "✓✗".encode(sys.stdout.encoding or "ascii")
            self.tick, self.cross = "✓", "✗"
        except UnicodeEncodeError:
            self.tick, self.cross = "ok", "NO"

    # --- lines -----------------------------------------------------------------------------------------------------------

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style), soft_wrap=True)

    def title(self, text: str) -> None:
        self.line(text, "bold")
        self.line("=" * len(text), "bold")

    def begin(self, title: str) -> None:
        self.step += 1
        self.line()
        heading = f"{self.step}. {title}"
        self.line(heading, "bold cyan")
        self.line("-" * len(heading), "cyan")

    def say(self, text: str) -> None:
        """Prints a paragraph of explanation."""
        width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
        self.line(textwrap.fill(" ".join(text.split()), width))

    def event(self, text: str) -> None:
        """Prints an event with its time."""
        self.line(f"{INDENT}{time.monotonic() - self.began:5.1f} s  {text}")

    def output(self, command: str, text: str) -> None:
        """Prints a command and its output."""
        self.line(f"{INDENT}$ {command}", "bold")
        for line in text.splitlines():
            self.line(INDENT + line, "dim")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        for number, line in enumerate(render.aligned([PrintedColumn(title) for title in titles], rows)):
            text = Text(INDENT + line, "bold" if number == 0 else "")
            text.highlight_words([self.tick], "green")
            text.highlight_words([self.cross], "bold red")
            self.console.print(text, soft_wrap=True)

    # --- promises --------------------------------------------------------------------------------------------------------

    def check(self, text: str, kept: bool, seen: str = "") -> None:
        """Records and prints whether a check holds."""
        self.promises.append(Promise(self.step, text, kept, seen))
        mark = self.tick if kept else self.cross
        self.line(f"{INDENT}{mark} {text}{f' ({seen})' if seen else ''}", "green" if kept else "bold red")

    def summary(self) -> bool:
        """Prints the table of checks; returns True if all hold."""
        self.line()
        self.line("Summary", "bold cyan")
        self.line("-------", "cyan")
        rows = [[self.tick if p.kept else self.cross, str(p.step), p.text, p.seen or "-"] for p in self.promises]
        self.table(["", "step", "check", "result"], rows)
        broken = [p for p in self.promises if not p.kept]
        self.line()
        seconds = f"{time.monotonic() - self.began:.0f} s"
        if broken:
            self.line(f"{len(broken)} of {len(self.promises)} checks failed ({seconds}).", "bold red")
        else:
            self.line(f"All {len(self.promises)} checks passed ({seconds}).", "bold green")
        return not broken
