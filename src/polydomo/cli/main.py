"""``polydomo``: the program. ``loading.py`` lists its commands.

Each command imports what it needs when it runs: ``up`` does not import the client library, and ``call`` does not import the broker.
"""

import os
from typing import Annotated

import typer

from polydomo.cli.common.exit_status import Commands
from polydomo.cli.loading import MARKUP

COMPLETION_VARIABLE = "_POLYDOMO_COMPLETE"  # set by the completion scripts

app = typer.Typer(
    name="polydomo",
    cls=Commands,
    help="One broker for the whole Majordomo family of messaging protocols.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from polydomo import __version__, native

        typer.echo(f"polydomo {__version__} ({native.form()})")
        raise typer.Exit


@app.callback()
def polydomo(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


if COMPLETION_VARIABLE in os.environ:
    from polydomo.cli import completion

    completion.enable()
