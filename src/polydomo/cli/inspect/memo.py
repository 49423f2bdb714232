"""``polydomo memo``: shows and removes stored replies of memoised services; ``memo_nodes`` adds the commands for Nodes."""

import json as jsons
from typing import Annotated, Any

import typer

from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.journal.quantities import size

Row = dict[str, Any]

commands = typer.Typer(help="Stored replies of memoised services, and the Nodes of MemoDB.", no_args_is_help=True)

NOT_MEMOISED = 'no service is memoised; turn it on for a service with [service."NAME"] memo = true'

COLUMNS = [
    PrintedColumn("service"),
    PrintedColumn("version"),
    PrintedColumn("replies", right=True),
    PrintedColumn("size", right=True),
    PrintedColumn("hits", right=True),
]


def add_to(app: typer.Typer) -> None:
    app.add_typer(commands, name="memo")


@commands.callback()
def memo() -> None:
    """Show and remove stored replies of memoised services; store, show and evaluate Nodes as MemoDB does."""


@commands.command()
def ls(to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """List the services that have stored replies.

    **Examples**

    - `polydomo memo ls`
    """
    answer: list[Row] | Row = _ask(to, {"op": "ls"}, timeout)
    rows = answer if isinstance(answer, list) else []  # an object: no service is memoised
    if json:
        show_json(rows)
        return
    if not isinstance(answer, list):
        typer.echo(NOT_MEMOISED)
        return
    cells = [
        [row["service"], row["version"], str(row["replies"]), size(row["size_bytes"]), str(row["hits"])] for row in rows
    ]
    show(COLUMNS, cells)


@commands.command()
def rm(
    service: Annotated[
        str, typer.Argument(metavar="SERVICE", help="Name of the service, or a pattern such as `lint.*`.")
    ],
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Remove the stored replies of a service, so that its next requests run again.

    **Examples**

    - `polydomo memo rm resize`
    - `polydomo memo rm 'lint.*'`
    """
    answer: Row = _ask(to, {"op": "rm", "service": service}, timeout)
    typer.echo(f"removed {answer.get('removed', 0)} replies of {service}")


@commands.command()
def stats(to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """Show hits, misses, and the size of the store.

    **Examples**

    - `polydomo memo stats`
    """
    answer: Row = _ask(to, {"op": "stats"}, timeout)
    if json:
        show_json(answer)
        return
    if not answer.get("services"):
        typer.echo(NOT_MEMOISED)
        return
    for name, value in answer.items():
        shown = ", ".join(value) if isinstance(value, list) else size(value) if name.endswith("_bytes") else value
        typer.echo(f"{name:<16} {shown}")


def _ask(to: str | None, command: Row, timeout: float) -> Any:
    from polydomo.cli.inspect.inspection import ask

    return ask(to, "memo", timeout, jsons.dumps(command))
