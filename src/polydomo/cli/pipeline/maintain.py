"""``polydomo pipeline maintain``: compaction and retention of the tables."""

from typing import Annotated

import typer

from polydomo.cli.common.exit_status import print_error
from polydomo.cli.pipeline.pipeline import Tables, commands, parse_time
from polydomo.errors import PolydomoError


def add_to(app: typer.Typer) -> None:
    commands.command()(maintain)


def maintain(
    tables: Tables,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Remove hours before this time: 2026-01-31, 2026-01-31T07:00, or 90d for older than 90 days.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
) -> None:
    """Merge the small files of the tables, and remove old hours.

    Later runs do not load removed hours again, even if the journal still has them. If the command is interrupted, no data is lost:
    run it again. It refuses to run while `pipeline run` or `pipeline stream` writes the tables.

    **Examples**

    - `polydomo pipeline maintain -t tables`
    - `polydomo pipeline maintain -t tables --before 90d`
    """
    try:
        from polydomo.pipeline import maintain as maintaining
    except ImportError as error:
        raise PolydomoError(f"the pipeline needs {error.name}: pip install 'polydomo[spark]'") from None
    done = maintaining.maintain(
        tables, parse_time(before, "--before"), dry_run, (lambda line: None) if quiet else typer.echo
    )
    if done.recovered:
        print_error(done.recovered)
    would = "would be " if dry_run else ""
    typer.echo(
        f"{done.files_merged} files {would}merged into {done.files_made}; "
        f"{done.hours_removed} hours with {done.files_removed} files {would}removed"
    )
