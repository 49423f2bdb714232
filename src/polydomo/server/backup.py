"""Backups of a data directory, also of a running broker, and data directories that are restored from them.

A backup is a directory with a copy of each store, of the access file and of the other files of the data directory, and a manifest with
their checksums. The manifest is written last: a backup without one is not whole. Each store is copied in one read transaction of SQLite,
so the copy is as the store was at one moment, whatever the broker does meanwhile. The journal is large and only grows: the manifest names
its directory.

A data directory is restored under another name, and gets its own name when all its files are on disk: a broker that found only some of
them would begin without the others.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from polydomo import __version__
from polydomo.errors import SettingError
from polydomo.server.access.file import load as load_access
from polydomo.server.job_store import FILE as JOBS
from polydomo.server.job_store import backend_of
from polydomo.server.resources import remedy
from polydomo.server.settings.settings import Settings
from polydomo.stores.memo import FILE as MEMO
from polydomo.stores.salvage import tolerant
from polydomo.stores.sqlite import SqliteBackend
from polydomo.stores.urls import without_password

MANIFEST = "manifest.json"
ACCESS = "access.toml"
FORMAT = 1
CHUNK = 1 << 20
NOT_COPIED = (".lock", "-wal", "-shm", ".writable")  # ends of names of files that belong to a running broker


@dataclass
class BackedUpFile:
    size: int
    sha256: str


@dataclass
class Manifest:
    """What a backup contains, and what it only refers to."""

    format: int
    version: str
    time: str
    data: str
    store: str  # where jobs are; a database server has backups of its own
    journal: str  # "" if there is none
    needs: list[str] = field(default_factory=list)  # keys and certificates that the access file names
    files: dict[str, BackedUpFile] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        with _written(directory / MANIFEST) as new:
            new.write_text(json.dumps(asdict(self), indent=2) + "\n")


def back_up(settings: Settings, to: Path) -> Manifest:
    """Copies the data directory of these settings into a new directory. Raises SettingError."""
    data = Path(settings.data)
    if not data.is_dir():
        raise SettingError(f"there is no data directory {data}: name it with --data")
    _need_empty(to, "a backup is never changed: choose another directory")
    backend = backend_of(settings)
    local = isinstance(backend, SqliteBackend)
    if isinstance(backend, SqliteBackend) and not backend.path.is_file():
        nested = nested_data(data)
        where = f"the files of a broker are in {nested}; name it" if nested else "name the data directory of the broker"
        raise SettingError(f"there is no job store {backend.path}: {where} with --data")
    journal = data / "journal"
    manifest = Manifest(
        FORMAT,
        __version__,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        str(data.absolute()),
        "" if local or backend is None else without_password(backend.url),
        str(journal.absolute()) if journal.is_dir() else "",
    )
    try:
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        stores = {MEMO: data / MEMO}
        if isinstance(backend, SqliteBackend):
            stores[JOBS] = backend.path
        for name, path in stores.items():
            if path.is_file():
                _copy_store(path, to / name)
        for path in sorted(data.iterdir()):
            if path.is_file() and not path.is_symlink() and path.name not in stores and _is_ours(path.name):
                _copy_file(path, to / path.name)
        if settings.access:
            _copy_file(Path(settings.access), to / ACCESS)
            manifest.needs = [str(path.absolute()) for path in load_access(settings.access).files[1:]]
        manifest.files = {path.name: _described(path) for path in sorted(to.iterdir())}
        manifest.write(to)
    except OSError as error:
        why = "the disk is full; choose another directory" if error.errno == errno.ENOSPC else remedy(error)
        raise SettingError(f"cannot back up {data} to {to}: {why}") from None
    return manifest


def read_manifest(directory: Path) -> Manifest:
    """Raises SettingError if the directory is not a whole backup that this version can read."""
    try:
        found = json.loads((directory / MANIFEST).read_text())
        if found["format"] > FORMAT:
            raise SettingError(f"{directory} was written by polydomo {found['version']}: restore it with that version")
        files = {str(name): BackedUpFile(int(one["size"]), str(one["sha256"])) for name, one in found["files"].items()}
        version, when, data, store, journal = (
            str(found[name]) for name in ("version", "time", "data", "store", "journal")
        )
        return Manifest(FORMAT, version, when, data, store, journal, [str(one) for one in found["needs"]], files)
    except FileNotFoundError:
        raise SettingError(
            f"{directory} is not a whole backup: it has no {MANIFEST}, which `polydomo backup` writes last"
        ) from None
    except OSError as error:
        raise SettingError(f"cannot read {directory / MANIFEST}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SettingError(f"{directory / MANIFEST} is damaged: use another backup") from None


def restore(directory: Path, data: Path) -> Manifest:
    """Makes a data directory of a backup, whose files are checked first. Raises SettingError."""
    manifest = read_manifest(directory)
    _need_empty(data, "restore into a new directory")
    place = data.resolve()  # it may be a symbolic link to an empty directory
    if place.is_mount() or place == Path.cwd():
        raise SettingError(
            f"{data} is a mount point or the current directory, which cannot be replaced; restore into a new directory below it"
        )
    new = place.with_name(f".{place.name}.restoring")
    if os.path.lexists(new):
        raise SettingError(
            f"{new} belongs to a restore that was killed or still runs; if none runs, remove it and restore again: rm -r {new}"
        )
    for name, expected in manifest.files.items():
        path = directory / name
        if Path(name).name != name or not path.is_file() or _described(path) != expected:
            raise SettingError(f"{path} is missing or damaged: use another backup; nothing was restored")
    try:
        new.mkdir(mode=0o700, parents=True)
        try:
            for name in manifest.files:
                _copy_file(directory / name, new / name)
            _sync(new)
            new.rename(place)  # fails if files have appeared there
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        _sync(place.parent)
    except OSError as error:
        raise SettingError(f"cannot restore {directory} to {data} by way of {new}: {remedy(error)}") from None
    return manifest


def nested_data(directory: Path) -> Path | None:
    """The data directory of a broker that was started in this one, if this one is not a data directory itself."""
    nested = directory / Settings().data
    return nested if not (directory / JOBS).is_file() and (nested / JOBS).is_file() else None


def _is_ours(name: str) -> bool:
    return not name.endswith(NOT_COPIED) and ".damaged-" not in name


def _need_empty(directory: Path, why: str) -> None:
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise SettingError(f"{directory} is not an empty directory: {why}")
    except OSError as error:
        raise SettingError(f"cannot use {directory}: {error.strerror}") from None


def read_only(path: Path) -> "contextlib.closing[sqlite3.Connection]":
    """Opens a store that a broker may be using, without changing it."""
    # SQLite makes a write-ahead log if there is none, and fails where it cannot. There, on a read-only file system, nothing changes.
    log = path.with_name(f"{path.name}-wal")
    immutable = "" if log.exists() or os.access(path.parent, os.W_OK) else "&immutable=1"
    store = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{immutable}", uri=True)
    store.text_factory = tolerant
    return contextlib.closing(store)


def _copy_store(path: Path, to: Path) -> None:
    """One read transaction: a backup in several steps would begin again whenever the broker writes."""
    try:
        with _written(to) as new:
            with read_only(path) as source, contextlib.closing(sqlite3.connect(new)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
                (found,) = target.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(str(found))
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise SettingError(
            f"{path} cannot be backed up: {error}; if it is damaged, restart the broker, which saves what can be read, and try again"
        ) from None


def _copy_file(path: Path, to: Path) -> None:
    with _written(to) as new:
        shutil.copyfile(path, new)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A new file that gets its name when it is on disk, readable only by its owner."""
    new = path.with_name(f".{path.name}.new")
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    try:
        yield new
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Names in it are on disk when this returns."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _described(path: Path) -> BackedUpFile:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return BackedUpFile(path.stat().st_size, digest.hexdigest())
