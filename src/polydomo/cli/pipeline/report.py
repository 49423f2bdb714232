"""``polydomo report``: writes the tables as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from polydomo.cli.common.exit_status import print_error
from polydomo.errors import SettingError


def add_to(app: typer.Typer) -> None:
    app.command()(report)


def report(
    tables: Annotated[
        Path,
        typer.Option(
            "--tables", "-t", metavar="DIR", help="Directory of the tables that `polydomo pipeline run` made."
        ),
    ] = Path("tables"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")] = Path("report.html"),
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The journal that the tables were built from: adds the steps of failed requests to the report.",
        ),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "polydomo",
) -> None:
    """Write an HTML report of the tables: audit, traffic, latency, queue wait, workers, topology, failures.

    The page is one file and needs no network. It supports light and dark mode, phones and printing.

    **Examples**

    - `polydomo report`
    - `polydomo report --tables /data/tables --out /var/www/broker.html --title "Broker, May"`
    """
    try:
        from polydomo.pipeline.report import load, page
        from polydomo.pipeline.report.tables import Tables
    except ImportError:
        raise SettingError("a report needs pyarrow (pip install 'polydomo[journal]')") from None
    found = load.load(Tables(tables), journal)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page.render(found, title), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--out: cannot write {out}: {error.strerror or error}") from None
    for note in found.notes:
        print_error(note)
    _, head, words = page.result_of(found.audit)
    typer.echo(f"{head} {words}")
    typer.echo(f"Wrote {out}")
