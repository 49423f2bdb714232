"""``polydomo backup`` and ``polydomo restore``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from polydomo.journal.quantities import size


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(backup)
    app.command()(restore)


def backup(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory for the backup.")],
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Data directory of the broker.  [default: ./polydomo-data]")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with the broker's settings.")] = None,
    access: Annotated[str | None, typer.Option(metavar="FILE", help="The broker's access file.")] = None,
) -> None:
    """Back up the data directory of a broker, which may be running.

    Give it the flags, variables and settings file of the broker. It copies jobs, results and schedules, the memo store, the access
    file and the other files of the data directory. The journal is not copied: the manifest names its directory. Neither are keys,
    certificates, and jobs in PostgreSQL (`pg_dump`).

    It needs no right at the broker, but the right to read its files: run it as the broker's user.

    **Examples**

    - `polydomo backup backups/monday`
    - `polydomo backup "/backup/$(date +%F)" --config /etc/polydomo/polydomo.toml`
    """
    from polydomo.cli.common import flags
    from polydomo.server.backup import back_up

    settings = flags.load(config, {"data": data, "access": access}, ctx.args)
    made = back_up(settings, directory)
    total = sum(one.size for one in made.files.values())
    typer.echo(f"backed up {made.data} to {directory}: {', '.join(made.files) or 'no files'} ({size(total)})")
    if made.store:
        typer.echo(f"not included: jobs in {made.store}; back up that database with pg_dump")
    if made.journal:
        typer.echo(f"not included: the journal {made.journal}; copy the directory, its files never change")
    for needed in made.needs:
        typer.echo(f"not included: {needed}, which the access file names")


def restore(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that `polydomo backup` made.")],
    data: Annotated[Path, typer.Option(metavar="NEW", help="The new data directory.")],
) -> None:
    """Make a data directory of a backup.

    All files of the backup are checked first. Jobs that were open continue when a broker starts with the new directory: those that
    ended after the backup run again.

    **Examples**

    - `polydomo restore backups/monday --data polydomo-data`
    """
    from polydomo.server.access.file import named_files
    from polydomo.server.backup import ACCESS
    from polydomo.server.backup import restore as restore_backup

    made = restore_backup(directory, data)
    typer.echo(f"restored the backup of {made.time} to {data}")
    start = f"polydomo up --data {data}"
    if ACCESS in made.files:
        start += f" --access {data / ACCESS}"
        for needed in named_files(data / ACCESS):
            if not os.path.exists(needed):
                typer.echo(f"the access file needs {needed}: copy it there, or edit {data / ACCESS}")
    typer.echo(f"start a broker with: {start}")
