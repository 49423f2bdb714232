"""``polydomo config``: lists every setting, its value, and the source of the value."""

from typing import Annotated

import typer

from polydomo.cli.common.exit_status import print_error
from polydomo.cli.common.options import Json
from polydomo.cli.common.render import PrintedColumn, show, show_json


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(config)


def config(
    ctx: typer.Context,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with settings.")] = None,
    json: Json = False,
) -> None:
    """List all settings with value, default, source and description.

    It reads the file, the `POLYDOMO_*` variables and the flags as `polydomo up` does, so it also validates them: if one is
    invalid, it prints an error and exits with status 2.

    **Examples**

    - `polydomo config`
    - `polydomo config --config /etc/polydomo.toml --limits-max-message 16MiB`
    - `polydomo config --json | jq '.[] | select(.source != "default")'`
    """
    from polydomo.cli.common import flags

    settings = flags.load(config, {}, ctx.args)
    for notice in settings.notices:
        print_error(str(notice))
    described = settings.describe()
    if json:
        show_json([row._asdict() for row in described])
        return
    columns = [
        PrintedColumn("key"),
        PrintedColumn("value", folds=True),
        PrintedColumn("default", spare=1, folds=True),
        PrintedColumn("source", folds=True),
        PrintedColumn("help", folds=True),
    ]
    show(columns, [list(row) for row in described])
