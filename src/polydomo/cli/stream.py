"""``polydomo pipeline stream``: keeps the tables up to date while the journal grows."""

import signal
import threading
from typing import Annotated

import typer

from polydomo.cli.exit_status import print_error
from polydomo.cli.pipeline import (
    Conf,
    Format,
    Journals,
    Master,
    Payloads,
    SettingsFile,
    Tables,
    Ui,
    commands,
    engine,
    objectives,
    pairs,
    payloads_in,
    seconds,
)


def add_to(app: typer.Typer) -> None:
    commands.command()(stream)


def stream(
    journal: Journals,
    tables: Tables,
    once: Annotated[
        bool, typer.Option("--once", help="Load everything available and exit, for example from cron.")
    ] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="Time between checks for new segments.")] = "5s",
    late: Annotated[str, typer.Option(metavar="TIME", help="How late a segment may arrive.")] = "2d",
    master: Master = "",
    conf: Conf = None,
    format: Format = "parquet",
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=TIME:PERCENT", help="Latency objective of a service, such as resize=200ms:99.9."),
    ] = None,
    payload: Payloads = None,
    settings: SettingsFile = None,
    ui: Ui = False,
) -> None:
    """Keep the tables up to date while brokers write their journals, until SIGTERM or Ctrl-C.

    A stream that was stopped or killed resumes where it left off. The tables are the same as those of `polydomo pipeline run`.

    **Examples**

    - `polydomo pipeline stream --journal polydomo-data/journal --tables tables`
    - `polydomo pipeline stream -j /data/journal -t /data/tables --once`
    """
    wanted = objectives(objective or [])
    spark_settings = pairs(conf or [])
    named = [*payloads_in(settings), *(payload or [])]
    interval, bound = seconds(every), seconds(late)
    stop = stop_event()
    with engine(master, "", spark_settings, ui, False, typer.echo) as executor:
        from polydomo.pipeline.batch import Options
        from polydomo.pipeline.formats import Format as TableFormat
        from polydomo.pipeline.payloads import parsed
        from polydomo.pipeline.stream import Streaming
        from polydomo.pipeline.tables.capacity import Objective

        TableFormat(format)
        made = {name: Objective(time, share) for name, (time, share) in wanted.items()}
        options = Options(objectives=made, payloads=[parsed(one) for one in named], format=format)
        Streaming(journal, tables, options, executor, bound, typer.echo, print_error).run(once, interval, stop)


def stop_event() -> threading.Event:
    """Set by SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
