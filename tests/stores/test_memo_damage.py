"""The memo store after damage: no wrong value is returned, damaged ones are stored or computed again, and the rest is served."""

import sqlite3
from pathlib import Path

import pytest

from polydomo.protocols.memo.cid import Cid
from polydomo.protocols.memo.node import node_cid
from polydomo.protocols.memo.store_api import StoreFault
from polydomo.stores.memo import MemoStore
from tests.stores.test_memo_store import opened

DATA = [b"x" * 100, b"y" * 100, b"z" * 100]
CIDS = [node_cid(data)[0] for data in DATA]


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def fill(path: Path) -> None:
    with opened(path) as store:
        for data in DATA:
            store.put_node(*node_cid(data))
        store.set_head("main", CIDS[0])
        store.set_head("other", CIDS[1])
        store.set_call("f", [CIDS[0]], CIDS[1])
        store.set_call("f", [CIDS[1]], CIDS[2])
        store.put_reply(b"k1", "resize", "1", b"reply one")
        store.put_reply(b"k2", "resize", "1", b"reply two")


def test_wrong_bytes_are_never_returned_for_a_cid(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    change(path, f"UPDATE node SET data = CAST('{'q' * 100}' AS BLOB) WHERE cid = x'{CIDS[1].raw.hex()}'")
    with opened(path) as store:
        assert store.node(CIDS[1]) is None
        assert store.node(CIDS[0]) == node_cid(DATA[0])[1]
        assert store.call("f", [CIDS[0]]) is None  # its result is gone: it is evaluated again
        assert store.call("f", [CIDS[1]]) == CIDS[2]
        store.put_node(*node_cid(DATA[1]))
        assert store.node(CIDS[1]) == node_cid(DATA[1])[1]
    assert CIDS[1].text() in caplog.text


def test_storing_a_node_again_repairs_it(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    change(path, f"UPDATE node SET data = x'00' WHERE cid = x'{CIDS[1].raw.hex()}'")
    with opened(path) as store:
        store.put_node(*node_cid(DATA[1]))
        assert store.node(CIDS[1]) == node_cid(DATA[1])[1]


@pytest.mark.parametrize("column", ["result = x'01'", "args = x'01'", "checks = 7"])
def test_a_damaged_call_has_no_result(tmp_path: Path, column: str) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    change(path, f"UPDATE call SET {column} WHERE result = x'{CIDS[1].raw.hex()}'")
    with opened(path) as store:
        assert store.call("f", [CIDS[0]]) is None
        assert store.calls("f") == [[CIDS[1]]]


@pytest.mark.parametrize(
    "column", ["body = x'01'", "body = 'reply one'", "created = 5", "service = 'other'", "key = x'00'"]
)
def test_a_damaged_reply_is_computed_again(tmp_path: Path, column: str) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    change(path, f"UPDATE reply SET {column} WHERE key = CAST('k1' AS BLOB)")
    with opened(path) as store:
        assert store.reply(b"k1") is None
        assert store.reply(b"\0") is None
        assert store.reply(b"k2") == b"reply two"
        store.put_reply(b"k1", "resize", "1", b"reply one")
        assert store.reply(b"k1") == b"reply one"


def test_a_damaged_head_is_an_error_until_it_is_set_again(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    change(path, f"UPDATE head SET cid = x'{CIDS[2].raw.hex()}' WHERE name = 'main'")
    with opened(path) as store:
        with pytest.raises(StoreFault, match=r"the head 'main' in .* is damaged; set it again"):
            store.head("main")
        assert store.heads() == ["other"]
        store.set_head("main", CIDS[2])
        assert store.head("main") == CIDS[2]


def test_a_file_of_version_1_gets_checksums(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    fill(path)
    with sqlite3.connect(path) as connection:
        for table in ("head", "call", "reply"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN checks")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with opened(path) as store:
        assert store.head("main") == CIDS[0] and store.call("f", [CIDS[0]]) == CIDS[1]
        assert store.reply(b"k1") == b"reply one"
    change(path, "UPDATE reply SET body = x'01' WHERE key = CAST('k1' AS BLOB)")
    with opened(path) as store:
        assert store.reply(b"k1") is None


def test_a_damaged_page_costs_only_what_was_on_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memo.db"
    nodes = [node_cid(b"%04d" % n * 100) for n in range(300)]
    with opened(path) as store:
        for cid, data in nodes:
            store.put_node(cid, data)
    with open(path, "r+b") as file:
        file.seek(-4096, 2)
        file.write(b"\xff" * 4096)
    with opened(path) as store:
        found = [store.node(cid) for cid, _ in nodes]
        assert all(data in (None, right) for data, (_, right) in zip(found, nodes, strict=True))
        assert sum(data is not None for data in found) > 280
    assert "the damaged file is" in caplog.text


def store_all(store: MemoStore, nodes: "list[tuple[Cid, bytes]]") -> None:
    for cid, data in nodes:
        store.put_node(cid, data)


def test_values_beyond_the_share_of_the_disk_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "memo.db", keep_bytes=100_000) as store:
        store.disk_share = 400_000
        nodes = [node_cid(b"%04d" % n * 1000) for n in range(200)]
        for cid, data in nodes[:60]:
            store.put_node(cid, data)
        with pytest.raises(StoreFault, match=r"its share of the disk is 0\.4 MiB \(`limits.max_disk`\)"):
            store_all(store, nodes[60:])
        assert 300_000 < store.used_bytes() <= store.disk_share
        store.set_head("main", CIDS[0])  # what needs hardly any space still works
        assert store.node(node_cid(b"0000" * 1000)[0]) is not None
