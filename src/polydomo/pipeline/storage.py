"""File operations of the pipeline: local disks, and object stores or HDFS through Arrow's file systems.

Neither needs a JVM, so that a run can look for new segments before it starts Spark, and tasks can read and write on executors.
A path without a scheme, or with ``file://``, is local. Any other scheme (``s3://``, ``s3a://``, ``hdfs://``, ``gs://``, ``abfs://``) is
opened by ``pyarrow.fs``, with the credentials of the environment it runs in.
"""

import json
import os
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


def storage_for(path: str) -> "Storage":
    """The storage for this path and everything below it."""
    if not has_scheme(path):
        return LocalStorage()
    scheme, _, rest = path.partition("://")
    return _remote(scheme, rest.split("/", 1)[0])


@lru_cache(maxsize=32)
def _remote(scheme: str, host: str) -> "Storage":
    uri = f"{ALIASES.get(scheme, scheme)}://{host}/"
    try:
        system, _ = pafs.FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise NoStorage(
            f"{scheme}://{host}: cannot be opened: {reason}; check the address and the credentials"
        ) from None
    return Storage(system, scheme)


class Storage:
    """The files of an object store or of HDFS, through one of Arrow's file systems."""

    def __init__(self, system: Any, scheme: str = "file") -> None:
        self.system = system
        self.scheme = scheme

    def inner(self, path: str) -> str:
        """The path as the file system has it."""
        return path.partition("://")[2] if "://" in path else path

    def outer(self, path: str) -> str:
        return f"{self.scheme}://{path.lstrip('/')}" if self.scheme != "file" else f"file://{path}"

    def exists(self, path: str) -> bool:
        return bool(self.system.get_file_info(self.inner(path)).type != pafs.FileType.NotFound)

    def is_directory(self, path: str) -> bool:
        return bool(self.system.get_file_info(self.inner(path)).type == pafs.FileType.Directory)

    def names(self, path: str) -> list[str]:
        """Names in a directory, in order; none if there is no such directory."""
        selector = pafs.FileSelector(self.inner(path), allow_not_found=True)
        try:
            return sorted(info.base_name for info in self.system.get_file_info(selector))
        except NotADirectoryError:
            return []

    def stamp(self, path: str) -> int:
        """A number that changes when a name in the directory changes; 0 if unknown, as always for object stores."""
        return 0

    def under(self, path: str) -> list[str]:
        """Paths of all files below a directory, except those that Spark does not read: a session of the user may write `_SUCCESS`."""
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
        """Replaces a file: readers see the old content or the new one. An object becomes visible when its stream is closed."""
        with self._output(path) as stream:
            stream.write(content)

    def _output(self, path: str) -> Any:
        self.system.create_dir(self.inner(path).rsplit("/", 1)[0], recursive=True)
        return self.system.open_output_stream(self.inner(path))

    def move(self, source: str, target: str) -> None:
        """Replaces the target."""
        self.system.create_dir(self.inner(target).rsplit("/", 1)[0], recursive=True)
        self.system.move(self.inner(source), self.inner(target))

    def remove(self, path: str) -> None:
        info = self.system.get_file_info(self.inner(path))
        if info.type == pafs.FileType.Directory:
            self.system.delete_dir(self.inner(path))
        elif info.type != pafs.FileType.NotFound:
            self.system.delete_file(self.inner(path))

    def remove_empty(self, path: str) -> None:
        """Removes a directory if it is empty. Object stores have no empty directories."""

    def sync(self, paths: list[str]) -> None:
        """Returns when the files are on disk. A closed object is stored."""

    def size(self, path: str) -> int:
        return int(self.system.get_file_info(self.inner(path)).size)

    def footer(self, path: str) -> Any:
        return pq.read_metadata(self.inner(path), filesystem=self.system)

    def table(self, path: str, columns: list[str] | None = None) -> pa.Table:
        with self.system.open_input_file(self.inner(path)) as file:
            return pq.ParquetFile(file).read(columns)

    def write_table(self, path: str, table: pa.Table) -> None:
        with self._output(path) as stream:
            pq.write_table(table, stream, compression="zstd", coerce_timestamps="us")


class LocalStorage(Storage):
    """A local disk, or one that is shared with the cluster."""

    def __init__(self) -> None:
        super().__init__(pafs.LocalFileSystem())

    def inner(self, path: str) -> str:
        return local_path(path)

    def outer(self, path: str) -> str:
        return path

    def stamp(self, path: str) -> int:
        try:
            changed = os.stat(local_path(path)).st_mtime_ns
        except OSError:
            return 0  # it is missing
        # names may still change within one tick of the clock
        return changed if time.time_ns() - changed > 2_000_000_000 else 0

    def write(self, path: str, content: bytes) -> None:
        target = Path(local_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(target)
        parquet.sync(target.parent)

    def remove_empty(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError:
            return

    def sync(self, paths: list[str]) -> None:
        for path in {*paths, *map(os.path.dirname, paths)}:
            parquet.sync(Path(path))


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
