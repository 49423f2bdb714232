"""Saves what is left of a damaged SQLite file: every readable record is copied into a new file, and the damaged one is kept."""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FIRST_PAGE = 4096  # bytes: SQLite's default page, which all our files have
SIZE_FIELD = slice(28, 32)  # of the header: pages of the file
FREE_FIELDS = slice(32, 40)  # of the header: the list of free pages


class Table(NamedTuple):
    """``indexes`` contain the key: their names, first columns and conditions."""

    name: str
    columns: str
    key: str
    indexes: "tuple[tuple[str, str, str], ...]" = ()


Copy = Callable[[sqlite3.Connection, str, Sequence[Any]], None]


def tolerant(text: bytes) -> str:
    """Text that is not UTF-8 is damaged; its checksum says so."""
    return text.decode(errors="replace")


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def salvage(path: Path, schema: str, tables: Sequence[Table], copy: Copy) -> Path:
    """Replaces ``path`` by a file with these tables, into which ``copy`` wrote each record that can be read. Returns the name under which
    the damaged file is kept. Raises sqlite3.Error or OSError if there is no space."""
    kept = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")
    made = path.with_name(f"{path.name}.salvaged")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{made}{suffix}").unlink(missing_ok=True)
    os.link(path, kept)
    log = Path(f"{path}-wal")
    if log.exists():
        shutil.copyfile(log, f"{kept}-wal")
    with contextlib.closing(_create(made, schema)) as new:
        with contextlib.closing(_open_damaged(kept, schema, made)) as old, new:
            for table in tables:
                for row in readable(old, table):
                    copy(new, table.name, row)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
        if suffix == "-shm":
            Path(f"{kept}{suffix}").unlink(missing_ok=True)
    os.replace(made, path)
    return kept


def _create(path: Path, schema: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    new = sqlite3.connect(path)
    new.executescript(f"PRAGMA synchronous = FULL; BEGIN; {schema} COMMIT;")
    return new


def _open_damaged(path: Path, schema: str, fresh: Path) -> sqlite3.Connection:
    """If the first page, with the schema, cannot be used, it is replaced by that of the new file: the tables of both were created alike."""
    with open(path, "r+b") as file:  # an older first page does not count the pages that were added later
        file.seek(SIZE_FIELD.start)
        file.write((path.stat().st_size // FIRST_PAGE).to_bytes(4, "big"))
    old = _connect(path)
    try:
        old.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError:
        old.close()
        with open(fresh, "rb") as file:
            page = bytearray(file.read(FIRST_PAGE))
        page[SIZE_FIELD] = (path.stat().st_size // FIRST_PAGE).to_bytes(4, "big")
        page[FREE_FIELDS] = bytes(8)
        with open(path, "r+b") as file:
            file.write(page)
        old = _connect(path)
    return old


def _connect(path: Path) -> sqlite3.Connection:
    old = sqlite3.connect(path)
    old.text_factory = tolerant
    return old


def readable(old: sqlite3.Connection, table: Table) -> Iterator[Sequence[Any]]:
    """Every record of a table that SQLite can still read, once: from the first on until the damage, from the last on, and then those whose
    keys are in an index."""
    keys = table.key.count(",") + 1
    seen: set[Any] = set()
    text = f"SELECT {table.key}, {table.columns} FROM {table.name}"
    for order in ("ASC", "DESC"):
        try:
            by_key = ", ".join(f"{column} {order}" for column in table.key.split(", "))
            for row in old.execute(f"{text} ORDER BY {by_key}"):
                if row[:keys] not in seen:
                    seen.add(row[:keys])
                    yield row[keys:]
            return
        except sqlite3.Error:
            pass  # the rest is behind the damage
    found: dict[Any, None] = {}
    for index, column, condition in table.indexes:
        for order in ("ASC", "DESC"):
            with contextlib.suppress(sqlite3.Error):
                where = f"FROM {table.name} INDEXED BY {index} WHERE {condition} ORDER BY {column} {order}"
                found.update((key, None) for (key,) in old.execute(f"SELECT {table.key} {where}"))
    for key in found:
        if (key,) not in seen:
            with contextlib.suppress(sqlite3.Error):
                for row in old.execute(f"{text} WHERE {table.key} = ?", (key,)):
                    yield row[keys:]
