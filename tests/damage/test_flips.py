"""Random flips and cuts in everything that a broker stores. Never a wrong value, never a traceback, and everything undamaged is served.

Each trial damages a copy of one file and reads everything back. The full form has 2,000 trials.
"""

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.ops import Get, Select, StoreError
from polydomo.errors import SettingError
from polydomo.journal.files import runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import KINDS
from polydomo.keys import read_pair, read_public, write_pair
from polydomo.protocols.memo.store_api import StoreFault
from polydomo.server.access import file as access_file
from polydomo.stores.memo import MemoStore
from polydomo.stores.sqlite import SqliteBackend
from polydomo.wire.security.sodium import public_key
from tests.damage.images import NOW, Content, damage, make_jobs, make_memo
from tests.journal.files.test_writer import AGES, started
from tests.journal.stage import live

TARGETS = ("jobs.db", "jobs.db", "jobs-wal", "memo.db", "memo-wal", "segment", "key", "access")

ACCESS = """
[server]
curve = "server.key_secret"

[principals.alice]
curve = "alice.key"
token_sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
[principals.pool]
curve = "pool.key"
uid = 1000

[groups]
all = ["alice", "pool"]

[[allow]]
who = ["alice"]
call = ["resize", "lint.*"]
inspect = true
[[allow]]
who = ["pool"]
offer = ["resize"]

[quotas.all]
connections = 5
requests_per_second = 100
"""


class Images:
    """Undamaged files, and what is in them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        dice = random.Random(1)
        self.content = Content()
        self.killed = Content()
        (place / "closed").mkdir()
        (place / "killed").mkdir()
        make_jobs(place / "closed" / "jobs.db", self.content, dice, close=True)
        make_jobs(place / "killed" / "jobs.db", self.killed, dice, close=False)
        make_memo(place / "closed" / "memo.db", self.content, close=True)
        make_memo(place / "killed" / "memo.db", self.content, close=False)
        world, kept = started(place / "journal", JournalBounds(keep_age=AGES, roll_rows=200))
        live(world, 1, 300)
        kept.stop()
        self.rows = {
            kind: {(row["run"], row["seq"]): row for row in Reader([place / "journal"]).rows(kind)} for kind in KINDS
        }
        (place / "keys").mkdir()
        for name in ("server", "alice", "pool"):
            write_pair(place / "keys", name)
        (place / "keys" / "access.toml").write_text(ACCESS)
        self.pair = read_pair(place / "keys" / "server.key_secret", "key")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return Images(tmp_path_factory.mktemp("images"))


class Trial:
    """One damaged file. ``lost`` and ``served`` count records."""

    def __init__(self, images: Images, place: Path, seed: int, counts: "Counter[str]") -> None:
        self.images = images
        self.place = place
        self.dice = random.Random(seed)
        self.counts = counts
        self.target = self.dice.choice(TARGETS)

    def run(self) -> None:
        self.counts[self.target] += 1
        if self.target.startswith("jobs"):
            self._jobs()
        elif self.target.startswith("memo"):
            self._memo()
        elif self.target == "segment":
            self._segment()
        elif self.target == "key":
            self._key()
        else:
            self._access()

    def _copy(self, name: str) -> Path:
        """The path of a copy of a SQLite file, or of the one of a killed process."""
        killed = self.target.endswith("-wal")
        source = self.images.place / ("killed" if killed else "closed")
        for file in source.glob(f"{name}*"):
            if not file.name.endswith((".lock", "-shm")):
                shutil.copyfile(file, self.place / file.name)
        damage(self.place / (f"{name}-wal" if killed else name), self.dice)
        return self.place / name

    def _jobs(self) -> None:
        content = self.images.killed if self.target.endswith("-wal") else self.images.content
        store = SqliteBackend(self._copy("jobs.db"))
        try:
            store.open()
        except StoreError as error:
            one_line(error)
            self.counts["refused"] += 1
            return
        try:
            epoch = store.acquire("a", "tcp://a", 60.0).epoch
            loaded = store.load(NOW)
            for job in loaded.jobs:
                assert job.damage or (job.service, job.body) == content.jobs[job.id][:2]
            for row in loaded.schedules:
                assert row.damage or (row.name in content.schedules and row.service == b"service1")
            assert set(loaded.paused) <= {b"service2"}
            for id, stored in content.jobs.items():
                self._job(store, id, stored)
            listed = Select("", b"", 1000)
            store.read(listed)
            assert all(job.damage or job.outcome == states.DAMAGED or job.id in content.jobs for job in listed.jobs)
            store.apply([], epoch)
        except StoreError as error:
            one_line(error)
            self.counts["failed"] += 1
        finally:
            store.close()

    def _job(self, store: SqliteBackend, id: str, stored: "tuple[bytes, bytes, bytes, str]") -> None:
        op = Get(id)
        try:
            store.read(op)
        except StoreError:
            self.counts["jobs lost"] += 1
            return
        job = op.job
        if job is None:
            self.counts["jobs lost"] += 1
        elif job.outcome == states.DAMAGED:
            assert job.state == states.DEAD and not job.body and not job.result and job.reason
            self.counts["jobs damaged"] += 1
        else:
            service, body, result, _ = stored
            assert job.service == service
            assert job.body == (b"" if job.state == states.DONE else body)
            assert job.result == (result if job.state == states.DONE else b"")
            self.counts["jobs served"] += 1

    def _memo(self) -> None:
        content = self.images.content
        try:
            store = MemoStore(self._copy("memo.db"), lambda: NOW)
        except SettingError as error:
            one_line(error)
            self.counts["refused"] += 1
            return
        try:
            for cid, data in content.nodes:
                self._value(lambda cid=cid: store.node(cid), data)  # type: ignore[misc]
            for key, body in content.replies.items():
                self._value(lambda key=key: store.reply(key), body)  # type: ignore[misc]
            for name, head in content.heads.items():
                self._value(lambda name=name: store.head(name), head)  # type: ignore[misc]
                self._value(lambda head=head: store.call("f", [head]), head)  # type: ignore[misc]
        finally:
            store.close()

    def _value(self, read: Callable[[], object], right: object) -> None:
        try:
            found = read()
        except StoreFault as error:
            one_line(error)
            found = None
        assert found is None or found == right
        self.counts["values served" if found is not None else "values lost"] += 1

    def _segment(self) -> None:
        journal = self.place / "journal"
        shutil.copytree(self.images.place / "journal", journal)
        segment = self.dice.choice(sorted(runs.segments(journal)))
        damage(segment.path, self.dice)
        reader = Reader([journal])
        for kind in KINDS:
            whole = self.images.rows[kind]
            rows = reader.rows(kind)
            assert all(whole[row["run"], row["seq"]] == row for row in rows)
            assert (len(rows) == len(whole)) == (kind != segment.kind)
        assert len(reader.problems) == 1 and "\n" not in reader.problems[0]
        assert str(segment.path) in reader.problems[0]

    def _key(self) -> None:
        shutil.copytree(self.images.place / "keys", self.place / "keys")
        secret = self.place / "keys" / "server.key_secret"
        damage(secret, self.dice)
        try:
            pair = read_pair(secret, "key")
            assert public_key(pair.secret) == pair.public == self.images.pair.public
        except SettingError as error:
            one_line(error)
        public = self.place / "keys" / "alice.key"
        damage(public, self.dice)
        try:
            assert len(read_public(str(public), "key")) == 32
        except SettingError as error:
            one_line(error)

    def _access(self) -> None:
        """What can still be read counts; a file that cannot is one line, and no rule of it is used."""
        shutil.copytree(self.images.place / "keys", self.place / "keys")
        path = self.place / "keys" / "access.toml"
        damage(path, self.dice)
        try:
            access_file.load(path)
        except SettingError as error:
            one_line(error, str(path))


def one_line(error: Exception, names: str = "") -> None:
    """An error is one line that says what is wrong."""
    if "\n" in str(error) or len(str(error)) < 30 or names not in str(error):
        raise AssertionError(f"not one clear line: {error}")


def check(images: Images, place: Path, first: int, trials: int, caplog: pytest.LogCaptureFixture) -> "Counter[str]":
    counts: Counter[str] = Counter()
    for seed in range(first, first + trials):
        here = place / f"{seed}"
        here.mkdir(parents=True)
        try:
            Trial(images, here, seed, counts).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert not [record for record in caplog.records if record.exc_info], f"seed {seed}"
        caplog.clear()
        shutil.rmtree(here)
    return counts


def assert_most_is_served(counts: "Counter[str]", most: float = 0.8) -> None:
    """A flip costs the record it hits. One in the root of a table, or a cut, can cost all records of that file."""
    jobs = counts["jobs served"] + counts["jobs damaged"] + counts["jobs lost"]
    values = counts["values served"] + counts["values lost"]
    assert counts["jobs served"] > most * jobs, counts
    assert counts["values served"] > most * values, counts


def test_flips_and_cuts(images: Images, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    counts = check(images, tmp_path, 1, 160, caplog)
    assert set(TARGETS) <= set(counts)
    assert_most_is_served(counts, 0.75)  # few trials: three more cuts near the beginning of a file are 5 %


@pytest.mark.long
def test_two_thousand_flips_and_cuts(images: Images, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    counts = check(images, tmp_path, 1, 2000, caplog)
    print(dict(counts))
    assert_most_is_served(counts)
