"""``polydomo``: all commands.

Each command imports what it needs when it runs: ``up`` does not import the client library, and ``call`` does not import the broker.
"""

from typing import Annotated

import typer

from polydomo import __version__, native
from polydomo.cli import (
    access,
    bench,
    browse,
    call,
    catalog,
    completion,
    config,
    context,
    control,
    discover,
    inspection,
    jobs,
    journal,
    journal_search,
    keys,
    logs,
    maintain,
    memo,
    pipeline,
    publish,
    query,
    replay,
    report,
    spans,
    spark,
    stream,
    tap,
    up,
    watch,
    work,
)
from polydomo.cli.exit_status import Commands

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
        typer.echo(f"polydomo {__version__} ({native.form()})")
        raise typer.Exit


@app.callback()
def polydomo(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


COMMANDS = (
    up,
    config,
    discover,
    keys,
    access,
    context,
    call,
    work,
    catalog,
    publish,
    jobs,
    control,
    inspection,
    watch,
    browse,
    logs,
    memo,
    journal_search,
    tap,
    spans,
    replay,
    journal,
    pipeline,
    stream,
    maintain,
    query,
    report,
    spark,
    bench,
    completion,
)
for group in COMMANDS:
    group.add_to(app)

# The headings of the help, in order.
PANELS = {
    "Broker": ("up", "config", "discover"),
    "Call and serve": ("call", "work", "catalog", "register"),
    "Topics": ("publish", "subscribe"),
    "Durable jobs": ("submit", "result", "cancel", "jobs", "job", "dead", "schedule"),
    "Control": ("pause", "resume", "drain"),
    "Inspect": ("services", "workers", "requests", "clients", "status", "watch", "open", "logs", "memo"),
    "Journal and messages": ("trace", "tap", "spans", "replay", "journal"),
    "Tables and reports (Spark)": ("pipeline", "query", "report", "spark"),
    "Benchmark": ("bench",),
    "Shell integration": ("completion", "man"),
    "Access control": ("keys", "access", "context"),
}


def panel_of(name: str) -> str:
    return next(title for title, names in PANELS.items() if name in names)


for command in app.registered_commands:
    assert command.callback is not None
    command.rich_help_panel = panel_of(command.name or command.callback.__name__)
for several in app.registered_groups:
    several.rich_help_panel = panel_of(str(several.name))
