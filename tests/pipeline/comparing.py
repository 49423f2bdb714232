"""Tables as comparable rows, independent of the program that wrote them."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from polydomo.journal import histogram, schema
from polydomo.pipeline.tables import TABLES
from polydomo.pipeline.tables.table import Column
from tests.pipeline.journals import Row

DIGITS = 9  # of a floating-point number that are compared: sums may be added in any order


def content(tables: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables, sorted. Every table must exist with its columns."""
    found = {}
    for name, table in TABLES.items():
        data = ds.dataset(tables / name, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
        assert set(data.schema.names) == {column.name for column in table.columns}, name
        rows = data.to_pylist()
        for row in rows:
            assert row.pop("hour") is not None and row.pop("date") is not None
        found[name] = comparable(name, rows)
    return found


def table_rows(tables: Path, name: str) -> list[Row]:
    """The rows of one table, with its directories as columns."""
    found: list[Row] = ds.dataset(tables / name, format="parquet", partitioning="hive").to_table().to_pylist()
    return found


def comparable(name: str, rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    columns = [column for column in TABLES[name].stored if column.name != "turns"]  # `hops` has its rows
    return sorted((tuple(_value(column, row[column.name]) for column in columns) for row in rows), key=repr)


def _value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.type.startswith("MAP"):
        return tuple(sorted(value.items() if isinstance(value, dict) else value))
    if column.type.startswith("ARRAY"):
        return tuple(value)
    if column.type == "DOUBLE":
        value = float(value)
        return 0.0 if value == 0 else round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))
    if column.type == "BOOLEAN":
        return bool(value)
    return int(value) if column.type in ("INT", "BIGINT") else value


def hours_are_right(tables: Path) -> None:
    """Every file is in the directory of its hour."""
    times = {"requests": "ended", "services": "window", "workers": "window", "topology": "window", "capacity": "window", "logs": "time",
             "values": "time", "audit": "time", "jobs": "ended", "job_events": "time", "flows": "ended"}  # fmt: skip
    for name, column in times.items():
        for path in (tables / name).rglob("*.parquet"):
            hour = f"{path.parts[-3]}/{path.parts[-2]}"
            for moment in pq.ParquetFile(path).read([column])[column].to_pylist():
                assert f"date={moment:%Y-%m-%d}/hour={moment:%H}" == hour, (name, moment, hour)


def stretched(rows: Iterable[Row], factor: float, origin: datetime) -> list[Row]:
    """The same journal, slower: all times are multiplied, so that it spans several hours, and durations are recomputed."""
    made = []
    for row in rows:
        new = dict(row)
        for name in ("time", "accepted", "first_dispatched", "dispatched", "first_partial", "created"):
            if new.get(name) is not None:
                new[name] = origin + (new[name] - origin) * factor
        if "event" not in new:
            first = new["first_dispatched"] or new["time"]
            spans = {
                "wait": first - new["accepted"],
                "run": new["time"] - new["dispatched"] if new["dispatched"] else first - first,
                "total": new["time"] - new["accepted"],
            }
            for name, span in spans.items():
                new[f"{name}_us"] = round(span.total_seconds() * 1e6)
                new[f"{name}_bucket"] = histogram.bucket(new[f"{name}_us"])
        made.append(new)
    return made


def at_level_requests(rows: Iterable[Row]) -> list[Row]:
    """The rows that a journal of level ``requests`` would have. Every audit finds the holes in its sequence."""
    return [row for row in rows if row.get("event") not in schema.ONLY_MESSAGES]
