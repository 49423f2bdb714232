"""Jobs in PostgreSQL 15 or newer, which several brokers may share. The leader holds the lease, and every transaction checks the lease's
epoch under a row lock, so that a broker that lost the lease cannot write.

All tables are in the schema ``polydomo``.
"""

from typing import Any

import psycopg
from psycopg import errors, sql

from polydomo.broker.jobs.ops import (
    FULL,
    NOT_LEADER,
    UNAVAILABLE,
    Finish,
    Get,
    GetParts,
    Insert,
    Loaded,
    Op,
    Progress,
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
from polydomo.stores.sql_ops import COLUMNS, SCHEDULE_COLUMNS, SqlOps
from polydomo.stores.upgrades import upgrade
from polydomo.stores.urls import without_password

LEAST_VERSION = 150_000
CREATION_LOCK = 5_246_520_246  # lock for creating the tables, in case two brokers start at once

TABLES = (
    """
CREATE SCHEMA IF NOT EXISTS polydomo;
CREATE TABLE IF NOT EXISTS polydomo.jobs (
    id text PRIMARY KEY, service bytea NOT NULL, body bytea NOT NULL, key text, origin text NOT NULL, digest bytea NOT NULL,
    priority integer NOT NULL, created double precision NOT NULL, due double precision NOT NULL, expires double precision NOT NULL,
    settings text NOT NULL, attempts integer NOT NULL, state text NOT NULL, outcome text NOT NULL, reason text NOT NULL,
    result bytea NOT NULL, ended double precision NOT NULL, keep double precision NOT NULL, story text NOT NULL, schedule text,
    fired double precision NOT NULL, collected integer NOT NULL, checks bytea NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_key ON polydomo.jobs (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_open ON polydomo.jobs (created) WHERE state = 'open';
CREATE INDEX IF NOT EXISTS jobs_dead ON polydomo.jobs (created) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS jobs_keep ON polydomo.jobs (keep) WHERE keep > 0;
CREATE INDEX IF NOT EXISTS jobs_ended ON polydomo.jobs (ended, id) WHERE ended > 0;
CREATE TABLE IF NOT EXISTS polydomo.schedules (
    name text PRIMARY KEY, service bytea NOT NULL, body bytea NOT NULL, timing text NOT NULL, zone text NOT NULL, missed text NOT NULL,
    priority integer NOT NULL, settings text NOT NULL, created double precision NOT NULL, next double precision NOT NULL,
    fired double precision NOT NULL, checks bytea NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS polydomo.paused (service bytea PRIMARY KEY, checks bytea NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS polydomo.lease (
    one integer PRIMARY KEY CHECK (one = 1), schema integer NOT NULL, epoch bigint NOT NULL, owner text NOT NULL, address text NOT NULL,
    expires timestamptz NOT NULL
);
"""
    + limits_table("polydomo.", "bytea")
    + tables_text("polydomo", "bytea", "float8")
    + parts_table("polydomo", "bytea")
)

TYPES = (
    "text bytea bytea text text bytea integer float8 float8 float8 text integer text text text bytea float8 float8 text text float8 "
    "bytea integer"
).split()
INSERT = (
    f"INSERT INTO polydomo.jobs ({COLUMNS}, collected) SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in TYPES)}) "
    "ON CONFLICT DO NOTHING RETURNING id"
)
FINISH = (
    "UPDATE polydomo.jobs AS j SET state = v.state, outcome = v.outcome, reason = v.reason, result = v.result, ended = v.ended, "
    "keep = v.keep, attempts = v.attempts, story = v.story, body = CASE WHEN v.done = 1 THEN ''::bytea ELSE j.body END, "
    "due = v.due, checks = v.checks "
    "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::float8[], %s::float8[], %s::integer[], %s::text[], "
    "%s::integer[], %s::float8[], %s::bytea[]) AS v (id, state, outcome, reason, result, ended, keep, attempts, story, done, due, checks) "
    "WHERE j.id = v.id AND j.state = 'open'"
)
PROGRESS = (
    "UPDATE polydomo.jobs AS j SET attempts = v.attempts, due = v.due, story = v.story, checks = v.checks "
    "FROM unnest(%s::text[], %s::integer[], %s::float8[], %s::text[], %s::bytea[]) AS v (id, attempts, due, story, checks) "
    "WHERE j.id = v.id AND j.state = 'open'"
)
LIGHT = COLUMNS.replace("body,", "''::bytea AS body,").replace("result,", "''::bytea AS result,")


class PostgresBackend(Backend):
    """Jobs in the database at ``url``. The next ``open`` reconnects after a lost connection."""

    shared = True

    def __init__(self, url: str, connect_timeout: int = 5, statement_timeout: float = 15.0) -> None:
        self.secret = url
        self.url = without_password(url)
        self.connect_timeout = connect_timeout
        self.statement_timeout = statement_timeout
        self._connection: psycopg.Connection[Any] | None = None

    # --- opening and closing ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        connection = self._connection = self._connect()
        try:
            self._check(connection)
        except psycopg.Error as error:
            raise self._error(error) from None
        except StoreError:
            self.close()
            raise

    def version(self) -> int:
        """The version of the tables, 0 if there are none. Creates and upgrades nothing. Raises StoreError."""
        with self._connect() as connection:
            try:
                known = connection.execute("SELECT to_regclass('polydomo.lease')").fetchone()
                if known is None or known[0] is None:
                    return 0
                found = connection.execute("SELECT schema FROM polydomo.lease").fetchone()
            except psycopg.Error as error:
                raise self._error(error) from None
            return int(found[0]) if found is not None else SCHEMA

    def _connect(self) -> "psycopg.Connection[Any]":
        try:
            return psycopg.connect(
                self.secret,
                autocommit=True,
                connect_timeout=self.connect_timeout,
                application_name="polydomo",
                options=f"-c statement_timeout={round(self.statement_timeout * 1000)} -c synchronous_commit=on",
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=round(self.statement_timeout * 1000),
            )
        except psycopg.Error as error:
            raise StoreError(UNAVAILABLE, f"cannot connect to the job store {self.url}: {_text(error)}") from None

    def _check(self, connection: "psycopg.Connection[Any]") -> None:
        if connection.info.server_version < LEAST_VERSION:
            raise StoreError(
                UNAVAILABLE,
                f"the job store {self.url} is PostgreSQL {connection.info.server_version // 10_000}; 15 or newer is needed",
            )
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
            known = connection.execute("SELECT to_regclass('polydomo.lease')").fetchone()
            if known is not None and known[0] is not None:
                version = connection.execute("SELECT schema FROM polydomo.lease").fetchone()
                if version is not None and version[0] in range(1, SCHEMA):
                    self._upgrade(connection, version[0])
                elif version is not None and version[0] != SCHEMA:
                    raise StoreError(
                        UNAVAILABLE,
                        f"the job store {self.url} has schema version {version[0]}, but this polydomo needs version {SCHEMA}; "
                        "use the polydomo that wrote it, or another database",
                    )
                return
            connection.execute(TABLES)
            connection.execute(
                "INSERT INTO polydomo.lease VALUES (1, %s, 0, '', '', now()) ON CONFLICT DO NOTHING", (SCHEMA,)
            )

    def _upgrade(self, connection: "psycopg.Connection[Any]", found: int) -> None:
        """A broker of an older version that leads would write without checksums."""
        leader = connection.execute(
            "SELECT address FROM polydomo.lease WHERE owner <> '' AND expires > clock_timestamp()"
        ).fetchone()
        if leader is not None:
            raise StoreError(
                UNAVAILABLE,
                f"the job store {self.url} has schema version {found}, and the broker at {leader[0]} uses it; stop all brokers of the "
                "older version, then this one upgrades the tables",
            )
        connection.execute("SET LOCAL statement_timeout = 0")

        def execute(text: str, values: "tuple[object, ...]") -> Any:
            return connection.execute(text.replace("?", "%s"), values)

        def execute_many(text: str, rows: "list[tuple[object, ...]]") -> None:
            connection.cursor().executemany(text.replace("?", "%s"), rows)

        upgrade(execute, execute_many, found, "polydomo", "bytea NOT NULL DEFAULT ''")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _here(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            raise StoreError(UNAVAILABLE, f"the connection to the job store {self.url} was lost")
        return self._connection

    def _error(self, error: psycopg.Error) -> StoreError:
        if isinstance(error, errors.DiskFull):
            return StoreError(FULL, f"the disk of the job store {self.url} is full")
        self.close()  # the state of the connection is unknown, so reconnect
        return StoreError(UNAVAILABLE, f"cannot use the job store {self.url}: {_text(error)}")

    # --- leadership ---------------------------------------------------------------------------------------------------------

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        connection = self._here()
        try:
            with connection.transaction():
                row = connection.execute(
                    "SELECT epoch, owner, address, expires > clock_timestamp() FROM polydomo.lease FOR UPDATE"
                ).fetchone()
                if row is None:
                    raise StoreError(UNAVAILABLE, f"the job store {self.url} has no lease row; create the tables again")
                epoch, holder, place, valid = row
                # The name alone is not enough: brokers that were given one name would take the lease from each other without end.
                if valid and holder and (holder, place) != (owner, address):
                    return Lease(epoch, place, False)
                connection.execute(
                    "UPDATE polydomo.lease SET epoch = %s, owner = %s, address = %s, "
                    "expires = clock_timestamp() + %s * interval '1 second'",
                    (epoch + 1, owner, address, seconds),
                )
                return Lease(epoch + 1, address, True)
        except psycopg.Error as error:
            raise self._error(error) from None

    def renew(self, epoch: int, seconds: float) -> bool:
        connection = self._here()
        try:
            changed = connection.execute(
                "UPDATE polydomo.lease SET expires = clock_timestamp() + %s * interval '1 second' WHERE epoch = %s AND owner <> ''",
                (seconds, epoch),
            )
        except psycopg.Error as error:
            raise self._error(error) from None
        return changed.rowcount == 1

    def release(self, epoch: int) -> None:
        try:
            self._here().execute("UPDATE polydomo.lease SET owner = '', expires = now() WHERE epoch = %s", (epoch,))
        except psycopg.Error as error:
            raise self._error(error) from None

    # --- reading ------------------------------------------------------------------------------------------------------------

    def load(self, since: float) -> Loaded:
        loaded = Loaded()
        connection = self._here()
        try:
            with connection.transaction():
                connection.execute("SET LOCAL statement_timeout = 0")  # loading a million open jobs takes a while
                run = connection.execute
                rows = run(f"SELECT {COLUMNS} FROM polydomo.jobs WHERE state = 'open' ORDER BY created, id")
                loaded.jobs = [job_of(row) for row in rows]
                ended = run(
                    f"SELECT {LIGHT} FROM polydomo.jobs WHERE keep > 0 AND state <> 'open' AND digest <> '' AND collected = 0 "
                    "AND ended > %s",
                    (since,),
                )
                loaded.uncollected = [job_of(row, light=True) for row in ended]
                plans = run(f"SELECT {SCHEDULE_COLUMNS} FROM polydomo.schedules ORDER BY name")
                loaded.schedules = [schedule_of(row) for row in plans]
                load_paused(loaded, run("SELECT service, checks FROM polydomo.paused ORDER BY service"))
                load_limits(loaded, run(f"SELECT {LIMIT_COLUMNS} FROM polydomo.limits ORDER BY service"))
                loaded.flows = self._flows(connection).active()
                streamed = self._parts(connection).streamed()
                for job in loaded.jobs:
                    job.streamed = streamed.get(job.id, 0)
        except psycopg.Error as error:
            raise self._error(error) from None
        return loaded

    def read(self, op: Op) -> None:
        connection = self._here()
        try:
            if FlowSteps(self._flows(connection)).read(op):
                return
            if isinstance(op, GetParts):
                with connection.transaction():
                    self._parts(connection).read(op)
            elif isinstance(op, Get):
                where = "id" if op.id else "key"
                text = sql.SQL("SELECT {} FROM polydomo.jobs WHERE {} = %s").format(
                    sql.SQL(COLUMNS), sql.Identifier(where)
                )
                row = connection.execute(text, (op.id or op.key,), binary=True).fetchone()
                op.job = job_of(row) if row is not None else None
            elif isinstance(op, Select) and op.by_end:
                rows = connection.execute(
                    f"SELECT {LIGHT} FROM polydomo.jobs WHERE ended > 0 AND state <> 'open' "
                    "AND (ended, id) > (%(time)s::float8, %(id)s::text) AND (%(state)s = '' OR state = %(state)s) "
                    "AND (%(service)s::bytea = '' OR service = %(service)s::bytea) ORDER BY ended, id LIMIT %(most)s",
                    {
                        "state": op.state, "service": op.service, "most": op.most, "time": op.after_time, "id": op.after_id,
                    },
                )  # fmt: skip
                op.jobs = [job for job in (job_of(row, light=True) for row in rows) if job.ended]
            elif isinstance(op, Select):
                rows = connection.execute(
                    f"SELECT {LIGHT} FROM polydomo.jobs WHERE (%(state)s = '' OR state = %(state)s) "
                    "AND (%(service)s::bytea = '' OR service = %(service)s::bytea) ORDER BY created DESC, id DESC LIMIT %(most)s",
                    {"state": op.state, "service": op.service, "most": op.most},
                )
                op.jobs = [job_of(row, light=True) for row in rows]
                op.counts = dict(
                    connection.execute("SELECT state, count(*) FROM polydomo.jobs GROUP BY state").fetchall()
                )
        except psycopg.DataError:
            raise  # one operation has a value that cannot be stored; the database is well
        except psycopg.Error as error:
            raise self._error(error) from None

    # --- writing ------------------------------------------------------------------------------------------------------------

    def apply(self, ops: list[Op], epoch: int) -> None:
        connection = self._here()
        try:
            with connection.transaction():
                found = connection.execute("SELECT epoch FROM polydomo.lease FOR UPDATE").fetchone()
                if found is None or found[0] != epoch:
                    newer = found[0] if found is not None else "?"
                    raise StoreError(
                        NOT_LEADER, f"epoch {epoch} is over: another broker is the leader under epoch {newer}"
                    )
                if not ops:  # only tests whether the store can be written to
                    connection.execute("UPDATE polydomo.lease SET epoch = epoch")
                group = OpGroup(ops)
                for inserts in pieces(group.inserts, body_size):
                    self._insert(connection, inserts)
                self._progress(connection, list(group.progress.values()))
                for finishes in pieces(list(group.finishes.values()), result_size):
                    self._finish(connection, finishes)
                steps = FlowSteps(self._flows(connection))
                group.finish_nodes(steps)
                if group.parts:
                    self._parts(connection).put(group.parts)
                if group.collected:
                    connection.execute("UPDATE polydomo.jobs SET collected = 1 WHERE id = ANY(%s)", (group.collected,))
                one_by_one = SqlOps(
                    lambda text, values: connection.execute(text.replace("?", "%s"), values),
                    lambda job: self._insert(connection, [Insert(job)]),
                    steps,
                    "polydomo",
                )
                for op in group.others:
                    one_by_one.apply(op)
        except psycopg.DataError:
            raise  # one operation has a value that cannot be stored; the database is well
        except psycopg.Error as error:
            raise self._error(error) from None

    def _flows(self, connection: "psycopg.Connection[Any]") -> SqlFlows:
        return SqlFlows(
            lambda text, values: connection.execute(text.replace("?", "%s"), values, binary=True),
            lambda jobs: self._insert(connection, [Insert(job) for job in jobs]),
            "polydomo",
        )

    def _parts(self, connection: "psycopg.Connection[Any]") -> SqlParts:
        return SqlParts(
            lambda text, values: connection.execute(text.replace("?", "%s"), values, binary=True), "polydomo"
        )

    def _insert(self, connection: "psycopg.Connection[Any]", inserts: list[Insert]) -> None:
        columns = [list(column) for column in zip(*(job_values(op.job) for op in inserts), strict=True)]
        new = {row[0] for row in connection.execute(INSERT, columns)}
        for op in inserts:
            if op.job.id in new:
                new.discard(op.job.id)  # a second one with the same id in this group is a repeat
                continue
            row = connection.execute(
                f"SELECT {COLUMNS} FROM polydomo.jobs WHERE id = %s OR key = %s",
                (op.job.id, op.job.scoped_key() or None),
            ).fetchone()
            op.existing = job_of(row) if row is not None else None

    def _progress(self, connection: "psycopg.Connection[Any]", progress: list[Progress]) -> None:
        if progress:
            columns = [list(column) for column in zip(*map(progress_values, progress), strict=True)]
            connection.execute(PROGRESS, columns)

    def _finish(self, connection: "psycopg.Connection[Any]", finishes: list[Finish]) -> None:
        columns = [list(column) for column in zip(*(finish_values(op.job) for op in finishes), strict=True)]
        if connection.execute(FINISH, columns).rowcount == len(finishes):
            for op in finishes:
                op.done = True
            return
        for op in finishes:
            row = connection.execute(
                "SELECT 1 FROM polydomo.jobs WHERE id = %s AND state = %s AND ended = %s",
                (op.job.id, op.job.state, op.job.ended),
            ).fetchone()
            op.done = row is not None


def _text(error: psycopg.Error) -> str:
    """The first line of PostgreSQL's message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
