"""File operations of the pipeline: local disks, and object stores or HDFS through Arrow's file systems.

Neither needs a JVM, so that a run can look for new segments before it starts Spark, and tasks can read and write on executors.
A path without a scheme, or with ``file://``, is local. Any other scheme (``s3://``, ``s3a://``, ``hdfs://``, ``gs://``, ``abfs://``) is
opened by ``pyarrow.fs``, with the credentials of the environment it runs in.
"""

import json
import os
import shutil
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from polydomo.errors import PolydomoError
from polydomo.journal.files import parquet

ALIASES = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names for Arrow's schemes
UNREAD = "._"  # first characters of files that Spark does not read


class NoStorage(PolydomoError):
    """No file system can open this path."""


def has_scheme(path: str) -> bool:
    """Whether the path is not a local one."""
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    return str(Path(path.removeprefix("file://")).absolute())


def storage_for(path: str) -> "LocalStorage | ArrowStorage":
    """The storage for this path and everything below it."""
    if not has_scheme(path):
        return LocalStorage()
    scheme, _, rest = path.partition("://")
    return _remote(scheme, rest.split("/", 1)[0])


@lru_cache(maxsize=32)
def _remote(scheme: str, host: str) -> "ArrowStorage":
    uri = f"{ALIASES.get(scheme, scheme)}://{host}/"
    try:
        system, _ = pafs.FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise NoStorage(
            f"{scheme}://{host}: cannot be opened: {reason}; check the address and the credentials"
        ) from None
    return ArrowStorage(system, scheme)


class LocalStorage:
    """A local disk, or one that is shared with the cluster."""

    def exists(self, path: str) -> bool:
        return os.path.exists(local_path(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(local_path(path))

    def names(self, path: str) -> list[str]:
        """Names in a directory, in order; none if there is no such directory."""
        try:
            return sorted(os.listdir(local_path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stamp(self, path: str) -> int:
        """A number that changes when a name in the directory changes; 0 if unknown: the directory was changed just now, or is missing."""
        try:
            changed = os.stat(local_path(path)).st_mtime_ns
        except OSError:
            return 0
        return changed if time.time_ns() - changed > 2_000_000_000 else 0

    def under(self, path: str) -> list[str]:
        """Paths of all files below a directory, except those that Spark does not read: a session of the user may write `_SUCCESS`."""
        found = []
        for folder, _, names in os.walk(local_path(path)):
            found += [f"{folder}/{name}" for name in names if name[0] not in UNREAD]
        return sorted(found)

    def read(self, path: str) -> bytes:
        return Path(local_path(path)).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Replaces a file atomically: after a crash it has the old content or the new one."""
        target = Path(local_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(target)
        parquet.sync(target.parent)

    def move(self, source: str, target: str) -> None:
        """Replaces the target."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)

    def remove_empty(self, path: str) -> None:
        """Removes a directory if it is empty."""
        try:
            os.rmdir(path)
        except OSError:
            return

    def sync(self, paths: list[str]) -> None:
        """Returns when the files are on disk."""
        for path in paths:
            parquet.sync(Path(path))
        for directory in {os.path.dirname(path) for path in paths}:
            parquet.sync(Path(directory))

    def size(self, path: str) -> int:
        return os.path.getsize(local_path(path))

    def footer(self, path: str) -> Any:
        return pq.read_metadata(local_path(path))

    def table(self, path: str, columns: list[str] | None = None) -> pa.Table:
        return pq.ParquetFile(local_path(path)).read(columns)

    def write_table(self, path: str, table: pa.Table) -> None:
        Path(local_path(path)).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, local_path(path), compression="zstd", coerce_timestamps="us")


class ArrowStorage:
    """The same operations through one of Arrow's file systems."""

    def __init__(self, system: Any, scheme: str) -> None:
        self.system = system
        self.scheme = scheme

    def inner(self, path: str) -> str:
        return path.partition("://")[2] if "://" in path else path

    def outer(self, path: str) -> str:
        return f"{self.scheme}://{path.lstrip('/')}" if self.scheme != "file" else f"file://{path}"

    def exists(self, path: str) -> bool:
        return bool(self.system.get_file_info(self.inner(path)).type != pafs.FileType.NotFound)

    def is_directory(self, path: str) -> bool:
        return bool(self.system.get_file_info(self.inner(path)).type == pafs.FileType.Directory)

    def names(self, path: str) -> list[str]:
        selector = pafs.FileSelector(self.inner(path), allow_not_found=True)
        return sorted(info.base_name for info in self.system.get_file_info(selector))

    def stamp(self, path: str) -> int:
        """Unknown for object stores."""
        return 0

    def under(self, path: str) -> list[str]:
        selector = pafs.FileSelector(self.inner(path), allow_not_found=True, recursive=True)
        return sorted(
            self.outer(info.path)
            for info in self.system.get_file_info(selector)
            if info.type == pafs.FileType.File and info.base_name[0] not in UNREAD
        )

    def read(self, path: str) -> bytes:
        with self.system.open_input_stream(self.inner(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        """Writes an object. It becomes visible as a whole when its stream is closed."""
        self.system.create_dir(self.inner(path).rsplit("/", 1)[0], recursive=True)
        with self.system.open_output_stream(self.inner(path)) as stream:
            stream.write(content)

    def move(self, source: str, target: str) -> None:
        self.system.create_dir(self.inner(target).rsplit("/", 1)[0], recursive=True)
        self.system.move(self.inner(source), self.inner(target))

    def remove(self, path: str) -> None:
        info = self.system.get_file_info(self.inner(path))
        if info.type == pafs.FileType.Directory:
            self.system.delete_dir(self.inner(path))
        elif info.type != pafs.FileType.NotFound:
            self.system.delete_file(self.inner(path))

    def remove_empty(self, path: str) -> None:
        """Object stores have no empty directories."""

    def sync(self, paths: list[str]) -> None:
        """Nothing to do: a closed object is stored."""

    def size(self, path: str) -> int:
        return int(self.system.get_file_info(self.inner(path)).size)

    def footer(self, path: str) -> Any:
        return pq.read_metadata(self.inner(path), filesystem=self.system)

    def table(self, path: str, columns: list[str] | None = None) -> pa.Table:
        with self.system.open_input_file(self.inner(path)) as file:
            return pq.ParquetFile(file).read(columns)

    def write_table(self, path: str, table: pa.Table) -> None:
        self.system.create_dir(self.inner(path).rsplit("/", 1)[0], recursive=True)
        with self.system.open_output_stream(self.inner(path)) as stream:
            pq.write_table(table, stream, compression="zstd", coerce_timestamps="us")


Storage = LocalStorage | ArrowStorage


def load(storage: Storage, path: str) -> Any:
    return json.loads(storage.read(path))


def dump(storage: Storage, path: str, value: Any) -> None:
    storage.write(path, json.dumps(value, indent=0, sort_keys=True).encode())


def conform(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The table with these columns. Columns that an earlier version did not save are empty (text) or null."""
    for field in wanted:
        if field.name not in table.schema.names:
            nothing = "" if pa.types.is_string(field.type) else None
            table = table.append_column(field, pa.array([nothing] * table.num_rows, field.type))
    return table.select(wanted.names).cast(wanted)
