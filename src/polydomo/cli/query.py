"""``polydomo query``: SQL over the tables."""

import csv as csv_text
import json as json_text
import sys
from typing import Annotated

import typer

from polydomo.cli.pipeline import Conf, Format, Master, Remote, pairs
from polydomo.cli.render import Column, show
from polydomo.errors import SettingError

MOST = 1000  # rows of a table that a person may still read


def add_to(app: typer.Typer) -> None:
    app.command()(query)


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A question in Spark's SQL.")],
    tables: Annotated[str, typer.Option("--tables", "-t", metavar="DIR", help="Directory of the tables.")] = "tables",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, for programs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
    master: Master = "",
    remote: Remote = "",
    conf: Conf = None,
    format: Format = "parquet",
) -> None:
    """Ask the tables of the pipeline: requests, hops, services, workers, topology, audit, audit_rules, capacity, logs, values.

    `DESCRIBE requests` lists the columns of one.

    **Examples**

    - `polydomo query "SELECT service, outcome, count(*) FROM requests GROUP BY ALL"`
    - `polydomo query "SELECT * FROM audit" --json`
    """
    if json and csv:
        raise SettingError("--json and --csv: one of them")
    settings = pairs(conf or [])
    from polydomo.pipeline import session

    session.require()
    from polydomo.pipeline import query as asking

    spark = session.build(master, remote, settings, progress=True, quick=True)
    try:
        asking.views(spark, tables, format)
        answer = asking.ask(spark, sql)
        names = answer.columns
        if json:
            for row in asking.rows(answer):
                typer.echo(json_text.dumps(dict(zip(names, row, strict=True))))
        elif csv:
            writer = csv_text.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            for row in asking.rows(answer):
                writer.writerow([asking.cell(value) for value in row])
        else:
            found = list(asking.rows(answer, MOST + 1))
            numeric = {
                name
                for name, kind in answer.dtypes
                if kind in ("int", "bigint", "smallint", "double", "float") or kind.startswith("decimal")
            }
            show(
                [Column(name, name in numeric) for name in names],
                [[asking.cell(value) for value in row] for row in found[:MOST]],
            )
            if len(found) > MOST:
                typer.echo(f"polydomo: only the first {MOST} rows are shown; --csv and --json give all", err=True)
    finally:
        session.close(spark)
