"""The damaged records of a SQLite file, found by their checksums without changing anything, for ``polydomo doctor``.

SQLite's own check finds damaged pages, not a byte that changed inside a value.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from polydomo.stores.checks import LIMIT_COLUMNS, job_damage, limits_checks, pause_checks, schedule_of
from polydomo.stores.flows.checks import node_damage
from polydomo.stores.flows.sql import FLOW_COLUMNS, NODE_COLUMNS, flow_of, node_of
from polydomo.stores.memo import CALLS, HEADS, NODES, REPLIES
from polydomo.stores.memo_checks import is_whole
from polydomo.stores.part_checks import part_of
from polydomo.stores.part_sql import PART_COLUMNS
from polydomo.stores.sql_ops import COLUMNS, SCHEDULE_COLUMNS

Row = Sequence[Any]

JOB_STORE: "tuple[tuple[str, str, Callable[[Row], object], str], ...]" = (  # a table, its columns, what finds damage, a row's name
    ("jobs", COLUMNS, lambda row: job_damage(row[:-1], row[-1], light=False), "job {0}"),
    ("schedules", SCHEDULE_COLUMNS, lambda row: schedule_of(row).damage, "the schedule {0}"),
    ("paused", "service, checks", lambda row: row[1] != pause_checks(row[0]), "the pause of {0!r}"),
    ("limits", LIMIT_COLUMNS, lambda row: row[2] != limits_checks(row[0], row[1]), "the limits of {0}"),
    ("job_parts", PART_COLUMNS, lambda row: part_of(*row).damaged, "a partial reply of job {0}"),
    ("flows", FLOW_COLUMNS, lambda row: flow_of(row).damage, "flow {0}"),
    ("flow_nodes", NODE_COLUMNS, lambda row: node_damage(node_of(row)), "node {1} of flow {0}"),
)


def damaged_jobs(store: sqlite3.Connection) -> Iterator[str]:
    """Names each damaged record of a job store."""
    for table, columns, damage, name in JOB_STORE:
        for row in store.execute(f"SELECT {columns} FROM {table}"):
            try:
                found = damage(row)
            except Exception:  # a value of another type, or out of range
                found = True
            if found:
                yield name.format(*row)


def damaged_values(store: sqlite3.Connection) -> Iterator[str]:
    """Names each damaged record of a memo store."""
    for table in (HEADS, CALLS, REPLIES, NODES):
        for row in store.execute(f"SELECT {table.columns} FROM {table.name}"):
            if not is_whole(table.name, row):
                yield f"a {table.name}"
