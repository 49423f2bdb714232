"""Small journals for the tests of the pipeline, row by row."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from polydomo.journal import histogram, schema
from polydomo.journal.files import parquet
from polydomo.journal.files.runs import segment_name
from polydomo.journal.ids import RequestId
from polydomo.journal.reading.audit import kind_of
from polydomo.journal.schema import MESSAGES, REQUESTS

Row = dict[str, Any]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def message(seq: int, event: str, when: float, run: int = 1, **more: Any) -> Row:
    return schema.row(MESSAGES, time=at(when), broker=f"b{run}", run=run, seq=seq, event=event, **more)


def record(seq: int, number: int, accepted: float, began: float | None, ended: float, run: int = 1, **more: Any) -> Row:
    """A finished request; durations and buckets are computed from its times."""
    wait = round(((began if began is not None else ended) - accepted) * 1e6)
    run_us = round((ended - began) * 1e6) if began is not None else 0
    total = round((ended - accepted) * 1e6)
    given: Row = {
        "time": at(ended), "broker": f"b{run}", "run": run, "seq": seq, "number": number, "accepted": at(accepted), "service": "echo",
        "request": str(RequestId(int(at(accepted).timestamp() * 1000), run, number)), "client": 1, "client_peer": "tcp://10.0.0.1:5000",
        "client_protocol": "mdp1", "outcome": "ok", "wait_us": wait, "run_us": run_us, "total_us": total,
        "request_bytes": 10, "reply_bytes": 20,
    }  # fmt: skip
    if began is not None:
        given |= {"first_dispatched": at(began), "dispatched": at(began), "worker": 1, "worker_peer": "tcp://10.0.0.2:6000",
                  "worker_protocol": "dcp", "attempts": 1, "dispatches": 1}  # fmt: skip
    given |= more
    given.setdefault("last_service", given["service"])
    for name in ("wait", "run", "total"):
        given[f"{name}_bucket"] = histogram.bucket(given[f"{name}_us"])
    return schema.row(REQUESTS, **given)


def write(directory: Path, rows: Iterable[Row], drop: tuple[str, ...] = ()) -> list[Path]:
    """Writes a segment for each run and hour, like a broker; ``drop`` leaves out columns, like an earlier version."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["run"], f"date={row['time']:%Y-%m-%d}/hour={row['time']:%H}"), []).append(row)
    made = []
    for (run, hour), group in groups.items():
        name = segment_name(run, min(row["seq"] for row in group), max(row["seq"] for row in group))
        for kind in schema.KINDS:
            mine = [row for row in group if kind_of(row) == kind]
            if mine:
                path = directory / f"kind={kind}" / hour / name
                path.parent.mkdir(parents=True, exist_ok=True)
                table = pa.Table.from_pylist(mine, schema.arrow(kind))
                parquet.write(
                    path, kind, [table.drop_columns([column for column in drop if column in table.schema.names])]
                )
                made.append(path)
    return made
