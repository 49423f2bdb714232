"""The memo store: stored values are found, limits hold, and a killed process leaves it intact."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.cli.broker.up import open_memo
from polydomo.errors import SettingError
from polydomo.protocols.memo.cid import Cid
from polydomo.protocols.memo.node import node_cid
from polydomo.protocols.memo.store_api import MemoValues, StoreFault
from polydomo.server.settings.settings import Settings
from polydomo.stores.memo import MemoStore
from polydomo.stores.no_memo import NoMemoStore


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def opened(
    path: Path, clock: Clock | None = None, keep_bytes: int = 10_000, keep_age: float = 100.0
) -> Iterator[MemoStore]:
    store = MemoStore(path, clock or Clock(), keep_bytes, keep_age)
    try:
        yield store
    finally:
        store.close()


def cid_of(value: object) -> tuple[Cid, bytes]:
    return node_cid(["long enough to need a hash instead", str(value)])


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_stored_values_are_found(kind: str, tmp_path: Path) -> None:
    with opened(tmp_path / "memo.db") if kind == "disk" else contextlib.nullcontext(MemoValues()) as store:
        (one, data), (two, _) = cid_of(1), cid_of(2)
        small, content = node_cid(None)
        assert store.node(one) is None and store.node(small) == content
        store.put_node(one, data)
        store.put_node(one, data)
        assert store.node(one) == data and store.node(two) is None
        assert store.head("a/b") is None
        store.set_head("a/b", one)
        store.set_head("a/b", two)
        assert store.head("a/b") == two and store.heads() == ["a/b"]
        store.set_call("add", [one, small], two)
        store.set_call("add", [small], one)
        assert store.call("add", [one, small]) == two and store.call("add", [small, one]) is None
        assert store.funcs() == ["add"] and sorted(map(len, store.calls("add"))) == [1, 2]
        assert store.delete_calls("add") == 2 and store.call("add", [one, small]) is None and store.funcs() == []
        store.put_reply(b"k1", "lint.a", "", b"\x00\x01x")
        store.put_reply(b"k2", "lint.b", "", b"")
        assert store.reply(b"k1") == b"\x00\x01x" and store.reply(b"k2") == b"" and store.reply(b"k3") is None
        assert (
            store.remove_replies("lint.a") == 1 and store.remove_replies("lint.*") == 1 and store.reply(b"k2") is None
        )


def test_stored_values_survive_a_restart(tmp_path: Path) -> None:
    cid, data = cid_of(1)
    with opened(tmp_path / "memo.db") as store:
        store.put_node(cid, data)
        store.put_reply(b"k", "s", "1", b"body")
    with opened(tmp_path / "memo.db") as store:
        assert store.node(cid) == data and store.reply(b"k") == b"body"
    assert (tmp_path / "memo.db").stat().st_mode & 0o777 == 0o600


def test_replies_are_bounded_by_size_and_age(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "memo.db", clock) as store:
        for number in range(50):
            clock.now += 1
            store.put_reply(b"%d" % number, "s", "", bytes(900))
            store.reply(b"0")  # used again and again: it stays
        assert store.stats()["replies_bytes"] <= 10_000  # type: ignore[operator]
        assert store.reply(b"0") is not None and store.reply(b"1") is None
        store.put_reply(b"large", "s", "", bytes(1_001))
        assert store.reply(b"large") is None
        clock.now += 101
        assert store.reply(b"0") is None
        assert store.trim() >= 0 and store.stats()["replies"] == 0
        assert store.replies() == []


def test_figures_by_service(tmp_path: Path) -> None:
    with opened(tmp_path / "memo.db") as store:
        store.put_reply(b"1", "a", "", b"xx")
        store.put_reply(b"2", "a", "", b"y")
        store.reply(b"1")
        (row,) = store.replies()
        assert (row["service"], row["replies"], row["size_bytes"], row["hits"]) == ("a", 2, 3, 1)


def test_a_damaged_or_newer_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(SettingError, match="move it away"):
        MemoStore(path, Clock())
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SettingError, match="version 99"):
        MemoStore(path, Clock())


WRITER = """
import sys, time
from pathlib import Path
from polydomo.stores.memo import MemoStore
from polydomo.protocols.memo.node import node_cid
store = MemoStore(Path(sys.argv[1]), time.time)
number = 0
while True:
    cid, data = node_cid(["long enough to need a hash instead", number])
    store.put_node(cid, data)
    store.set_call("f", [cid], cid)
    store.put_reply(b"%d" % number, "s", "", data)
    number += 1
    if number % 100 == 0:
        print(number, flush=True)
"""


def test_kill_9_leaves_it_intact(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    done = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while done < 1500:  # past a checkpoint
            done = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with opened(path, keep_bytes=10**9, keep_age=10**12) as store:
        for number in range(done):
            cid, data = node_cid(["long enough to need a hash instead", number])
            assert store.node(cid) == data and store.call("f", [cid]) == cid and store.reply(b"%d" % number) == data
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_store_that_cannot_be_opened_refuses_writes_only(tmp_path: Path) -> None:
    """A broker starts without its memo store, for example on a full disk, unless services are memoised."""
    (tmp_path / "memo.db").write_bytes(b"not a database" * 100)
    settings = Settings(data=str(tmp_path))
    store = open_memo(settings)
    assert isinstance(store, NoMemoStore) and store.reply(b"key") is None and store.heads() == []
    with pytest.raises(StoreFault, match=r"memo\.db"):
        store.put_reply(b"key", "upper", "", b"")
    settings.service = {"upper": {"memo": True}}
    with pytest.raises(SettingError, match=r"memo\.db"):
        open_memo(settings)
