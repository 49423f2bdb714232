"""``polydomo journal``: maintains the files of a journal."""

from pathlib import Path
from typing import Annotated

import typer

from polydomo.cli.common.exit_status import print_error
from polydomo.cli.pipeline.pipeline import parse_time
from polydomo.errors import SettingError
from polydomo.journal.quantities import size

commands = typer.Typer(no_args_is_help=True, help="Maintain the files of a journal.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(commands, name="journal")


@commands.callback()
def journal() -> None:
    """Maintain the files of a journal."""


@commands.command()
def compact(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The journal directory, or the broker's data directory.")
    ] = Path("polydomo-data"),
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only hours before this time: 2026-01-31, 2026-01-31T07:30, or 2h for two hours ago."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print how many files would remain.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result and problems.")] = False,
) -> None:
    """Merge the small files of a journal into a few large ones.

    A running broker merges the files of each hour when the hour is over. This command is for journals of earlier versions, for
    copies and for archives. It refuses to run while a broker is writing the journal. If it is interrupted, no row is lost: run it
    again.

    **Examples**

    - `polydomo journal compact polydomo-data`
    - `polydomo journal compact /archive/journal --before 1d`
    """
    try:
        from polydomo.journal.files import compact as compacting
        from polydomo.journal.files.segments import journal_in
    except ImportError:
        raise SettingError("reading a journal needs pyarrow (pip install 'polydomo[journal]')") from None
    limit = parse_time(before, "--before")
    if not directory.is_dir():
        raise SettingError(f"no such directory: {directory}")
    found = journal_in(directory)
    if not any(found.glob("kind=*")):
        raise SettingError(f"there is no journal in {directory}: it has no directory kind=requests or kind=messages")
    try:
        outcome = compacting.compact(found, limit, dry_run, (lambda line: None) if quiet else typer.echo)
    except OSError as error:
        raise SettingError(
            f"cannot merge the segments in {found}: {error.strerror or error}; no data is lost, run it again"
        ) from None
    for problem in outcome.problems:
        print_error(problem)
    would = "would be" if dry_run else "are now"
    typer.echo(
        f"{outcome.files_before} files {would} {outcome.files_after}"
        + ("" if dry_run else f"; {size(outcome.bytes_before)} became {size(outcome.bytes_after)}")
    )
