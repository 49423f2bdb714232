"""Brings the tables of an older polydomo to the current version.

**Principals** (version 3). The key of a job is stored with its principal and its service. Jobs keep the principal that was stored with
them. Schedules had none: those that an operator made (``polydomo.schedule`` needs the right `admin`) get the broker's own principal for
schedules, and so do their jobs. Those of eMQP's SCHEDULE were not checked when they were made; they have no principal. With access
control, a job or schedule without a principal does not run until an operator submits it again. Without access control nothing changes.

**Flows** (version 4). There are three more tables.

**Growth** (version 5). A flow knows how many nodes were added while it ran, and a node which one replaces it.

**Partial replies** of jobs (version 5) have a table.

**Limits** (version 5). There is one more table.
"""

import json
from collections.abc import Callable
from typing import Any

from polydomo.broker.jobs.job import scoped_key
from polydomo.model.principals import SCHEDULES
from polydomo.stores.backend import SCHEMA
from polydomo.stores.checks import (
    first_checks,
    job_damage,
    limits_table,
    pause_checks,
    schedule_checks,
    schedule_of,
)
from polydomo.stores.flows.sql import tables_text
from polydomo.stores.part_sql import parts_table
from polydomo.stores.sql_ops import CHECKS, COLUMNS, KEY, SCHEDULE_COLUMNS, SETTINGS

UPGRADE_ROWS = 1000  # read at a time
SCHEDULE = 19  # the position of ``schedule``
UNCHECKED = "emqp-"  # the names of schedules that eMQP's SCHEDULE made begin with this


def upgrade(
    execute: "Callable[[str, tuple[object, ...]], Any]",
    execute_many: "Callable[[str, list[tuple[object, ...]]], object]",
    found: int,
    schema: str,
    blob: str,
) -> None:
    """Brings tables of version ``found`` to the current one: version 2 has checksums, version 3 has principals, version 4 has flows,
    version 5 has flows that grow, and limits."""
    prefix = f"{schema}." if schema else ""
    if found < 2:
        for table in ("jobs", "schedules", "paused"):
            execute(f"ALTER TABLE {prefix}{table} ADD COLUMN checks {blob}", ())
        after = ""
        while True:
            text = f"SELECT {COLUMNS} FROM {prefix}jobs WHERE id > ? ORDER BY id LIMIT {UPGRADE_ROWS}"
            rows = execute(text, (after,)).fetchall()
            if not rows:
                break
            after = rows[-1][0]
            made: list[tuple[object, ...]] = [(first_checks(row[:CHECKS]), row[0]) for row in rows]
            execute_many(f"UPDATE {prefix}jobs SET checks = ? WHERE id = ?", made)
        for row in execute(f"SELECT {SCHEDULE_COLUMNS} FROM {prefix}schedules", ()).fetchall():
            plan = schedule_of(row)
            checks = schedule_checks(plan, plan.next, row[10])
            execute(f"UPDATE {prefix}schedules SET checks = ? WHERE name = ?", (checks, row[0]))
        for (service,) in execute(f"SELECT service FROM {prefix}paused", ()).fetchall():
            execute(f"UPDATE {prefix}paused SET checks = ? WHERE service = ?", (pause_checks(service), service))
    if found < 3:
        _add_principals(execute, prefix)
    if found < 4:
        for statement in tables_text(schema, blob.split()[0], "float8" if schema else "REAL").split(";"):
            if statement.strip():
                execute(statement, ())
    elif found < 5:
        added = (
            ("flows", "added", 0),
            ("flows", "added_edges", 0),
            ("flow_nodes", "grown", -1),
            ("flow_nodes", "replaces", -1),
        )
        for table, name, first in added:
            execute(f"ALTER TABLE {prefix}{table} ADD COLUMN {name} INTEGER NOT NULL DEFAULT {first}", ())
    if found < 5:
        execute(parts_table(schema, blob.split()[0]).strip().rstrip(";"), ())
        execute(limits_table(prefix, blob.split()[0]).strip().rstrip(";"), ())
    execute(f"UPDATE {prefix}lease SET schema = {SCHEMA}", ())


def _add_principals(execute: "Callable[[str, tuple[object, ...]], Any]", prefix: str) -> None:
    where = "(key IS NOT NULL OR (state = 'open' AND schedule IS NOT NULL)) AND id > ?"
    after = ""
    while True:
        text = f"SELECT {COLUMNS} FROM {prefix}jobs WHERE {where} ORDER BY id LIMIT {UPGRADE_ROWS}"
        rows = execute(text, (after,)).fetchall()
        if not rows:
            break
        after = rows[-1][0]
        for row in rows:
            # A damaged job stays as it is, and its reader finds it.
            if not job_damage(row[:CHECKS], row[CHECKS], False):
                _add_principal(execute, prefix, row)
    for row in execute(f"SELECT {SCHEDULE_COLUMNS} FROM {prefix}schedules", ()).fetchall():
        plan = schedule_of(row)
        settings = _settings(plan.settings)
        if plan.damage or settings.get("principal") or plan.name.startswith(UNCHECKED):
            continue
        plan.settings = json.dumps({**settings, "principal": SCHEDULES}, separators=(",", ":"))
        execute(
            f"UPDATE {prefix}schedules SET settings = ?, checks = ? WHERE name = ?",
            (plan.settings, schedule_checks(plan, plan.next, row[10]), row[0]),
        )


def _add_principal(execute: "Callable[[str, tuple[object, ...]], Any]", prefix: str, row: Any) -> None:
    settings = _settings(row[SETTINGS])
    if row[SCHEDULE] and not settings.get("principal") and not row[SCHEDULE].startswith(UNCHECKED):
        settings["principal"] = SCHEDULES
    new = list(row[:CHECKS])
    new[KEY] = scoped_key(str(settings.get("principal", "")), bytes(row[1]), row[KEY]) if row[KEY] else None
    new[SETTINGS] = json.dumps(settings, separators=(",", ":")) if settings else ""
    text = f"UPDATE {prefix}jobs SET key = ?, settings = ?, checks = ? WHERE id = ?"
    execute(text, (new[KEY], new[SETTINGS], first_checks(new), row[0]))


def _settings(text: str) -> "dict[str, object]":
    """The settings of a stored job or schedule; empty if they cannot be read."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
