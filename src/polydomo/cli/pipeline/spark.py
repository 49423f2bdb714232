"""``polydomo spark``: SQL on Spark as a service, and workers on a Spark cluster."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from polydomo.cli.common.options import To
from polydomo.cli.pipeline.pipeline import Conf, Master, pairs, seconds
from polydomo.errors import SettingError

commands = typer.Typer(
    no_args_is_help=True, help="Offer SQL on Spark as a service, and run workers on a Spark cluster."
)


def add_to(app: typer.Typer) -> None:
    from polydomo.cli.pipeline import spark_work

    commands.command(name="work")(spark_work.work)
    app.add_typer(commands, name="spark")


@commands.callback()
def spark() -> None:
    """Offer SQL on Spark as a service, and run workers on a Spark cluster."""


@commands.command()
def serve(
    to: To = None,
    tables: Annotated[
        str | None,
        typer.Option("--tables", "-t", metavar="DIR", help="Directory of the pipeline's tables; each becomes a view."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="An additional Parquet directory as a view; repeatable."),
    ] = None,
    service: Annotated[str, typer.Option(metavar="NAME", help="Name of the service.")] = "spark.sql",
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of concurrent queries.")] = 4,
    max_rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum rows per result.")] = None,
    max_time: Annotated[str | None, typer.Option(metavar="TIME", help="Timeout of a query, such as 5m.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum bytes per result.")] = None,
    writable: Annotated[
        bool,
        typer.Option(
            "--writable", help="Allow statements that change data, for every client that may call the service."
        ),
    ] = False,
    master: Master = "",
    conf: Conf = None,
) -> None:
    """Offer SQL on Spark as the service spark.sql, until SIGTERM or Ctrl-C.

    The reply has rows as partial replies (Arrow, JSON lines, CSV or HTML), then a summary as JSON. In a browser, open
    http://127.0.0.1:5246/v1/call/spark.sql at the broker's address.

    **Examples**

    - `polydomo spark serve --tables tables`
    - `polydomo call spark.sql "SELECT service, count(*) FROM requests GROUP BY ALL"`
    """
    from polydomo.cli.common import options
    from polydomo.pipeline import session

    named = [one.partition("=") for one in table or []]
    for name, given, path in named:
        if not given or not name.isidentifier() or not path:
            raise SettingError(f"--table: {name!r} is not NAME=PATH")
    settings = {
        "spark.sql.runSQLOnFiles": str(writable).lower(),
        "spark.scheduler.mode": "FAIR",
        # a JVM without memory may answer nothing and stay; this one ends, and is started again
        "spark.driver.extraJavaOptions": f"{session.QUICK} -XX:+ExitOnOutOfMemoryError",
        # the pipeline's sessions do not coalesce; here it saves a Python task for each empty partition after a shuffle
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        **pairs(conf or []),
    }
    time = seconds(max_time) if max_time is not None else None
    session.require()
    from polydomo.spark.serve import serve as run
    from polydomo.spark.sql_query import QueryLimits

    standard = QueryLimits()
    limits = QueryLimits(max_rows or standard.rows, max_bytes or standard.bytes, time or standard.seconds)

    def open_session() -> Any:
        made = session.build(master, "", settings)
        if tables is not None:
            from polydomo.pipeline.catalog import views

            views(made, tables)
        for name, _, path in named:
            made.read.parquet(path).createOrReplaceTempView(name)
        return made

    with _logs_shown():
        run(open_session, session.close, options.address(to), service, concurrency, limits, writable)


@contextlib.contextmanager
def _logs_shown() -> Iterator[None]:
    """Logs to standard error. When a JVM ends, py4j logs with the root logger, and so gives it a handler that would repeat each message."""
    log, handler = logging.getLogger("polydomo"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("polydomo: %(message)s"))
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
