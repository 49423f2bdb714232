"""Saves what is left of a damaged SQLite file: every readable record is copied into a new file, and the damaged one is kept."""

import contextlib
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polydomo.stores.wal import log_of, lost, repair

LOG = logging.getLogger("polydomo.store")

VERSIONS = 1000  # there will never be as many of our tables: a higher number is damaged
MAGIC = b"SQLite format 3\0"
FIRST_PAGE = 4096  # bytes: SQLite's default page, which all our files have
SIZE_FIELD = slice(28, 32)  # of the header: pages of the file
FREE_FIELDS = slice(32, 40)  # of the header: the list of free pages


class SalvagedTable(NamedTuple):
    """``indexes`` contain the key: their names, first columns and conditions."""

    name: str
    columns: str
    key: str
    indexes: "tuple[tuple[str, str, str], ...]" = ()


class Copying:
    """Copies records into the new file, and counts them."""

    def copy(self, new: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
        raise NotImplementedError

    def summary(self) -> str:
        raise NotImplementedError


class Sound(NamedTuple):
    """How to open a file that may be damaged."""

    what: str  # "the job store", for messages
    connect: Callable[[], sqlite3.Connection]  # with its pragmas; it may raise sqlite3.Error
    check: str  # the pragma that checks the file
    schema: str
    tables: Sequence[SalvagedTable]
    copying: Callable[[], Copying]
    current: int  # the version of these tables
    version: Callable[[sqlite3.Connection], int]  # that of the file; 0 if it is new


def open_sound(path: Path, sound: Sound) -> sqlite3.Connection:
    """Opens a file, which is checked as a whole. If it or its write-ahead log is damaged, everything that can still be read is saved, with
    a line in the log. Raises sqlite3.Error or OSError, for example if the disk is full."""
    log = log_of(path)
    connection, damage = _checked(sound)
    if log and connection is not None:
        (_, valid, _) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        missing = lost(log, valid)
        if missing:
            connection.close()
            pages = repair(path, log)
            text = (
                "the write-ahead log of %s %s was damaged: %d pages in it are lost, and %d transactions were recovered"
            )
            LOG.error(text, sound.what, path, pages, missing)
            connection, damage = _checked(sound)
    if connection is None and not _is_sqlite(path):
        raise sqlite3.DatabaseError(f"{damage}, and never was one")
    if connection is None:
        copying = sound.copying()
        kept = salvage(path, sound.schema, sound.tables, copying.copy)
        text = "%s %s was damaged (%s): %s; the damaged file is %s"
        LOG.error(text, sound.what, path, damage, copying.summary(), kept)
        connection, damage = _checked(sound)
    if connection is None:
        raise sqlite3.DatabaseError(f"{damage}; restore it from a backup")
    return connection


def _is_sqlite(path: Path) -> bool:
    """Whether it is a damaged SQLite file, and not a file of another kind."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC or path.stat().st_size % FIRST_PAGE == 0


def _checked(sound: Sound) -> "tuple[sqlite3.Connection | None, str]":
    """The connection, if the file is as SQLite wrote it; otherwise what is wrong with it."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sound.connect()
        found = connection.execute(sound.check).fetchone()
        text = str(found[0]) if found is not None else "no answer"
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, UnicodeDecodeError):  # of SQLite's message, which quotes the schema
            return None, "malformed database schema"
        if not is_damage(error):
            raise
        return None, str(error)
    if text == "ok":
        text = _schema_damage(connection, sound)
    if not text:
        return connection, ""
    connection.close()
    return None, text.replace("\n", " ")


def tolerant(text: bytes) -> str:
    """Text that is not UTF-8 is damaged; its checksum says so."""
    return text.decode(errors="replace")


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _schema_damage(connection: sqlite3.Connection, sound: Sound) -> str:
    """What is wrong with the names of tables and columns, or with the version, which no check of SQLite covers."""
    try:
        version = sound.version(connection)
        if not 0 <= version < VERSIONS:
            return f"version {version} of the tables"
        for table in sound.tables if version == sound.current else ():
            connection.execute(f"SELECT {table.columns} FROM {table.name} LIMIT 0")
    except (sqlite3.Error, UnicodeDecodeError, TypeError):
        return "malformed database schema"
    return ""


def salvage(
    path: Path,
    schema: str,
    tables: Sequence[SalvagedTable],
    copy: Callable[[sqlite3.Connection, str, Sequence[Any]], None],
) -> Path:
    """Replaces ``path`` by a file with these tables, into which ``copy`` wrote each record that can be read. Returns the name under which
    the damaged file is kept. Raises sqlite3.Error or OSError if there is no space."""
    kept = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}")
    made, work = (path.with_name(f"{path.name}.{part}") for part in ("salvaged", "work"))
    for file in (made, work):
        _remove(file)
    os.link(path, kept)
    _copy(path, work)
    if Path(f"{path}-wal").exists():
        _copy(Path(f"{path}-wal"), Path(f"{kept}-wal"))
        _copy(Path(f"{path}-wal"), Path(f"{work}-wal"))
    with contextlib.closing(_create(made, schema)) as new:
        with contextlib.closing(_open_damaged(work, tables, made)) as old, new:
            for table in tables:
                for row in readable(old, table):
                    copy(new, table.name, row)
    _remove(work)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    os.replace(made, path)
    return kept


def _copy(path: Path, to: Path) -> None:
    with open(path, "rb") as source, open(to, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as target:
        shutil.copyfileobj(source, target)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _create(path: Path, schema: str) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    new = sqlite3.connect(path)
    new.executescript(f"PRAGMA synchronous = FULL; BEGIN; {schema} COMMIT;")
    return new


def _open_damaged(path: Path, tables: Sequence[SalvagedTable], fresh: Path) -> sqlite3.Connection:
    """If the first page, with the schema, cannot be used, it is replaced by that of the new file: the tables of both were created alike."""
    with open(path, "r+b") as file:  # an older first page does not count the pages that were added later
        file.seek(SIZE_FIELD.start)
        file.write((path.stat().st_size // FIRST_PAGE).to_bytes(4, "big"))
    old = _connect(path)
    try:
        for table in tables:
            old.execute(f"SELECT {table.columns} FROM {table.name} LIMIT 0")
    except (sqlite3.DatabaseError, UnicodeDecodeError):
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


def readable(old: sqlite3.Connection, table: SalvagedTable) -> Iterator[Sequence[Any]]:
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
