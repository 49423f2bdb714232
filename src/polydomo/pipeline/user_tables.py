"""Tables of the user: ``polydomo pipeline run --with FILE``."""

import importlib.util
import sys
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from polydomo.errors import SettingError
from polydomo.pipeline.tables import TABLES
from polydomo.pipeline.tables.table import Table

_JOURNAL = ("messages", "records")  # frames of the journal that a table may read


def load(path: Path) -> list[Table]:
    """The tables that a Python file declares, each after those that it reads."""
    if not path.is_file():
        raise SettingError(f"--with: there is no file {path}")
    name = f"polydomo_tables_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"--with: {path} is not a Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SettingError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise SettingError(f"--with: {path}: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Table)]
    if not found:
        raise SettingError(
            f"--with: {path} declares no table: decorate a function with @table (from polydomo.pipeline import table)"
        )
    return ordered(found)


def ordered(tables: Sequence[Table]) -> list[Table]:
    """Each table after those that it reads. Raises SettingError for a name that is taken or unknown, and for a cycle."""
    known = {*TABLES, *_JOURNAL}
    names = [table.name for table in tables]
    for table in tables:
        if table.name in known or names.count(table.name) > 1 or table.name.startswith("payloads_"):
            raise SettingError(f"@table: the name {table.name} is taken")
        if not table.reads:
            raise SettingError(f"@table: {table.name} reads nothing: name the tables whose rows it is computed from")
        for name in table.reads:
            if name not in known and name not in names:
                raise SettingError(
                    f"@table: {table.name} reads {name}, which is neither a table of the pipeline nor declared"
                )
    try:
        order = [*TopologicalSorter({table.name: set(table.reads) - known for table in tables}).static_order()]
    except CycleError as error:
        raise SettingError(f"@table: {', '.join(dict.fromkeys(error.args[1]))} read each other") from None
    return sorted(tables, key=lambda table: order.index(table.name))
