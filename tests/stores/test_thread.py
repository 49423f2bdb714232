"""The thread that writes: groups, trouble with the disk and the database, and the lease."""

import queue
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from polydomo.broker.jobs.job import DONE, Job
from polydomo.broker.jobs.ops import (
    FULL,
    NOT_LEADER,
    UNAVAILABLE,
    Collected,
    Finish,
    Get,
    Insert,
    Loaded,
    Op,
    StoreError,
)
from polydomo.stores.backend import Backend
from polydomo.stores.sqlite import SqliteBackend
from polydomo.stores.thread import LeaseTimes, Owner, StoreThread, awake_time
from tests.postgres import Postgres

PATIENCE = 60.0


class Loop(Owner):
    """The owner's thread: runs posted callbacks while it waits."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.epochs: list[int] = []
        self.loaded: Loaded | None = None
        self.leads = False
        self.followed: list[str] = []
        self.suspensions: list[bool] = []
        self.store: StoreThread
        self.finished: list[Op] = []

    def lead(self, epoch: int, loaded: Loaded) -> None:
        self.leads = True
        self.epochs.append(epoch)
        self.loaded = loaded

    def follow(self, leader: str, why: str) -> None:
        self.leads = False
        self.followed.append(leader)

    def suspend(self, suspended: bool) -> None:
        self.suspensions.append(suspended)

    def put(self, op: Op) -> Op:
        op.epoch = self.epochs[-1]
        op.then = self.finished.append
        self.store.put(op)
        return op

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            try:
                self.posted.get(timeout=0.05)()
            except queue.Empty:
                pass

    def put_together(self, *ops: Op) -> None:
        """The thread takes them at once."""
        self.until(lambda: self.store._asleep)
        with self.store._condition:
            for op in ops:
                self.put(op)

    def until_finished(self, *ops: Op) -> None:
        self.until(lambda: all(op in self.finished for op in ops))


def begin(backend: Backend, name: str = "a", lease: float = 6.0) -> Loop:
    loop = Loop()
    loop.store = StoreThread(backend, loop, name, loop.posted.put, lease=LeaseTimes(lease, min(0.2, lease / 4)))
    loop.store.address = f"tcp://{name}"
    loop.store.start()
    return loop


def job(id: str, size: int = 1) -> Job:
    return Job(id, b"work", b"x" * size, 100.0)


class SmallDisk(SqliteBackend):
    """A file that may grow to this many pages."""

    pages = 0

    def limit(self, pages: int) -> None:
        self.pages = pages

    def apply(self, ops: list[Op], epoch: int) -> None:
        if self.pages:
            self._here().execute(f"PRAGMA max_page_count = {self.pages}")
        super().apply(ops, epoch)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Loop]:
    loop = begin(SmallDisk(tmp_path / "jobs.db"))
    loop.until(lambda: loop.leads)
    yield loop
    loop.store.stop()


def test_pending_writes_share_a_transaction(disk: Loop) -> None:
    ops = [disk.put(Insert(job(f"J{n}"))) for n in range(3000)]
    disk.until_finished(*ops)
    assert all(op.error is None for op in ops)
    assert disk.store.written == 3000 and disk.store.groups < 300


def test_a_finished_write_is_in_the_file(disk: Loop, tmp_path: Path) -> None:
    disk.until_finished(disk.put(Insert(job("A"))))
    other = sqlite3.connect(f"file:{tmp_path / 'jobs.db'}?mode=ro", uri=True)
    assert other.execute("SELECT id FROM jobs").fetchall() == [("A",)]
    other.close()


def test_a_full_disk_refuses_new_jobs_and_keeps_outcomes(disk: Loop) -> None:
    disk.until_finished(disk.put(Insert(job("A"))))
    backend = disk.store.backend
    assert isinstance(backend, SmallDisk)
    backend.limit(30)
    big = disk.put(Insert(job("B", 1_000_000)))
    disk.until_finished(big)
    assert big.error is not None and big.error.code == FULL
    refusal = disk.store.refusal()
    ended = job("A")
    ended.state, ended.ended, ended.result = DONE, 200.0, b"y" * 1_000_000
    finish = disk.put(Finish(ended))
    assert refusal is not None and refusal.code == FULL and "is full" in refusal.text
    disk.until(lambda: disk.store._kept == [finish])
    assert finish not in disk.finished
    backend.limit(100_000)
    disk.until_finished(finish)
    assert finish.error is None
    disk.until(lambda: disk.store.refusal() is None)
    get = Get("A")
    disk.put(get)
    disk.until_finished(get)
    assert get.job is not None and len(get.job.result) == 1_000_000


def test_a_full_disk_is_tried_again_though_nothing_waits(disk: Loop) -> None:
    backend = disk.store.backend
    assert isinstance(backend, SmallDisk)
    backend.limit(30)
    disk.until_finished(disk.put(Insert(job("B", 1_000_000))))
    backend.limit(100_000)
    disk.until(lambda: disk.store.refusal() is None)


def test_a_store_that_cannot_be_opened_stops(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    loop = begin(SqliteBackend(tmp_path / "jobs.db"))
    loop.until(lambda: loop.store.trouble != "")
    loop.store.ask_to_stop()
    loop.until(lambda: not loop.store.running)


def test_stopping_writes_what_is_there(tmp_path: Path) -> None:
    loop = begin(SqliteBackend(tmp_path / "jobs.db"))
    loop.until(lambda: loop.leads)
    for n in range(100):
        loop.put(Insert(job(f"J{n}")))
    loop.store.stop()
    again = begin(SqliteBackend(tmp_path / "jobs.db"))
    again.until(lambda: again.leads)
    assert again.loaded is not None and len(again.loaded.jobs) == 100
    assert again.epochs[0] > loop.epochs[0]
    again.store.stop()


def test_what_can_wait_goes_with_the_next_group(disk: Loop) -> None:
    first = Insert(job("A"))
    first.job.digest = b"d"
    disk.until_finished(disk.put(first))
    groups = disk.store.groups
    waiting = disk.put(Collected("A"))
    disk.until_finished(disk.put(Insert(job("B"))), waiting)
    assert disk.store.groups == groups + 1
    alone = disk.put(Collected("B"))
    disk.store.tick()
    disk.until_finished(alone)
    assert disk.store.groups == groups + 2
    disk.put(Collected("A"))
    disk.store.stop()
    assert disk.store.groups == groups + 3


class Faulty(SqliteBackend):
    """Has a fault: it cannot handle a job named BAD. For the first read of LOST, the file cannot be used."""

    lost = True

    def _insert(self, connection: sqlite3.Connection, inserts: list[Insert]) -> None:
        super()._insert(connection, inserts)
        if any(op.job.id == "BAD" for op in inserts):
            raise RuntimeError("no such thing")

    def read(self, op: Op) -> None:
        assert isinstance(op, Get)
        if op.id == "BAD":
            raise RuntimeError("no such thing")
        if op.id == "LOST" and self.lost:
            self.lost = False
            raise StoreError(UNAVAILABLE, "it is away")
        super().read(op)


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Loop]:
    loop = begin(Faulty(tmp_path / "jobs.db"))
    loop.until(lambda: loop.leads)
    yield loop
    loop.store.stop()


def found(loop: Loop, id: str) -> bool:
    get = Get(id)
    loop.until_finished(loop.put(get))
    return get.job is not None


def test_an_internal_error_fails_only_the_write_that_causes_it(
    faulty: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ops = [Insert(job(id)) for id in ("A", "BAD", "B")]
    faulty.put_together(*ops)
    faulty.until_finished(*ops)
    assert [op.error.code if op.error else "" for op in ops] == ["", UNAVAILABLE, ""]
    other = sqlite3.connect(f"file:{tmp_path / 'jobs.db'}?mode=ro", uri=True)
    assert other.execute("SELECT id FROM jobs ORDER BY id").fetchall() == [("A",), ("B",)]
    other.close()
    assert faulty.store.refusal() is None and len(faulty.epochs) == 1
    assert "no such thing" in caplog.text


def test_a_read_that_fails_leaves_other_operations_alone(faulty: Loop) -> None:
    broken, other, insert = Get("BAD"), Get("A"), Insert(job("A"))
    faulty.put_together(broken, insert, other)
    faulty.until_finished(broken, insert, other)
    assert broken.error is not None and other.error is None and insert.error is None and found(faulty, "A")


def test_writes_survive_a_read_during_which_the_store_goes_away(faulty: Loop) -> None:
    lost, other, insert = Get("LOST"), Get("A"), Insert(job("A"))
    faulty.put_together(lost, other, insert)
    faulty.until_finished(lost, other, insert)
    assert lost.error is not None and other.error is not None and insert.error is None
    faulty.until(lambda: faulty.store.refusal() is None)
    assert found(faulty, "A")


def test_an_answer_that_fails_leaves_the_others_alone(disk: Loop) -> None:
    first, second = Insert(job("A")), Insert(job("B"))
    disk.put_together(first, second)

    def fail(_: Op) -> None:
        raise RuntimeError("no such thing")

    first.then = fail
    with pytest.raises(RuntimeError, match="no such thing"):
        disk.until_finished(second)
    disk.until_finished(second)
    assert second.error is None


@pytest.mark.xdist_group("postgres")
class TestPostgres:
    @pytest.fixture
    def server(self) -> Iterator[Postgres]:
        server = Postgres()
        try:
            server.start()
            yield server
        finally:
            server.remove()

    def begin(self, server: Postgres, name: str, lease: float = 6.0) -> Loop:
        from polydomo.stores.postgres import PostgresBackend

        return begin(PostgresBackend(server.url), name, lease)

    def test_a_database_that_is_away_for_a_while(self, server: Postgres) -> None:
        loop = self.begin(server, "a", lease=1.0)
        try:
            loop.until(lambda: loop.leads)
            loop.until_finished(loop.put(Insert(job("A"))))
            server.kill()
            late = loop.put(Insert(job("B")))
            loop.until(lambda: loop.store.refusal() is not None and loop.suspensions == [True])
            assert late not in loop.finished
            server.start()
            loop.until_finished(late)
            loop.until(lambda: loop.store.refusal() is None and loop.suspensions == [True, False])
            assert late.error is None and loop.epochs == loop.epochs[:1]  # it never stopped leading
            get = Get("B")
            loop.put(get)
            loop.until_finished(get)
            assert get.job is not None
        finally:
            loop.store.stop()

    def test_a_text_that_cannot_be_stored_fails_alone(self, server: Postgres) -> None:
        loop = self.begin(server, "a")
        try:
            loop.until(lambda: loop.leads)
            bad, good = job("A"), job("B")
            bad.key = "PostgreSQL has no \0 in texts"
            ops = [Insert(bad), Insert(good)]
            loop.put_together(*ops)
            loop.until_finished(*ops)
            assert ops[0].error is not None and ops[1].error is None and found(loop, "B") and not found(loop, "A")
            assert loop.store.refusal() is None
        finally:
            loop.store.stop()

    def test_the_second_broker_takes_over_and_the_first_is_fenced(self, server: Postgres) -> None:
        first, second = self.begin(server, "a", lease=600.0), None
        try:
            first.until(lambda: first.leads)
            first.until_finished(first.put(Insert(job("A"))))
            second = self.begin(server, "b", lease=600.0)
            second.until(lambda: second.followed == ["tcp://a"])
            refused = Insert(job("X"))
            refused.then = second.finished.append
            second.store.put(refused)
            second.until_finished(refused)
            assert refused.error is not None and refused.error.code == NOT_LEADER and "tcp://a" in refused.error.text
            first.store.lease_time = 1.0
            first.until(lambda: first.store._lease_until < awake_time() + 2.0)
            with first.store._condition:  # suspended: its thread can do nothing
                second.until(lambda: second.leads)
                assert second.loaded is not None and [found.id for found in second.loaded.jobs] == ["A"]
                late = Insert(job("B"))
                late.epoch = first.epochs[0]
                late.then = first.finished.append
                first.store._pending.append(late)
            first.until_finished(late)
            assert late.error is not None and late.error.code == NOT_LEADER
            first.until(lambda: not first.leads)
        finally:
            first.store.stop()
            if second is not None:
                second.store.stop()

    def test_a_leader_that_leaves_hands_over_at_once(self, server: Postgres) -> None:
        first = self.begin(server, "a", lease=3600.0)
        first.until(lambda: first.leads)
        second = self.begin(server, "b", lease=3600.0)
        try:
            second.until(lambda: bool(second.followed))
            first.store.stop()
            second.until(lambda: second.leads)
        finally:
            second.store.stop()
