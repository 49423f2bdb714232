"""Delta tables without Spark's jar: the ``deltalake`` library commits the files that Spark wrote to the table's log.

A file of a Delta table is never replaced under its name, because a reader may still use it. So each file has the name of its commit as
well: ``0.parquet`` is ``0~COMMIT.parquet``. A commit of a table is one version of its log: readers see all of it or nothing. Files of
earlier versions are removed afterwards, so a reader that has opened an earlier version must open the table again.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from polydomo.errors import PolydomoError, SettingError
from polydomo.pipeline.storage import Storage
from polydomo.pipeline.tables.table import UNIT, arrow_type

PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)
SCHEMES = ("file", "s3", "s3a", "gs", "abfss")  # that deltalake knows; only local directories are tested
LOG = "_delta_log"
MARK = "~"  # between the name of a file and the name of its commit


class NoDelta(PolydomoError):
    """The deltalake library is not installed."""


def check(format: str, root: str) -> bool:
    """Whether the tables in ``root`` are to be Delta tables. Raises PolydomoError, before any work is done, if they cannot be."""
    if format not in FORMATS:
        raise SettingError(f"--format: must be one of {', '.join(FORMATS)}, not {format!r}")
    if format == PARQUET:
        return False
    scheme = root.partition("://")[0] if "://" in root else "file"
    if scheme not in SCHEMES:
        raise SettingError(
            f"--format delta: {scheme}:// is not supported; use a local directory or {', '.join(SCHEMES[1:])}"
        )
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise NoDelta("--format delta needs deltalake: pip install 'polydomo[delta]'") from None
    return True


def plain_name(name: str) -> str:
    """The name of a file without that of its commit.

    >>> plain_name("0~5f3a.parquet"), plain_name("0.parquet")
    ('0', '0')
    """
    return name.removesuffix(".parquet").partition(MARK)[0]


def unique_names(
    storage: Storage,
    moves: Sequence[Sequence[str]],
    removes: Iterable[str],
    is_file: Callable[[str], bool],
    commit: str,
) -> tuple[list[list[str]], list[str]]:
    """The same change with a new name for each file of a table, and with the removal of the files that these replace."""
    renamed: list[list[str]] = []
    gone: dict[str, None] = {}

    def replaces(path: str) -> None:
        folder, name = path.rsplit("/", 1)
        for there in storage.names(folder):
            if there.endswith(".parquet") and plain_name(there) == plain_name(name):
                gone[f"{folder}/{there}"] = None

    for source, target in moves:
        if is_file(target):
            replaces(target)
            target = f"{target.removesuffix('.parquet')}{MARK}{commit}.parquet"
        renamed.append([source, target])
    for path in removes:
        if is_file(path):
            replaces(path)
        else:
            gone[path] = None
    return renamed, list(gone)


def record(storage: Storage, table: str, adds: Sequence[str], removes: Sequence[str]) -> None:
    """Commits files to the log of a table as one version. It can be repeated: what the log has already is left out."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    place = table.replace("s3a://", "s3://", 1)
    known: set[str] = set()
    if DeltaTable.is_deltatable(place):
        known = {_inside(path, place) for path in DeltaTable(place).file_uris()}
    fresh = [path for path in adds if _inside(path, table) not in known]
    old = [path for path in removes if _inside(path, table) in known]
    if not fresh and not old:
        return
    now = int(time.time() * 1000)
    schema = _schema(storage, fresh[0]) if fresh else None
    if not known and schema is not None:
        DeltaTable.create(place, schema, mode="ignore", partition_by=["date", "hour"])
    opened = DeltaTable(place)
    actions: list[Any] = [
        AddAction(
            _inside(path, table), storage.size(path), _partition(path), now, True,
            json.dumps({"numRecords": storage.footer(path).num_rows}),
        )
        for path in fresh
    ]  # fmt: skip
    actions += [RemoveAction(_inside(path, table), True, now, None, _partition(path)) for path in old]
    opened.create_write_transaction(actions, "append", schema or opened.schema(), ["date", "hour"])


def _inside(path: str, table: str) -> str:
    return path.removeprefix(table).lstrip("/")


def _partition(path: str) -> dict[str, str | None]:
    date, hour = path.split("/")[-3:-1]
    return {"date": date.removeprefix("date="), "hour": str(int(hour.removeprefix("hour=")))}


def _schema(storage: Storage, path: str) -> Any:
    """The columns of a file, with those that are directories."""
    columns = storage.footer(path).schema.to_arrow_schema()
    return pa.schema([*columns, *((column.name, arrow_type(column.type)) for column in UNIT)])
