"""``polydomo context``: saves a broker's address and keys under a name."""

from pathlib import Path
from typing import Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Json, To

context_app = typer.Typer(help="Save a broker's address and keys under a name.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    context_app.command("save")(save)
    context_app.command("list")(list_contexts)
    context_app.command("remove")(remove)
    app.add_typer(context_app, name="context")


def save(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")],
    to: To = None,
) -> None:
    """Save a broker's address and your credentials for it. Key files are not copied.

    Commands use it with `--context NAME` or `POLYDOMO_CONTEXT=NAME`, programs with `Client(context="NAME")`.

    **Examples**

    - `polydomo context save lab --to tcp://broker.example:5246 --key alice.key_secret --server-key server.key`
    - `polydomo services --context lab`
    """
    from polydomo.cli.common import security
    from polydomo.client import contexts
    from polydomo.errors import SettingError

    if security.chosen.pop("context", None) is not None:
        raise SettingError("--context: cannot be used with `context save`; give --to and the key files")
    url = options.address(to)
    made = security.given()
    path = contexts.save(
        name,
        contexts.Context(
            url, _place(made.key), _place(made.server_key), _place(made.ca), _place(made.cert), made.user, made.token
        ),
    )
    typer.echo(f"Wrote {path}; use it with --context {name}")


def list_contexts(json: Json = False) -> None:
    """List the saved contexts."""
    from polydomo.cli.common.render import PrintedColumn, show, show_json
    from polydomo.client import contexts

    found = [(name, contexts.load(name)) for name in contexts.names()]
    if json:
        show_json([{"name": name, "to": one.to, "key": one.key, "server_key": one.server_key} for name, one in found])
        return
    columns = [
        PrintedColumn("context"),
        PrintedColumn("to"),
        PrintedColumn("key", folds=True),
        PrintedColumn("server key", folds=True),
    ]
    show(columns, [[name, one.to, one.key, one.server_key] for name, one in found])


def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]) -> None:
    """Remove a context. The key files it refers to are kept."""
    from polydomo.client import contexts

    contexts.remove(name)


def _place(value: str) -> str:
    """Makes a file name absolute, because the context is used from other directories. A key is returned unchanged."""
    return str(Path(value).resolve()) if value and Path(value).is_file() else value
