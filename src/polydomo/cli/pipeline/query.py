"""``polydomo query``: SQL over the tables."""

import csv as csv_text
import json as json_text
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common.render import PrintedColumn, show
from polydomo.cli.pipeline.pipeline import Conf, Master, Remote, pairs
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.pipeline.query import local as local_query
    from polydomo.pipeline.query import spark as spark_query

    Result = local_query.LocalResult | spark_query.SparkResult

MOST = 1000  # maximum rows printed as a table
ENGINES = ("auto", "duckdb", "spark")


def add_to(app: typer.Typer) -> None:
    app.command()(query)


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The query.")],
    tables: Annotated[str, typer.Option("--tables", "-t", metavar="DIR", help="Directory of the tables.")] = "tables",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="SQL engine: duckdb or spark. auto uses duckdb for local Parquet tables.",
        ),
    ] = "auto",
    master: Master = "",
    remote: Remote = "",
    conf: Conf = None,
) -> None:
    """Query the tables of the pipeline with SQL: requests, hops, services, workers, topology, audit, audit_rules, capacity, logs, values.

    `DESCRIBE requests` lists the columns of a table.

    **Examples**

    - `polydomo query "SELECT service, outcome, count(*) FROM requests GROUP BY ALL"`
    - `polydomo query "SELECT * FROM audit" --json`
    - `polydomo query "SELECT count(*) FROM requests" -t hdfs:///tables --master yarn`
    """
    if not sql.strip().strip(";"):
        raise SettingError('SQL: the query is empty; for example "SELECT count(*) FROM requests"')
    if json and csv:
        raise SettingError("--json and --csv: choose one")
    if engine not in ENGINES:
        raise SettingError(f"--engine: must be one of {', '.join(ENGINES)}, not {engine!r}")
    settings = pairs(conf or [])
    if engine == "auto":
        on_spark = "://" in tables.removeprefix("file://") or bool(master or remote or settings)
        engine = "spark" if on_spark else "duckdb"
    if engine == "duckdb":
        with _by_duckdb(sql, tables) as answer:
            _print(answer, json, csv)
    else:
        with _by_spark(sql, tables, master, remote, settings) as answer:
            _print(answer, json, csv)


@contextmanager
def _by_duckdb(sql: str, tables: str) -> "Iterator[Result]":
    try:
        from polydomo.pipeline.query import local as local_query
        from polydomo.pipeline.query.cells import BadQuery
    except ImportError as error:
        raise SettingError(
            f"queries of local tables need {error.name} (pip install 'polydomo[spark]'), or --engine spark"
        ) from None
    there = local_query.LocalTables(tables)
    try:
        yield there.ask(sql)
    except BadQuery as error:
        raise BadQuery(f"{error} (this is DuckDB's SQL; use --engine spark for Spark's)") from None
    finally:
        there.close()


@contextmanager
def _by_spark(sql: str, tables: str, master: str, remote: str, settings: dict[str, str]) -> "Iterator[Result]":
    from polydomo.pipeline import session

    session.require()
    from polydomo.pipeline import catalog
    from polydomo.pipeline.query import spark as spark_query

    spark = session.build(master, remote, settings, progress=True)
    try:
        catalog.views(spark, tables)
        yield spark_query.ask(spark, sql)
    finally:
        session.close(spark)


def _print(answer: "Result", json: bool, csv: bool) -> None:
    from polydomo.pipeline.query.cells import cell

    if json:
        for row in answer.rows():
            typer.echo(json_text.dumps(dict(zip(answer.names, row, strict=True))))
    elif csv:
        writer = csv_text.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.names)
        for row in answer.rows():
            writer.writerow([cell(value) for value in row])
    else:
        found = list(islice(answer.rows(), MOST + 1))
        numeric = answer.numeric
        show(
            [PrintedColumn(name, name in numeric) for name in answer.names],
            [[cell(value) for value in row] for row in found[:MOST]],
        )
        if len(found) > MOST:
            typer.echo(f"polydomo: only the first {MOST} rows are shown; --csv and --json print all", err=True)
