"""``polydomo pipeline stream``: keeps the tables up to date while the journal grows."""

import signal
import threading
from typing import Annotated

import typer

from polydomo.cli.common.exit_status import print_error
from polydomo.cli.pipeline.pipeline import (
    Conf,
    Format,
    Journals,
    Master,
    Payloads,
    SettingsFile,
    Tables,
    Ui,
    With,
    commands,
    engine,
    objectives,
    pairs,
    payloads_in,
    seconds,
    tables_in,
)


def add_to(app: typer.Typer) -> None:
    commands.command()(stream)


def stream(
    journal: Journals,
    tables: Tables,
    once: Annotated[
        bool, typer.Option("--once", help="Load everything available and exit, for example from cron.")
    ] = False,
    interval: Annotated[
        str, typer.Option("--interval", "--every", metavar="TIME", help="Time between micro-batches.")
    ] = "5s",
    late: Annotated[str, typer.Option(metavar="TIME", help="How late a segment may arrive.")] = "2d",
    master: Master = "",
    conf: Conf = None,
    format: Format = "parquet",
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=OBJECTIVE", help="Latency objective of a service, such as 'resize=99.9% in 200ms'."
        ),
    ] = None,
    payload: Payloads = None,
    settings: SettingsFile = None,
    with_: With = None,
    ui: Ui = False,
) -> None:
    """Keep the tables up to date while brokers write their journals, until SIGTERM or Ctrl-C.

    It is a Structured Streaming query in one Spark session. A stream that was stopped or killed resumes where it left off. The tables are
    the same as those of `polydomo pipeline run`.

    **Examples**

    - `polydomo pipeline stream --journal polydomo-data/journal --tables tables`
    - `polydomo pipeline stream -j /data/journal -t /data/tables --once`
    """
    wanted = objectives(objective or [])
    spark_settings = pairs(conf or [])
    named = [*payloads_in(settings), *(payload or [])]
    pause, bound = seconds(interval), seconds(late)
    stop = stop_event()
    with engine(master, "", spark_settings, ui, False, typer.echo) as session:
        from polydomo.pipeline.batch import Options
        from polydomo.pipeline.payloads.tables import parsed
        from polydomo.pipeline.stream import Streaming

        options = Options(
            objectives=wanted, payloads=[parsed(one) for one in named], format=format, tables=tables_in(with_ or [])
        )
        Streaming(journal, tables, options, session, bound, typer.echo, print_error).run(once, pause, stop)


def stop_event() -> threading.Event:
    """Set by SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
