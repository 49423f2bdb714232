"""The embedded store: one SQLite file, in WAL mode with ``synchronous=FULL``.

A transaction is on disk when COMMIT returns. A lock on a second file keeps two brokers from using the same store.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from polydomo.broker.jobs.ops import (
    DAMAGED,
    FULL,
    NOT_LEADER,
    UNAVAILABLE,
    Finish,
    Get,
    GetParts,
    Insert,
    Loaded,
    Op,
    Select,
    StoreError,
)
from polydomo.stores.backend import SCHEMA, Backend, Lease
from polydomo.stores.checks import (
    LIMIT_COLUMNS,
    finish_values,
    job_of,
    job_values,
    limits_table,
    load_limits,
    load_paused,
    schedule_of,
)
from polydomo.stores.flows.sql import SqlFlows, tables_text
from polydomo.stores.flows.steps import FlowSteps
from polydomo.stores.groups import OpGroup, body_size, pieces, progress_values, result_size
from polydomo.stores.part_sql import SqlParts, parts_table
from polydomo.stores.salvage import Sound, is_damage, open_sound, tolerant
from polydomo.stores.saved_jobs import TABLES_TO_SAVE, JobsCopy
from polydomo.stores.sql_ops import COLUMNS, SCHEDULE_COLUMNS, SqlOps
from polydomo.stores.upgrades import upgrade

TABLES = (
    """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, service BLOB NOT NULL, body BLOB NOT NULL, key TEXT, origin TEXT NOT NULL, digest BLOB NOT NULL,
    priority INTEGER NOT NULL, created REAL NOT NULL, due REAL NOT NULL, expires REAL NOT NULL, settings TEXT NOT NULL,
    attempts INTEGER NOT NULL, state TEXT NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL, result BLOB NOT NULL,
    ended REAL NOT NULL, keep REAL NOT NULL, story TEXT NOT NULL, schedule TEXT, fired REAL NOT NULL, collected INTEGER NOT NULL,
    checks BLOB NOT NULL DEFAULT x''
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (created) WHERE state = 'open';
CREATE INDEX IF NOT EXISTS jobs_dead ON jobs (created) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS jobs_keep ON jobs (keep) WHERE keep > 0;
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended, id) WHERE ended > 0;
CREATE TABLE IF NOT EXISTS schedules (
    name TEXT PRIMARY KEY, service BLOB NOT NULL, body BLOB NOT NULL, timing TEXT NOT NULL, zone TEXT NOT NULL,
    missed TEXT NOT NULL, priority INTEGER NOT NULL, settings TEXT NOT NULL, created REAL NOT NULL, next REAL NOT NULL,
    fired REAL NOT NULL, checks BLOB NOT NULL DEFAULT x''
);
CREATE TABLE IF NOT EXISTS paused (service BLOB PRIMARY KEY, checks BLOB NOT NULL DEFAULT x'');
CREATE TABLE IF NOT EXISTS lease (one INTEGER PRIMARY KEY CHECK (one = 1), schema INTEGER NOT NULL, epoch INTEGER NOT NULL);
"""
    + limits_table("", "BLOB")
    + tables_text("", "BLOB", "REAL")
    + parts_table("", "BLOB")
)

LIGHT = COLUMNS.replace("body,", "x'' AS body,").replace("result,", "x'' AS result,")

ALL_COLUMNS = f"{COLUMNS}, collected"
FINISH = (
    "UPDATE jobs SET state = v.column2, outcome = v.column3, reason = v.column4, result = v.column5, ended = v.column6, "
    "keep = v.column7, attempts = v.column8, story = v.column9, body = CASE WHEN v.column10 THEN x'' ELSE body END, "
    "due = v.column11, checks = v.column12 "
    "FROM (VALUES %s) AS v WHERE jobs.id = v.column1 AND jobs.state = 'open'"
)
PROGRESS = (
    "UPDATE jobs SET attempts = v.column2, due = v.column3, story = v.column4, checks = v.column5 "
    "FROM (VALUES %s) AS v WHERE jobs.id = v.column1 AND jobs.state = 'open'"
)
COLLECTED = "UPDATE jobs SET collected = 1 WHERE id IN (VALUES %s)"
MOST_ROWS = 512  # rows per statement; SQLite allows 32,766 variables
SOME_ROWS = 64  # up to here there is a statement for each number of rows
# Statements that stay prepared: inserts, progress, outcomes and collected results of each size, those of flows, and the others.
STATEMENTS = 4 * (SOME_ROWS + 4) + 200


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into statements of 512, 256, 128 rows and at most 64 rows: few enough texts to keep them prepared.

    >>> list(_chunks(5)), list(_chunks(330)), list(_chunks(0))
    ([(0, 5)], [(0, 256), (256, 320), (320, 330)], [])
    """
    start = 0
    size = MOST_ROWS
    while start < count:
        while size > count - start and size > SOME_ROWS:
            size >>= 1
        yield start, min(start + size, count)
        start += size


@lru_cache(maxsize=STATEMENTS)
def _marks(rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)


def _version(connection: sqlite3.Connection) -> int:
    """Of the tables; 0 if there are none."""
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        return 0
    found = connection.execute("SELECT schema FROM lease").fetchone()
    return int(found[0]) if found is not None else SCHEMA


CHOSEN = "(:state = '' OR state = :state) AND (:service = x'' OR service = :service)"


def _choice(op: Select) -> dict[str, object]:
    """The values of ``CHOSEN``, and how many rows there may be."""
    return {"state": op.state, "service": op.service, "most": op.most}


class SqliteBackend(Backend):
    """Jobs in ``path``. Only the thread that opened it may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:{path}"
        self._connection: sqlite3.Connection | None = None
        self._lock = -1

    # --- opening and closing ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock()
            checked = "PRAGMA integrity_check(1)"  # takes about 1.5 s for a million jobs
            sound = Sound("the job store", self._connect, checked, TABLES, TABLES_TO_SAVE, JobsCopy, SCHEMA, _version)
            self._connection = open_sound(self.path, sound)
            self._prepare(self._here())
        except (OSError, sqlite3.Error) as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise self._error(error) from None
            raise StoreError(UNAVAILABLE, f"cannot open the job store {self.path}: {error}") from None
        except StoreError:
            self.close()
            raise

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise StoreError(
                UNAVAILABLE,
                f"another broker uses the job store {self.path}; give this broker its own data directory, "
                'or let both share PostgreSQL (store = "postgresql://...")',
            ) from None
        self._lock = lock

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=5.0, cached_statements=STATEMENTS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute("PRAGMA cache_size = -65536")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Creates or upgrades the tables. Raises StoreError with the reason if they cannot be used."""
        run = connection.execute
        found = run("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'lease'").fetchone()
        if found is not None:
            version = run("SELECT schema FROM lease").fetchone()
            if version is not None and version[0] in range(1, SCHEMA):
                run("BEGIN IMMEDIATE")
                upgrade(run, connection.executemany, version[0], "", "BLOB NOT NULL DEFAULT x''")
                run("COMMIT")
            elif version is not None and version[0] != SCHEMA:
                raise StoreError(
                    UNAVAILABLE,
                    f"the job store {self.path} has schema version {version[0]}, but this polydomo needs version {SCHEMA}; "
                    "use the polydomo that wrote it, or another data directory",
                )
        connection.executescript("BEGIN;" + TABLES + "COMMIT;")
        run("INSERT INTO lease VALUES (1, ?, 0) ON CONFLICT DO NOTHING", (SCHEMA,))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _here(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(UNAVAILABLE, f"the job store {self.path} is closed")
        return self._connection

    def _error(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        if primary == sqlite3.SQLITE_FULL:
            return StoreError(FULL, f"the disk of the job store {self.path} is full")
        if is_damage(error):
            return StoreError(DAMAGED, f"this part of the job store {self.path} is damaged ({error})")
        return StoreError(UNAVAILABLE, f"cannot use the job store {self.path}: {error}")

    def used_bytes(self) -> int:
        """Removed jobs leave room for others."""
        run = self._here().execute
        try:
            pages, free, size = (
                run(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
            return int((pages - free) * size)
        except sqlite3.Error as error:
            raise self._error(error) from None

    # --- leadership ---------------------------------------------------------------------------------------------------------

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        """The file lock decides which broker is the leader; the epoch counts the starts."""
        connection = self._here()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE lease SET epoch = epoch + 1")
            epoch = connection.execute("SELECT epoch FROM lease").fetchone()[0]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise self._error(error) from None
        return Lease(epoch, address, True)

    def renew(self, epoch: int, seconds: float) -> bool:
        return True

    # --- reading ------------------------------------------------------------------------------------------------------------

    def _rows(self, text: str, values: "tuple[object, ...] | dict[str, object]" = ()) -> "list[Any]":
        """Text that is not UTF-8 is damaged: then everything is read again, and the checksum of that record is wrong."""
        connection = self._here()
        try:
            return connection.execute(text, values).fetchall()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) is not None:
                raise
        connection.text_factory = tolerant
        try:
            return connection.execute(text, values).fetchall()
        finally:
            connection.text_factory = str

    def load(self, since: float) -> Loaded:
        loaded = Loaded()
        run = self._rows
        try:
            loaded.jobs = [
                job_of(row) for row in run(f"SELECT {COLUMNS} FROM jobs WHERE state = 'open' ORDER BY created, id")
            ]
            ended = run(
                f"SELECT {LIGHT} FROM jobs WHERE keep > 0 AND state <> 'open' AND digest <> x'' AND collected = 0 AND ended > ?",
                (since,),
            )
            loaded.uncollected = [job_of(row, light=True) for row in ended]
            rows = run(f"SELECT {SCHEDULE_COLUMNS} FROM schedules ORDER BY name")
            loaded.schedules = [schedule_of(row) for row in rows]
            load_paused(loaded, run("SELECT service, checks FROM paused ORDER BY service"))
            load_limits(loaded, run(f"SELECT {LIMIT_COLUMNS} FROM limits ORDER BY service"))
            loaded.flows = self._flows(self._here()).active()
            streamed = SqlParts(self._here().execute).streamed()
            for job in loaded.jobs:
                job.streamed = streamed.get(job.id, 0)
        except sqlite3.Error as error:
            raise self._error(error) from None
        return loaded

    def read(self, op: Op) -> None:
        run = self._rows
        try:
            if FlowSteps(self._flows(self._here())).read(op):
                return
            if isinstance(op, GetParts):
                SqlParts(self._here().execute).read(op)
            elif isinstance(op, Get):
                where, value = ("id", op.id) if op.id else ("key", op.key)
                rows = run(f"SELECT {COLUMNS} FROM jobs WHERE {where} = ?", (value,))
                op.job = job_of(rows[0]) if rows else None
            elif isinstance(op, Select) and op.by_end:
                rows = run(
                    f"SELECT {LIGHT} FROM jobs WHERE ended > 0 AND state <> 'open' AND (ended, id) > (:time, :id) "
                    f"AND {CHOSEN} ORDER BY ended, id LIMIT :most",
                    {**_choice(op), "time": op.after_time, "id": op.after_id},
                )
                op.jobs = [job for job in (job_of(row, light=True) for row in rows) if job.ended]
            elif isinstance(op, Select):
                rows = run(
                    f"SELECT {LIGHT} FROM jobs WHERE {CHOSEN} ORDER BY created DESC, id DESC LIMIT :most", _choice(op)
                )
                op.jobs = [job_of(row, light=True) for row in rows]
                op.counts = dict(run("SELECT state, count(*) FROM jobs GROUP BY state"))
        except sqlite3.Error as error:
            raise self._error(error) from None

    # --- writing ------------------------------------------------------------------------------------------------------------

    def apply(self, ops: list[Op], epoch: int) -> None:
        connection = self._here()
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute("SELECT epoch FROM lease").fetchone()[0]
            if found != epoch:
                raise StoreError(NOT_LEADER, f"epoch {epoch} is over: another broker is the leader under epoch {found}")
            if not ops:  # only tests whether the store can be written to
                connection.execute("UPDATE lease SET epoch = epoch")
            group = OpGroup(ops)
            for inserts in pieces(group.inserts, body_size):
                self._insert(connection, inserts)
            self._update(connection, PROGRESS, [progress_values(op) for op in group.progress.values()])
            for finishes in pieces(list(group.finishes.values()), result_size):
                self._finish(connection, finishes)
            steps = FlowSteps(self._flows(connection))
            group.finish_nodes(steps)
            if group.parts:
                SqlParts(connection.execute).put(group.parts)
            self._update(connection, COLLECTED, [(id,) for id in group.collected])
            if group.others:
                one_by_one = SqlOps(connection.execute, lambda job: self._insert(connection, [Insert(job)]), steps)
                for op in group.others:
                    one_by_one.apply(op)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise self._error(error) from None
        except BaseException:
            self._roll_back(connection)
            raise

    def _flows(self, connection: sqlite3.Connection) -> SqlFlows:
        return SqlFlows(connection.execute, lambda jobs: self._insert(connection, [Insert(job) for job in jobs]))

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # SQLite has already rolled back

    def _insert(self, connection: sqlite3.Connection, inserts: list[Insert]) -> None:
        for start, end in _chunks(len(inserts)):
            some = inserts[start:end]
            text = f"INSERT INTO jobs ({ALL_COLUMNS}) VALUES {_marks(len(some), 23)} ON CONFLICT DO NOTHING"
            values = [value for op in some for value in job_values(op.job)]
            if connection.execute(text, values).rowcount != len(some):
                self._find_existing(connection, some)

    def _find_existing(self, connection: sqlite3.Connection, inserts: list[Insert]) -> None:
        """Finds the existing jobs for those that were not inserted because their id or key exists."""
        for op in inserts:
            text = f"SELECT {COLUMNS} FROM jobs WHERE id = ? OR key = ?"
            row = connection.execute(text, (op.job.id, op.job.scoped_key() or None)).fetchone()
            op.existing = job_of(row) if row is not None else None

    def _finish(self, connection: sqlite3.Connection, finishes: list[Finish]) -> None:
        values = [finish_values(op.job) for op in finishes]
        if self._update(connection, FINISH, values) == len(finishes):
            for op in finishes:
                op.done = True
        else:
            for op in finishes:
                text = "SELECT 1 FROM jobs WHERE id = ? AND state = ? AND ended = ?"
                row = connection.execute(text, (op.job.id, op.job.state, op.job.ended)).fetchone()
                op.done = row is not None

    def _update(self, connection: sqlite3.Connection, text: str, rows: list[tuple[object, ...]]) -> int:
        changed = 0
        for start, end in _chunks(len(rows)):
            some = rows[start:end]
            values = [value for row in some for value in row]
            changed += connection.execute(text % _marks(len(some), len(some[0])), values).rowcount
        return changed
