"""The rows that a stream has read and Spark has not processed yet, in a SQLite file that survives a kill of the driver."""

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from polydomo.errors import SettingError

_TABLES = """
CREATE TABLE IF NOT EXISTS rows (
    n INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, topic TEXT, body BLOB, gap TEXT, more TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS latest (topic TEXT PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, time REAL NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Entry(NamedTuple):
    """A publication, job or log record; with ``gap``, a note that some may be missing."""

    n: int
    time: datetime
    topic: str | None
    body: bytes | None
    gap: str | None
    more: dict[str, Any]  # further columns


class Spool:
    """One file for one stream. Each connection to it belongs to one thread."""

    def __init__(self, directory: str | Path, of: str) -> None:
        """``of`` names the data that is read: a spool of other data is refused."""
        place = Path(str(directory).removeprefix("file://"))
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(place / "spool.sqlite", timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise SettingError(f"option spool: cannot write to {place}: {error}") from None
        known = self.state("of")
        if known is not None and known != of:
            raise SettingError(
                f"option spool: {place} belongs to a stream of {known}; use a separate directory for each stream"
            )
        self.set_state("of", of)

    def state(self, name: str) -> str | None:
        found = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return str(found[0]) if found else None

    def set_state(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    @contextmanager
    def transaction(self) -> "Any":
        """A transaction: after a crash, all or none of its writes remain."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add_publications(self, heard: "Iterable[tuple[str, bytes]]", fresh: set[str]) -> None:
        """``fresh`` contains the topics that have already arrived on this connection.

        The first value of a topic on a connection may be the last value that was received before the connection was lost; then it is
        left out.
        """
        now = time.time()
        with self.transaction():
            for topic, body in heard:
                digest = hashlib.blake2b(body, digest_size=16).digest()
                if topic not in fresh:
                    fresh.add(topic)
                    known = self._db.execute("SELECT digest FROM latest WHERE topic = ?", (topic,)).fetchone()
                    if known is not None and known[0] == digest:
                        continue
                self.add(now, topic, body)
                self._db.execute("INSERT OR REPLACE INTO latest VALUES (?, ?)", (topic, digest))
            self.set_state("connected", repr(now))

    def add(self, at: float, topic: str, body: bytes | None, more: "dict[str, Any] | None" = None) -> None:
        self._db.execute(
            "INSERT INTO rows (time, topic, body, more) VALUES (?, ?, ?, ?)", (at, topic, body, json.dumps(more or {}))
        )

    def add_gap(self, reason: str) -> None:
        self._db.execute("INSERT INTO rows (time, gap) VALUES (?, ?)", (time.time(), reason))

    def is_new(self, id: str, at: float) -> bool:
        """Marks the id as seen. Returns True if it was not seen before."""
        made = self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (id, at))
        return made.rowcount > 0

    def forget_seen(self, before: float) -> None:
        self._db.execute("DELETE FROM seen WHERE time < ?", (before,))

    def last(self) -> int:
        """The number of the newest row that was ever added."""
        found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'rows'").fetchone()
        return int(found[0]) if found else 0

    def between(self, after: int, last: int) -> list[Entry]:
        found = self._db.execute(
            "SELECT n, time, topic, body, gap, more FROM rows WHERE n > ? AND n <= ? ORDER BY n", (after, last)
        )
        return [
            Entry(n, datetime.fromtimestamp(at, UTC), topic, body, gap, json.loads(more))
            for n, at, topic, body, gap, more in found
        ]

    def forget(self, last: int) -> None:
        """Removes the rows up to this one: they are in the sink."""
        self._db.execute("DELETE FROM rows WHERE n <= ?", (last,))

    def close(self) -> None:
        self._db.close()
