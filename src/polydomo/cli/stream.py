"""``polydomo pipeline stream``: the tables kept up to date while the journal grows."""

from typing import Annotated

import typer

from polydomo.cli.exits import complain
from polydomo.cli.pipeline import Conf, Format, Journals, Master, Tables, commands, objectives, pairs, seconds


def add_to(app: typer.Typer) -> None:
    commands.command()(stream)


def stream(
    journal: Journals,
    tables: Tables,
    once: Annotated[bool, typer.Option("--once", help="Take in all that is there, and end: for cron.")] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="Time between two looks at the journal.")] = "5s",
    late: Annotated[str, typer.Option(metavar="TIME", help="How old a segment may be when it comes.")] = "2d",
    master: Master = "",
    conf: Conf = None,
    format: Format = "parquet",
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=TIME:PERCENT", help="What a service is to keep, such as resize=200ms:99.9."),
    ] = None,
) -> None:
    """Keep the tables up to date while brokers write their journals, until SIGTERM or Ctrl-C.

    Where it stopped, however it stopped, it goes on. The tables are those that `polydomo pipeline run` makes.

    **Examples**

    - `polydomo pipeline stream --journal polydomo-data/journal --tables tables`
    - `polydomo pipeline stream -j /data/journal -t /data/tables --once`
    """
    from polydomo.pipeline import session

    wanted = objectives(objective or [])
    settings = pairs(conf or [])
    interval, bound = seconds(every), seconds(late)
    session.require()
    from polydomo.pipeline.stream import Streaming, stop_on_signals
    from polydomo.pipeline.tables.capacity import Objective

    stop = stop_on_signals()
    spark = session.build(master, "", settings)
    try:
        made = {name: Objective(time, share) for name, (time, share) in wanted.items()}
        Streaming(spark, journal, tables, format, bound, made, typer.echo, complain).run(once, interval, stop)
    finally:
        session.close(spark)
