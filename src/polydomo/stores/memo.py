"""The memo store: MemoDB's Nodes, heads and calls, and the replies of memoised services, in one SQLite file.

The event loop's thread reads and writes it; a lookup takes about 10 us. With a write-ahead log, a commit does not wait for the disk, so a
killed process loses nothing and a power failure loses at most the last moments; the file is never corrupted. Checkpoints, which wait for
the disk, run in a thread.

Everything is verified when it is read: a Node by the hash in its CID, any other record by a checksum. A damaged Node, call or reply is
removed, as if it had never been stored, so that it is computed or stored again.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polydomo.errors import SettingError
from polydomo.limits import (
    MAX_MEMODB_LISTED,
    MEMO_CHECKPOINT,
    MEMO_CHECKPOINT_BYTES,
    MEMO_KEEP_AGE,
    MEMO_KEEP_BYTES,
    MEMO_RECENT_BYTES,
    MEMO_RECORD,
    MEMO_TRIM,
    MEMO_USED,
    MIB,
)
from polydomo.protocols.memo.cid import Cid, read_cid
from polydomo.protocols.memo.store_api import MemoValues, StoreFault, packed
from polydomo.stores.memo_checks import MemoCopy, call_sum, head_sum, is_node, reply_sum
from polydomo.stores.salvage import SalvagedTable, Sound, open_sound, tolerant

LOG = logging.getLogger("polydomo.memo")

FILE = "memo.db"  # in the data directory
VERSION = 2  # 1 had no checksums
TABLES = """
CREATE TABLE node (cid BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE head (name TEXT PRIMARY KEY, cid BLOB NOT NULL, checks INTEGER NOT NULL DEFAULT -1) WITHOUT ROWID;
CREATE TABLE call (
    func TEXT, args BLOB, result BLOB NOT NULL, checks INTEGER NOT NULL DEFAULT -1, PRIMARY KEY (func, args)
) WITHOUT ROWID;
CREATE TABLE reply (
    key BLOB PRIMARY KEY, service TEXT NOT NULL, version TEXT NOT NULL, body BLOB NOT NULL, size INTEGER NOT NULL,
    created REAL NOT NULL, used REAL NOT NULL, hits INTEGER NOT NULL, checks INTEGER NOT NULL DEFAULT -1
);
CREATE INDEX reply_service ON reply (service);
CREATE INDEX reply_used ON reply (used);
"""
SCHEMA = f"{TABLES} PRAGMA user_version = {VERSION};"
HEADS = SalvagedTable("head", "name, cid, checks", "name")
CALLS = SalvagedTable("call", "func, args, result, checks", "func, args")
REPLIES = SalvagedTable("reply", "key, service, version, body, size, created, used, hits, checks", "key")
NODES = SalvagedTable("node", "cid, data", "cid")


class MemoStore(MemoValues):
    """See the module docstring. ``clock`` returns seconds since the epoch."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        keep_bytes: int = MEMO_KEEP_BYTES,
        keep_age: float = MEMO_KEEP_AGE,
    ) -> None:
        self.path = path
        self.clock = clock
        self.keep_bytes = keep_bytes
        self.keep_age = keep_age
        self._db = _open(path)
        self._bytes = self._reply_bytes()
        self._thread: threading.Thread | None = None
        self.disk_share = 0  # most bytes of the file; 0: no limit
        self._used_bytes = self.used_bytes()  # when it was last measured
        self._grown = 0  # bytes written since, at most
        self._logged = 0  # bytes of values since the last checkpoint
        self._written = 0  # commits since the last checkpoint
        # Key -> reply and creation time, the least recently used first.
        self._recent: dict[bytes, tuple[bytes, float]] = {}
        self._recent_bytes = 0
        self._used: dict[bytes, tuple[float, int]] = {}  # key -> time of last use, and hits that are not written yet

    def memory(self) -> int:
        return self._recent_bytes

    # --- Nodes

    def node(self, cid: Cid) -> bytes | None:
        content = cid.content()
        if content is not None:
            return content
        rows = self._rows("SELECT data FROM node WHERE cid = ?", (cid.raw,))
        if not rows:
            return None
        data: bytes = rows[0][0]
        if is_node(cid, data):
            return data
        LOG.error(
            "Node %s in %s is damaged and was removed, with the calls that have it as their result",
            cid.text(),
            self.path,
        )
        with self._writing() as db:
            db.execute("DELETE FROM node WHERE cid = ?", (cid.raw,))
            db.execute("DELETE FROM call WHERE result = ?", (cid.raw,))
        return None

    def put_node(self, cid: Cid, data: bytes) -> None:
        if cid.content() is None:
            with self._writing(len(data)) as db:
                db.execute(
                    "INSERT INTO node VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data",
                    (cid.raw, data),
                )

    # --- heads

    def head(self, name: str) -> Cid | None:
        rows = self._rows("SELECT cid, checks FROM head WHERE name = ?", (name,))
        if not rows:
            return None
        if rows[0][1] != head_sum(name, rows[0][0]):
            raise StoreFault(f"the head {name[:100]!r} in {self.path} is damaged; set it again")
        return read_cid(rows[0][0])

    def heads(self, after: str = "", most: int = MAX_MEMODB_LISTED) -> list[str]:
        while True:
            rows = self._rows(f"SELECT {HEADS.columns} FROM head WHERE name > ? ORDER BY name LIMIT ?", (after, most))
            found = [name for name, cid, checks in rows if checks == head_sum(name, cid)]
            if found or len(rows) < most:
                return found
            after = rows[-1][0]  # all of these were damaged

    def set_head(self, name: str, cid: Cid) -> None:
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO head VALUES (?, ?, ?)", (name, cid.raw, head_sum(name, cid.raw)))

    # --- calls

    def call(self, func: str, args: list[Cid]) -> Cid | None:
        """A damaged result is removed; the call is evaluated again."""
        key = packed(args)
        try:
            rows = self._rows("SELECT result, checks FROM call WHERE func = ? AND args = ?", (func, key))
        except StoreFault:
            return None
        if not rows:
            return None
        if rows[0][1] == call_sum(func, key, rows[0][0]):
            return read_cid(rows[0][0])
        LOG.error("a stored result of %s in %s is damaged and was removed", func, self.path)
        with self._writing() as db:
            db.execute("DELETE FROM call WHERE func = ? AND args = ?", (func, key))
        return None

    def funcs(self, after: str = "", most: int = MAX_MEMODB_LISTED) -> list[str]:
        found: list[str] = []
        while len(found) < most:  # one look-up for each: DISTINCT would read all calls
            rows = self._rows("SELECT func FROM call WHERE func > ? ORDER BY func LIMIT 1", (after,))
            if not rows:
                break
            after = rows[0][0]
            found.append(after)
        return found

    def calls(self, func: str, after: list[Cid] | None = None, most: int = MAX_MEMODB_LISTED) -> list[list[Cid]]:
        last = packed(after or [])
        text = "SELECT args, result, checks FROM call WHERE func = ? AND args > ? ORDER BY args LIMIT ?"
        while True:
            rows = self._rows(text, (func, last, most))
            found = [_unpack(args) for args, result, checks in rows if checks == call_sum(func, args, result)]
            if found or len(rows) < most:
                return found
            last = rows[-1][0]  # all of these were damaged

    def set_call(self, func: str, args: list[Cid], result: Cid) -> None:
        with self._writing() as db:
            key = packed(args)
            sums = call_sum(func, key, result.raw)
            db.execute("INSERT OR REPLACE INTO call VALUES (?, ?, ?, ?)", (func, key, result.raw, sums))

    def delete_calls(self, func: str) -> int:
        with self._writing() as db:
            return db.execute("DELETE FROM call WHERE func = ?", (func,)).rowcount

    # --- replies of memoised services

    def reply(self, key: bytes) -> bytes | None:
        recent = self._recent.pop(key, None)
        if recent is None:
            rows = self._rows("SELECT service, version, body, created, checks FROM reply WHERE key = ?", (key,))
            if not rows:
                return None
            *row, checks = rows[0]
            if checks != reply_sum(key, *row):
                LOG.error("a stored reply of %s in %s is damaged and was removed", row[0], self.path)
                self._drop("key = ?", (key,))
                return None
            recent = (row[2], row[3])
            self._recent_bytes += len(recent[0])
        body, created = recent
        now = self.clock()
        if now - created > self.keep_age:
            self._recent_bytes -= len(body)
            self._drop("key = ?", (key,))
            return None
        self._recent[key] = recent  # the most recently used is last
        while self._recent_bytes > MEMO_RECENT_BYTES:
            oldest = next(iter(self._recent))
            self._recent_bytes -= len(self._recent.pop(oldest)[0])
        hits = self._used.get(key)
        self._used[key] = (now, hits[1] + 1 if hits is not None else 1)
        if len(self._used) >= MEMO_USED:
            self._note_used()
        return body

    def _note_used(self) -> None:
        """Writes the usage of replies in batches, because a write costs more than a lookup."""
        used, self._used = self._used, {}
        with self._writing() as db:
            rows = [(when, hits, key) for key, (when, hits) in used.items()]
            db.executemany("UPDATE reply SET used = ?, hits = hits + ? WHERE key = ?", rows)

    def put_reply(self, key: bytes, service: str, version: str, body: bytes) -> None:
        if len(body) > self.keep_bytes // 10:
            return  # one large reply must not evict everything else
        now = self.clock()
        recent = self._recent.pop(key, None)
        if recent is not None:
            self._recent_bytes -= len(recent[0])
        with self._writing(len(body)) as db:
            sums = reply_sum(key, service, version, body, now)
            db.execute(
                "INSERT OR REPLACE INTO reply VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
                (key, service, version, body, len(body), now, now, sums),
            )
        self._bytes += len(body)
        if self._bytes > self.keep_bytes:
            self.trim()

    def trim(self) -> int:
        """Removes expired replies, and the least recently used ones beyond the size limit; returns their number."""
        self._note_used()
        removed = self._drop("created < ?", (self.clock() - self.keep_age,))
        over = self._bytes - int(self.keep_bytes * MEMO_TRIM)
        if self._bytes > self.keep_bytes:
            keys: list[tuple[bytes]] = []
            for key, size in self._rows("SELECT key, size FROM reply ORDER BY used"):
                keys.append((key,))
                over -= size
                if over <= 0:
                    break
            with self._writing() as db:
                db.executemany("DELETE FROM reply WHERE key = ?", keys)
            self._forget_recent()
            removed += len(keys)
            self._bytes = self._reply_bytes()
        return removed

    def _reply_bytes(self) -> int:
        return int(self._rows("SELECT coalesce(sum(size), 0) FROM reply")[0][0])

    def remove_replies(self, service: str) -> int:
        """Removes the replies of one service, or of all services that a pattern (``model/name_patterns.py``) matches."""
        # GLOB has sets such as [a-z], our patterns do not.
        return self._drop("service GLOB ?", (service.replace("[", "[[]"),))

    def replies(self) -> list[dict[str, object]]:
        """The stored replies by service."""
        self._note_used()
        rows = self._rows(
            "SELECT service, version, count(*), sum(size), sum(hits), min(created), max(used) FROM reply "
            "GROUP BY service, version ORDER BY service, version"
        )
        names = ("service", "version", "replies", "size_bytes", "hits", "oldest", "last_used")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def stats(self) -> dict[str, object]:
        ((nodes, size),) = self._rows("SELECT count(*), coalesce(sum(length(data)), 0) FROM node")
        ((calls,),) = self._rows("SELECT count(*) FROM call")
        ((heads,),) = self._rows("SELECT count(*) FROM head")
        ((replies, kept),) = self._rows("SELECT count(*), coalesce(sum(size), 0) FROM reply")
        return {
            "nodes": nodes, "nodes_bytes": size, "calls": calls, "heads": heads,
            "replies": replies, "replies_bytes": kept, "max_bytes": self.keep_bytes,
        }  # fmt: skip

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    def _drop(self, condition: str, parameters: tuple[object, ...]) -> int:
        self._forget_recent()
        with self._writing() as db:
            (size,) = db.execute(f"SELECT coalesce(sum(size), 0) FROM reply WHERE {condition}", parameters).fetchone()
            count = db.execute(f"DELETE FROM reply WHERE {condition}", parameters).rowcount
        self._bytes -= size
        return count

    # --- the file

    def used_bytes(self) -> int:
        """Bytes of the file that hold data; removed values leave room for others."""
        ((pages,),) = self._rows("PRAGMA page_count")
        ((free,),) = self._rows("PRAGMA freelist_count")
        ((size,),) = self._rows("PRAGMA page_size")
        return int((pages - free) * size)

    def _charge(self, size: int) -> None:
        """Raises StoreFault if the store has used up its share of the disk."""
        self._grown += size + MEMO_RECORD
        if not self.disk_share or self._used_bytes + self._grown <= self.disk_share:
            return
        self._used_bytes, self._grown = self.used_bytes(), size + MEMO_RECORD
        if self._used_bytes + self._grown > self.disk_share:
            raise StoreFault(
                f"{self.path} has {self._used_bytes / MIB:,.1f} MiB; its share of the disk is {self.disk_share / MIB:,.1f} MiB "
                "(`limits.max_disk`)"
            )

    def _rows(self, text: str, parameters: tuple[object, ...] = ()) -> "list[Any]":
        try:
            return self._db.execute(text, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreFault(f"{self.path}: {error}") from None

    @contextlib.contextmanager
    def _writing(self, size: int = 0) -> Iterator[sqlite3.Connection]:
        """``size``: bytes that a client stores; none are stored beyond the store's share of the disk."""
        if size:
            self._charge(size)
        try:
            with self._db:
                yield self._db
        except sqlite3.Error as error:
            raise StoreFault(f"{self.path}: {error}") from None
        self._written += 1
        self._logged += size
        if self._written >= MEMO_CHECKPOINT or self._logged >= MEMO_CHECKPOINT_BYTES:
            self._written = self._logged = 0
            self._checkpoint()

    def _checkpoint(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_checkpoint, args=(self.path,), name="polydomo-memo", daemon=True)
            self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(StoreFault):
            self._note_used()
        if self._thread is not None:
            self._thread.join()
        self._db.close()


def _open(path: Path) -> sqlite3.Connection:
    """Raises SettingError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        sound = Sound(
            "the memo store",
            lambda: _connect(path),
            "PRAGMA quick_check(1)",
            SCHEMA,
            (HEADS, NODES, CALLS, REPLIES),
            MemoCopy,
            VERSION,
            lambda db: int(db.execute("PRAGMA user_version").fetchone()[0]),
        )
        db = open_sound(path, sound)
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            db.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        elif version == 1:
            _add_checksums(db)
        elif version != VERSION:
            raise SettingError(
                f"memo: {path} has version {version}; this polydomo needs version {VERSION}; move the file away"
            )
        return db
    except sqlite3.Error as error:
        raise SettingError(f"memo: cannot open {path}: {error}; if it is damaged, move it away") from None
    except OSError as error:
        raise SettingError(f"memo: cannot open {path}: {error.strerror}") from None


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    # Do not wait for locks of other processes, because that would block the loop.
    db = sqlite3.connect(path, timeout=0.1)
    try:
        db.text_factory = tolerant
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")  # a thread runs checkpoints
        db.execute("PRAGMA mmap_size = 268435456")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _add_checksums(db: sqlite3.Connection) -> None:
    """Version 1 had none."""
    db.create_function("head_sum", 2, head_sum)
    db.create_function("call_sum", 3, call_sum)
    db.create_function("reply_sum", 5, reply_sum)
    with db:
        db.execute("BEGIN")
        for table in ("head", "call", "reply"):
            db.execute(f"ALTER TABLE {table} ADD COLUMN checks INTEGER NOT NULL DEFAULT -1")
        db.execute("UPDATE head SET checks = head_sum(name, cid)")
        db.execute("UPDATE call SET checks = call_sum(func, args, result)")
        db.execute("UPDATE reply SET checks = reply_sum(key, service, version, body, created)")
        db.execute(f"PRAGMA user_version = {VERSION}")


def _checkpoint(path: Path) -> None:
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _unpack(key: bytes) -> list[Cid]:
    found: list[Cid] = []
    at = 0
    while at < len(key):
        end = at + 1 + key[at]
        found.append(read_cid(key[at + 1 : end]))
        at = end
    return found
