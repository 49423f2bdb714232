"""Human-readable output: tables on a terminal, aligned text in a pipe, times and sizes as text.

Names and texts come from peers, so terminal control characters are escaped.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from polydomo.journal.quantities import took
from polydomo.visible import visible


@dataclass(frozen=True)
class PrintedColumn:
    title: str
    right: bool = False  # align to the right, for numbers
    spare: int = 0  # columns with the highest number are dropped first on a narrow terminal; 0: never dropped
    folds: bool = False  # text that may wrap over several lines


FOLDED = 14  # minimum width of a column that wraps
LONG = 40  # a longer cell of any column wraps, so that one long name does not displace the other columns


def on_terminal() -> bool:
    return sys.stdout.isatty()


def show(columns: Sequence[PrintedColumn], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table on a terminal, aligned text elsewhere. An empty cell is a dash, so that every line has every column."""
    cells = [[clean(cell) or "-" for cell in row] for row in rows]
    if on_terminal():
        show_rich(columns, cells)
    else:
        typer.echo("\n".join(aligned(columns, cells)))


def show_rich(columns: Sequence[PrintedColumn], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    kept, fits = fitting(columns, rows, console.size.width)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i in kept:
        column = columns[i]
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=fits and not column.folds and not any(cell_len(row[i]) > LONG for row in rows),
        )
    for row in rows:
        table.add_row(*(Text(row[i]) for i in kept))  # Text, since a service may be called "[red]"
    console.print(table)
    left_out = [column.title for i, column in enumerate(columns) if i not in kept]
    if left_out:
        console.print(Text(f"a wider terminal also shows: {', '.join(left_out)}", style="dim"))


def fitting(columns: Sequence[PrintedColumn], rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], bool]:
    """Which columns fit, and whether they fit without wrapping cells that should not wrap.

    >>> columns = [PrintedColumn("name"), PrintedColumn("peer", spare=2), PrintedColumn("state", spare=1)]
    >>> columns.append(PrintedColumn("cause", folds=True))
    >>> rows = [["echo", "tcp://127.0.0.1:50046", "ready", "registered from tcp://127.0.0.1:50046"]]
    >>> [fitting(columns, rows, width) for width in (80, 32, 22, 10)]
    [([0, 1, 2, 3], True), ([0, 2, 3], True), ([0, 3], True), ([0, 3], False)]
    """
    from rich.cells import cell_len

    need = []
    for i, column in enumerate(columns):
        widest = max(cell_len(cell) for cell in (column.title, *(row[i] for row in rows)))
        need.append(min(widest, FOLDED if column.folds else LONG))
    kept = list(range(len(columns)))
    while sum(need[i] + 2 for i in kept) - 2 > width:
        least = max(kept, key=lambda i: columns[i].spare)
        if not columns[least].spare:
            return kept, False
        kept.remove(least)
    return kept, True


def aligned(columns: Sequence[PrintedColumn], rows: Sequence[Sequence[str]]) -> list[str]:
    """
    >>> aligned([PrintedColumn("name"), PrintedColumn("workers", right=True)], [["echo", "12"]])
    ['NAME  WORKERS', 'echo       12']
    """
    lines = [[column.title.upper() for column in columns], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def show_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2 if on_terminal() else None))


def clean(text: str) -> str:
    """Text of other programs for a cell of a table."""
    return visible(text)


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that orders numbers in a text by their value.

    >>> sorted(["w10", "w2", "w1", "gpu", "w"], key=natural)
    ['gpu', 'w', 'w1', 'w2', 'w10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def local(time: str) -> datetime:
    """The local time of an ISO 8601 time."""
    return datetime.fromisoformat(time).astimezone()


def progress_text(progress: Any) -> str:
    """
    >>> progress_text({"share": 0.375, "text": "page 3 of 8"}), progress_text(None)
    ('38% page 3 of 8', '')
    """
    return f"{progress['share']:.0%} {progress['text']}".rstrip() if progress else ""


def clock(time: str | None) -> str:
    """The local time of an ISO 8601 time, with the date if that is not today; empty for None."""
    if not time:
        return ""
    then = local(time)
    return then.strftime("%H:%M:%S" if then.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S")


def in_zone(time: str | None, zone: str) -> str:
    """The date and time of a schedule's next run, in its own time zone.

    >>> in_zone("2026-01-31T01:30:00.000000Z", "Europe/Berlin"), in_zone("2026-01-31T01:30:00.000000Z", "")
    ('2026-01-31 02:30:00 Europe/Berlin', '2026-01-31 01:30:00 UTC')
    """
    import zoneinfo

    if not time:
        return ""
    then = datetime.fromisoformat(time)
    try:
        shown = then.astimezone(zoneinfo.ZoneInfo(zone or "UTC"))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # this machine does not know the zone
        shown, zone = then.astimezone(UTC), "UTC"
    return f"{shown:%Y-%m-%d %H:%M:%S} {zone or 'UTC'}"


def latency(microseconds: int | None) -> str:
    """
    >>> [latency(n) for n in (None, 0, 83, 4_200, 250_000, 3_200_000)]
    ['-', '-', '83 us', '4.2 ms', '250 ms', '3.2 s']
    """
    return took(microseconds) if microseconds else "-"
