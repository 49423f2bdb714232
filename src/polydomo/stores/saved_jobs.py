"""Copies jobs, flows, schedules and pauses of a damaged SQLite file into a new one."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from polydomo.broker.jobs.job import ENDED
from polydomo.limits import JOB_KEEP_DEAD
from polydomo.stores.backend import SCHEMA
from polydomo.stores.checks import LIMIT_COLUMNS, job_of, job_values
from polydomo.stores.flows.sql import EDGE_COLUMNS, FLOW_COLUMNS, NODE_COLUMNS
from polydomo.stores.part_sql import PART_COLUMNS
from polydomo.stores.salvage import Copying, SalvagedTable
from polydomo.stores.sql_ops import CHECKS, COLUMNS, SCHEDULE_COLUMNS

STATE = 12  # its position in COLUMNS
ENDED_AT = 16

TABLES_TO_SAVE = (
    SalvagedTable(
        "jobs",
        f"{COLUMNS}, collected",
        "id",
        (
            ("jobs_key", "key", "key IS NOT NULL"),
            ("jobs_open", "created", "state = 'open'"),
            ("jobs_dead", "created", "state = 'dead'"),
            ("jobs_keep", "keep", "keep > 0"),
            ("jobs_ended", "ended", "ended > 0"),
        ),
    ),
    SalvagedTable("schedules", SCHEDULE_COLUMNS, "name"),
    SalvagedTable("paused", "service, checks", "service"),
    SalvagedTable("limits", LIMIT_COLUMNS, "service"),
    SalvagedTable("flows", FLOW_COLUMNS, "id"),
    SalvagedTable("flow_nodes", NODE_COLUMNS, "flow, number"),
    SalvagedTable("flow_edges", EDGE_COLUMNS, "flow, source, target"),
    SalvagedTable("job_parts", PART_COLUMNS, "job, attempt, number"),
    SalvagedTable("lease", "one, schema, epoch", "one"),
)
COPIED = {
    "schedules": SCHEDULE_COLUMNS,
    "paused": "service, checks",
    "limits": LIMIT_COLUMNS,
    "flows": FLOW_COLUMNS,
    "flow_nodes": NODE_COLUMNS,
    "flow_edges": EDGE_COLUMNS,
    "job_parts": PART_COLUMNS,
}


class JobsCopy(Copying):
    """Counts what it copies. Damaged jobs are copied as such: an open one is condemned when it is loaded, any other one is dead."""

    def __init__(self) -> None:
        self.jobs = 0
        self.damaged = 0

    def copy(self, new: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
        if table == "jobs":
            self._job(new, row)
        elif table == "lease":
            epoch = row[2] if isinstance(row[2], int) else 0
            new.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (SCHEMA, epoch))
        else:
            marks = ", ".join("?" * len(row))
            new.execute(f"INSERT OR IGNORE INTO {table} ({COPIED[table]}) VALUES ({marks})", tuple(row))

    def _job(self, new: sqlite3.Connection, row: Sequence[Any]) -> None:
        text = f"INSERT OR IGNORE INTO jobs ({COLUMNS}, collected) VALUES ({', '.join('?' * (CHECKS + 2))})"
        job = job_of(row[: CHECKS + 1])
        if not job.damage:
            self.jobs += 1
            new.execute(text, (*row[: CHECKS + 1], 1 if row[CHECKS + 1] else 0))
            return
        self.damaged += 1
        if row[STATE] in ENDED:
            now = time.time()
            job.ended, job.keep = job.ended or now, now + JOB_KEEP_DEAD
            new.execute(text, job_values(job))
        else:
            values = list(job_values(job))
            values[STATE], values[CHECKS] = "open", b""
            new.execute(text, values)

    def summary(self) -> str:
        return (
            f"{self.jobs} jobs were saved, {self.damaged} more are damaged and dead, and what could not be read is lost"
        )
