"""``polydomo pipeline explain TABLE``: the definition of a table, and Spark's plan for it.

The plan is made for empty files with the columns of the journal, so that no journal is needed.
"""

import inspect
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.pipeline import bronze, sums, turns
from polydomo.pipeline.audit import auditor
from polydomo.pipeline.audit.facts import PRESENT
from polydomo.pipeline.compute import PARTS, SUMS, Computation, Inputs
from polydomo.pipeline.sql import sql
from polydomo.pipeline.tables import TABLES, requests
from polydomo.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKERS = 2  # that a request passes in the plan; a run has as many as its journal


def find(name: str, tables: "list[Table]") -> Table:
    """The table of that name. Raises SettingError."""
    known = {**TABLES, **{table.name: table for table in tables}}
    if name not in known:
        raise SettingError(f"there is no table {name!r}; the tables are {', '.join(known)}")
    return known[name]


def definition(table: Table) -> str:
    """The source of the module that defines the table."""
    module = inspect.getmodule(table.compute) if table.compute is not None else auditor
    assert module is not None
    return inspect.getsource(module)


def plan(sample: Computation, table: Table) -> str:
    """Spark's plan. Empty for the tables of the audit: how many queries they need depends on the journal."""
    if table.compute is None:
        return ""
    frame = _silver(sample) if table.name == "requests" else table(*(sample.read(name) for name in table.reads))
    shown = StringIO()
    with redirect_stdout(shown):
        frame.explain(mode="formatted")
    return shown.getvalue()


def sample(spark: "SparkSession", tables: "list[Table]", scratch: Path) -> Computation:
    """Empty files for everything that a table can read."""
    paths = {kind: [f"{scratch}/{kind}"] for kind in schema.KINDS}
    for kind in schema.KINDS:
        _write_empty(spark, schema.ddl(kind), f"{scratch}/{kind}")
    _write_empty(spark, f"{TABLES['requests'].ddl}, part STRING", f"{scratch}/{PARTS}")
    _write_empty(spark, sums.DDL, f"{scratch}/{SUMS}")
    inputs = Inputs(bronze.JournalFrames(spark), paths, paths)
    made = Computation(spark, str(scratch), inputs, [0], {}, BROKERS, tables=tables)
    made.ready["sums"] = spark.read.schema(sums.DDL).parquet(f"{scratch}/{SUMS}")
    made.ready["present"] = bronze.empty(spark, PRESENT)
    for table in [*TABLES.values(), *tables]:
        if table.compute is not None and table.columns and table.name not in ("requests", "sums"):
            _write_empty(spark, table.ddl, f"{scratch}/{table.name}")
            made.ready[table.name] = spark.read.schema(table.ddl).parquet(f"{scratch}/{table.name}")
    for table in tables:
        made.ready[table.name] = table(*(made.read(name) for name in table.reads))
    return made


def _silver(sample: Computation) -> "DataFrame":
    several = turns.several(sample.messages, sample.records, False)
    return requests.silver(
        sample.records,
        sql(requests.REPEATED, records=sample.records),
        several,
        turns.bridged(several, BROKERS),
        sql(requests.SHARED, messages=sample.messages),
        False,
    )


def _write_empty(spark: "SparkSession", ddl: str, path: str) -> None:
    bronze.empty(spark, ddl).write.mode("overwrite").parquet(path)
