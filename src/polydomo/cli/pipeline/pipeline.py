"""``polydomo pipeline``: tables and an audit of the journal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.errors import PolydomoError, SettingError
from polydomo.model.durations import EXPECTED, read_duration
from polydomo.model.objective import Objective, read_objective

if TYPE_CHECKING:
    from polydomo.pipeline.session import LazySpark
    from polydomo.pipeline.tables.table import Table

BROKEN = 6  # exit status if the audit found violations and --strict was given

Journals = Annotated[
    list[str],
    typer.Option(
        "--journal",
        "-j",
        metavar="DIR",
        help="Directory of a journal, local, hdfs:// or s3a://; repeatable.",
    ),
]
Tables = Annotated[
    str,
    typer.Option(
        "--tables", "-t", metavar="DIR", help="Directory of the tables; each table is a subdirectory of Parquet files."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Ignore requests before this time: 2026-01-31, 2026-01-31T07:30, or 2h for two hours ago."
    ),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Ignore requests after this time.")]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Cluster: spark://..., yarn or k8s://...  [default: this machine]")
]
Remote = Annotated[str, typer.Option(metavar="URL", help="Spark Connect server: sc://...")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; repeatable."),
]
Format = Annotated[
    str,
    typer.Option(metavar="NAME", help="Table format: parquet or delta."),
]
Ui = Annotated[bool, typer.Option("--ui", help="Start Spark's web interface, and print its address.")]
Progress = Annotated[bool, typer.Option("--progress", help="Show Spark's progress bars.")]
Payloads = Annotated[
    list[str] | None,
    typer.Option(
        "--payload",
        metavar="NAME=FORMAT",
        help="Build a table from the payloads of a service or topic, such as 'sensors.*=json'; json or arrow.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", metavar="FILE", help='TOML file with a table pipeline.payloads, such as "sensors.*" = "json".'
    ),
]

With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE",
        help="Python file with tables of your own: functions decorated with @table; repeatable.",
    ),
]

commands = typer.Typer(no_args_is_help=True, help="Build tables and an audit from the journal.")


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
            metavar="SERVICE=OBJECTIVE",
            help="Latency objective of a service, such as 'resize=99.9% in 200ms'; * is any service.",
        ),
    ] = None,
    payload: Payloads = None,
    settings: SettingsFile = None,
    with_: With = None,
    strict: Annotated[
        bool, typer.Option("--strict", help=f"Exit with status {BROKEN} if the audit found violations.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict and problems.")] = False,
    ui: Ui = False,
    progress: Progress = False,
) -> None:
    """Load new segments of the journal into the tables, and print the result of the audit.

    Spark computes the tables: on this machine, or on a cluster with --master or --remote. If there is nothing new, Spark is not started.

    **Examples**

    - `polydomo pipeline run --journal polydomo-data/journal --tables tables`
    - `polydomo pipeline run -j hdfs:///journal -t hdfs:///tables --master yarn --since 2026-01-31`
    """
    wanted = objectives(objective or [])
    span = parse_time(since, "--since"), parse_time(until, "--until", end=True)
    spark_settings = pairs(conf or [])
    named = [*payloads_in(settings), *(payload or [])]
    tell = (lambda line: None) if quiet else typer.echo
    with engine(master, remote, spark_settings, ui, progress, tell) as session:
        from polydomo.pipeline import batch
        from polydomo.pipeline.payloads.tables import parsed

        options = batch.Options(*span, wanted, [parsed(one) for one in named], format, tables_in(with_ or []))
        summary = batch.run(journal, tables, options, session, tell)
    for problem in summary.problems:
        typer.echo(f"polydomo: {problem}", err=True)
    typer.echo(summary.verdict())
    if strict and summary.breaches:
        sys.exit(BROKEN)


@commands.command()
def explain(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table, such as services.")],
    with_: With = None,
    master: Master = "",
    remote: Remote = "",
    conf: Conf = None,
) -> None:
    """Print the definition of a table, and the plan that Spark makes of it.

    **Examples**

    - `polydomo pipeline explain services`
    - `polydomo pipeline explain late_orders --with my_tables.py`
    """
    own = tables_in(with_ or [])
    with engine(master, remote, pairs(conf or []), False, False, lambda line: None) as session:
        from polydomo.pipeline import explain as explaining
        from polydomo.scratch import scratch_directory

        found = explaining.find(table, own)
        typer.echo(explaining.definition(found))
        if found.compute is not None:
            sample = explaining.sample(session.get(), own, scratch_directory("explain"))
            typer.echo(explaining.plan(sample, found))


def tables_in(files: list[Path]) -> "list[Table]":
    """The tables that these files declare."""
    from polydomo.pipeline.user_tables import load

    return [table for file in files for table in load(file)]


@contextmanager
def engine(
    master: str, remote: str, conf: dict[str, str], ui: bool, progress: bool, tell: "Callable[[str], None]"
) -> "Iterator[LazySpark]":
    """A Spark session that is started when there is something to compute, and stopped on exit."""
    try:
        import pyarrow  # noqa: F401 - to say what is missing before the work begins

        from polydomo.pipeline import session
    except ImportError as error:
        raise PolydomoError(f"the pipeline needs {error.name}: pip install 'polydomo[spark]'") from None
    if find_spec("pyspark") is None:  # it is imported when there is something to compute
        raise PolydomoError("the pipeline needs pyspark: pip install 'polydomo[spark]'")

    def start(rows: int) -> Any:
        began = time.monotonic()
        made = session.build(master, remote, conf, progress=progress, ui=ui, rows=rows)
        tell(f"Spark session at {remote or made.conf.get('spark.master')}: {time.monotonic() - began:.1f} s")
        if ui and not remote:
            tell(f"Spark's web interface: {made.sparkContext.uiWebUrl}")
        return made

    with session.LazySpark(start) as made:
        yield made
        if made.started is not None and session.saves_classes():
            tell("writing the JVM's class archive, so that later sessions start faster (once)")


def payloads_in(path: Path | None) -> list[str]:
    """The table ``pipeline.payloads`` of a settings file, in the form of the flag."""
    from polydomo.server.settings.toml_file import read_toml

    if path is None:
        return []
    section = read_toml(path, "--settings").get("pipeline", {})
    found = section.get("payloads", {}) if isinstance(section, dict) else section
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SettingError(f'--settings: {path}: pipeline.payloads must be a table such as {{ "sensors.*" = "json" }}')
    return [f"{name}={value}" for name, value in found.items()]


def pairs(given: list[str]) -> dict[str, str]:
    made = {}
    for one in given:
        key, found, value = one.partition("=")
        if not found:
            raise SettingError(f"--conf: {one!r} is not KEY=VALUE")
        made[key] = value
    return made


def seconds(text: str) -> float:
    """
    >>> [seconds(text) for text in ("200ms", "2h", "1.5s")]
    [0.2, 7200.0, 1.5]
    """
    found = read_duration(text)
    if found is None:
        raise SettingError(f"{text!r} is not {EXPECTED}")
    return found


def parse_time(text: str | None, flag: str, end: bool = False) -> datetime | None:
    """Parses a time, in UTC unless it has an offset. A date alone means the start of the day, or its end if ``end`` is set."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        ago = read_duration(text) if text[-1:].isalpha() else None  # a number alone is more likely a wrong date
        if ago is None:
            raise SettingError(f"{flag}: {text!r} is not a time such as 2026-01-31, 2026-01-31T07:30 or 2h") from None
        return datetime.now(UTC) - timedelta(seconds=ago)
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if end and len(text) <= len("2026-01-31"):
        found += timedelta(days=1) - timedelta(microseconds=1)
    return found.astimezone(UTC)


def objectives(given: list[str]) -> "dict[str, Objective]":
    """``SERVICE=99.9% in 200ms``. The form of earlier versions, ``SERVICE=200ms:99.9`` or ``SERVICE=200ms``, is accepted too.

    >>> objectives(["resize=99.9% in 200ms"]) == objectives(["resize=200ms:99.9"])
    True
    """
    made = {}
    for one in given:
        name, _, text = one.rpartition("=")
        time, divided, percent = text.partition(":")
        before = f"{percent.removesuffix('%') if divided else 99}% in {time}"
        objective = read_objective(text) or read_objective(before)
        if not name or objective is None:
            raise SettingError(f"--objective: {one!r} is not SERVICE=OBJECTIVE, such as 'resize=99.9% in 200ms'")
        made[name] = objective
    return made
