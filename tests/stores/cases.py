"""Backends to test, one of each kind, and jobs for them."""

import itertools
import sqlite3
from pathlib import Path

import pytest

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Get, Loaded, Op, PutPause, StoreError
from polydomo.model.retry_policy import Backoff
from polydomo.stores.backend import Backend
from polydomo.stores.memory import MemoryBackend
from polydomo.stores.sqlite import SqliteBackend
from tests.postgres import Postgres

NAMES = itertools.count()


class Case:
    """A backend, and how to open a second one on the same content."""

    def __init__(self, kind: str, place: Path, postgres: Postgres | None) -> None:
        self.kind = kind
        self.place = place
        self.url = postgres.database(f"store{next(NAMES)}") if postgres is not None else ""
        self.memory = MemoryBackend(shared=True)
        self.backend = self.another()
        self.epoch = self.backend.acquire("a", "tcp://a", 60.0).epoch

    def another(self) -> Backend:
        backend: Backend
        if self.kind == "memory":
            backend = MemoryBackend(self.memory.tables, shared=True)
        elif self.kind == "sqlite":
            backend = SqliteBackend(self.place / "jobs.db")
        else:
            from polydomo.stores.postgres import PostgresBackend

            backend = PostgresBackend(self.url)
        backend.open()
        return backend

    def execute(self, statements: "list[str]") -> None:
        """Changes the tables behind the back of the store, which is closed."""
        if self.kind == "sqlite":
            with sqlite3.connect(self.place / "jobs.db") as connection:
                for statement in statements:
                    connection.execute(statement)
        else:
            import psycopg

            with psycopg.connect(self.url) as other:
                for statement in statements:
                    other.execute(statement.encode())

    def apply(self, *ops: Op) -> None:
        self.backend.apply(list(ops), self.epoch)

    def roll_back(self, *ops: Op) -> None:
        """A transaction that fails after these operations have their answers. Nothing of it is stored."""
        if isinstance(self.backend, MemoryBackend):
            self.backend.undone(list(ops), self.epoch)
            return
        prefix = "" if self.kind == "sqlite" else "polydomo."
        self.execute([f"ALTER TABLE {prefix}paused RENAME TO away"])
        with pytest.raises(StoreError):
            self.apply(*ops, PutPause(b"render", True))
        self.execute([f"ALTER TABLE {prefix}away RENAME TO paused"])
        self.backend.open()

    def lead_anew(self) -> Loaded:
        """Another broker takes over."""
        self.backend.close()
        self.backend = self.another()
        self.epoch = self.backend.acquire("a", "tcp://a", 60.0).epoch
        return self.backend.load(0.0)

    def get(self, id: str) -> Job:
        op = Get(id)
        self.backend.read(op)
        assert op.job is not None
        return op.job


def new(id: str, created: float = 100.0, service: bytes = b"render") -> Job:
    job = Job(id, service, b"\x00\x04body", created)
    job.priority = 3
    job.run = 2.5
    job.backoff = Backoff(attempts=7, first=0.5)
    return job


def ended(job: Job, state: str = states.DONE, at: float = 200.0, keep: float = 300.0) -> Job:
    job.state, job.outcome, job.result, job.ended, job.keep = state, "ok", b"\x00\x02hi", at, keep
    job.attempts = 2
    return job


def tried(id: str, attempts: int, due: float) -> Job:
    job = new(id)
    job.attempts, job.due, job.story = attempts, due, [{"attempt": attempts}]
    return job
