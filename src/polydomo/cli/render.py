"""What people see: tables on a terminal, aligned text in a pipe, and spans of time in words.

Names and texts come from peers, so nothing that could steer a terminal is let through.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import typer


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False  # numbers stand to the right


def on_terminal() -> bool:
    return sys.stdout.isatty()


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, aligned text elsewhere. An empty cell is a dash, so that every line has every column."""
    cells = [[clean(cell) or "-" for cell in row] for row in rows]
    if on_terminal():
        show_rich(columns, cells)
    else:
        typer.echo("\n".join(aligned(columns, cells)))


def show_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, since a service may be called "[red]"
    Console().print(table)


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """
    >>> aligned([Column("name"), Column("workers", right=True)], [["echo", "12"]])
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
    """The text with everything escaped that would end a line or steer a terminal.

    >>> clean("a\\x1b[31m\\n")
    'a\\\\x1b[31m\\\\n'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def span(seconds: float) -> str:
    """
    >>> [span(n) for n in (0.0421, 3.21, 75, 3700, 90000)]
    ['42 ms', '3.2 s', '1 m 15 s', '1 h 01 m', '1 d 1 h']
    """
    whole = int(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if seconds < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def clock(seconds_ago: float) -> str:
    """The local time that long ago; with its date where that was not today."""
    now = datetime.now()
    then = now - timedelta(seconds=seconds_ago)
    return then.strftime("%H:%M:%S" if then.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """
    >>> [size(n) for n in (12, 4096, 5_500_000)]
    ['12 B', '4.0 KiB', '5.2 MiB']
    """
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    return f"{count / (1024 * 1024):.1f} MiB"
