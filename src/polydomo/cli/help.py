"""``polydomo help``: the help of a command, like its ``--help``."""

from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command("help")(show_help)


def show_help(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command; without one, all are listed.")
    ] = None,
) -> None:
    """Show the help of a command. The same as `polydomo COMMAND --help`.

    **Examples**

    - `polydomo help call`
    - `polydomo help pipeline run`
    """
    root = ctx.find_root()
    root.command.main([*(command or []), "--help"], prog_name=root.info_name)
