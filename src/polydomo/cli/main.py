"""``polydomo``: the commands, gathered.

Each command imports what it needs when it runs, so that ``up`` carries no client library and ``call`` no broker.
"""

from typing import Annotated

import typer

from polydomo import __version__
from polydomo.cli import (
    ask,
    bench,
    call,
    catalog,
    config,
    discover,
    logs,
    past,
    pipeline,
    query,
    replay,
    report,
    spans,
    stream,
    tap,
    up,
    watch,
    work,
)
from polydomo.cli.exits import Commands

app = typer.Typer(
    name="polydomo",
    cls=Commands,
    help="One broker for the whole Majordomo family of messaging protocols.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polydomo {__version__}")
        raise typer.Exit


@app.callback()
def polydomo(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


COMMANDS = (up, call, work, ask, past, replay, spans, tap, catalog, config, bench, logs, discover, watch, pipeline, stream, query, report)
for group in COMMANDS:
    group.add_to(app)
