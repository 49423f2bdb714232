"""``polydomo pipeline``: the journal as tables, with an audit."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from polydomo.errors import SettingError

BROKEN = 6  # exit status: rules were broken, and --strict was given

Journals = Annotated[
    list[str],
    typer.Option(
        "--journal",
        "-j",
        metavar="DIR",
        help="Directory of a journal; may be given several times, and be hdfs:// or s3a://.",
    ),
]
Tables = Annotated[
    str,
    typer.Option(
        "--tables", "-t", metavar="DIR", help="Directory of the tables; each is a directory of Parquet of its own name."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Leave out what was before: 2026-01-31, 2026-01-31T07:30, or 2h for the last two hours."
    ),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Leave out what was after.")]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Cluster: spark://..., yarn or k8s://...; without it, this machine.")
]
Remote = Annotated[str, typer.Option(metavar="URL", help="Spark Connect: sc://...")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given several times."),
]
Format = Annotated[str, typer.Option(metavar="NAME", help="parquet; or delta, iceberg where the cluster has them.")]

commands = typer.Typer(no_args_is_help=True, help="From the journal to tables, an audit and figures, on Spark.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(commands, name="pipeline")


@commands.command()
def run(
    journal: Journals,
    tables: Tables,
    since: Since = None,
    until: Until = None,
    master: Master = "",
    remote: Remote = "",
    conf: Conf = None,
    format: Format = "parquet",
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=TIME:PERCENT",
            help="What a service is to keep, such as resize=200ms:99.9; * is any service.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help=f"End with status {BROKEN} if the tables hold breaches of the rules.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict and what went wrong.")] = False,
) -> None:
    """Take what is new in the journal into the tables, and tell the audit's verdict.

    **Examples**

    - `polydomo pipeline run --journal polydomo-data/journal --tables tables`
    - `polydomo pipeline run -j hdfs:///journal -t hdfs:///tables --master yarn --since 2026-01-31`
    """
    from polydomo.pipeline import session

    wanted = objectives(objective or [])
    span = moment(since, "--since"), moment(until, "--until", end=True)
    settings = pairs(conf or [])
    if format not in ("parquet", "delta", "iceberg"):
        raise SettingError(f"--format: {format!r} is none of parquet, delta, iceberg")
    session.require()
    from polydomo.pipeline import batch, segments
    from polydomo.pipeline.tables.capacity import Objective

    rows = segments.rows_at_most(journal)
    spark = session.build(master, remote, settings, progress=not quiet, quick=rows is not None and rows < session.SMALL)
    try:
        made = {name: Objective(seconds, share) for name, (seconds, share) in wanted.items()}
        summary = batch.run(spark, journal, tables, *span, format, made, (lambda line: None) if quiet else typer.echo)
    finally:
        session.close(spark)
    for problem in summary.problems:
        typer.echo(f"polydomo: {problem}", err=True)
    typer.echo(summary.verdict())
    if strict and summary.breaches:
        sys.exit(BROKEN)


def pairs(given: list[str]) -> dict[str, str]:
    made = {}
    for one in given:
        key, found, value = one.partition("=")
        if not found:
            raise SettingError(f"--conf: {one!r} is not KEY=VALUE")
        made[key] = value
    return made


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """
    >>> [seconds(text) for text in ("200ms", "2h", "1.5s")]
    [0.2, 7200.0, 1.5]
    """
    for unit in sorted(UNITS, key=len, reverse=True):
        if text.endswith(unit):
            try:
                return float(text.removesuffix(unit)) * UNITS[unit]
            except ValueError:
                break
    raise SettingError(f"{text!r} is not a time such as 200ms, 1.5s or 2h")


def moment(text: str | None, flag: str, end: bool = False) -> datetime | None:
    """A time given by the user, UTC unless it says otherwise. A date alone is its beginning, or its ``end``."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(seconds=seconds(text))
        except SettingError:
            raise SettingError(f"{flag}: {text!r} is not a time such as 2026-01-31, 2026-01-31T07:30 or 2h") from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if end and len(text) <= len("2026-01-31"):
        found += timedelta(days=1) - timedelta(microseconds=1)
    return found.astimezone(UTC)


def objectives(given: list[str]) -> dict[str, tuple[float, float]]:
    made = {}
    for one in given:
        name, found, rest = one.rpartition("=")
        limit, divided, percent = rest.partition(":")
        try:
            share = float(percent.removesuffix("%")) / 100 if divided else 0.99
        except ValueError:
            found = ""
        if not found or not 0 < share <= 1:
            raise SettingError(f"--objective: {one!r} is not SERVICE=TIME:PERCENT such as resize=200ms:99.9")
        made[name] = (seconds(limit), share)
    return made
