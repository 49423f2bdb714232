"""The few things a commit does with files, on local disks and through Hadoop's file systems (hdfs://, s3a://)."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.segments import has_scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalFiles:
    """Paths of this machine, or of a disk that it shares with the cluster."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def under(self, path: str) -> list[str]:
        """Paths of all files under a directory; none if it is not there. Those of hidden files are left out."""
        return sorted(
            str(found) for found in Path(path).rglob("*") if found.is_file() and not found.name.startswith(".")
        )

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """The file has its old content or the new one, whatever happens."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(target)
        self._sync(target.parent)

    def move(self, source: str, target: str) -> None:
        """Takes the place of what is there."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)

    def remove(self, path: str) -> None:
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)

    def sync(self, paths: list[str]) -> None:
        """What has been written there is on disk when this returns."""
        for path in paths:
            self._sync(Path(path))
        for directory in {os.path.dirname(path) for path in paths}:
            self._sync(Path(directory))

    def _sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class HadoopFiles:
    """The same through the JVM of the driver."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        try:
            jvm: Any = spark._jvm
        except Exception:  # Spark Connect has none, and says so in words of its own
            raise PolydomoError(
                f"{root}: with --remote the tables must be on a disk that this machine and the cluster share"
            ) from None
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        uri = jvm.java.net.URI.create(root)
        self._fs = jvm.org.apache.hadoop.fs.FileSystem.get(uri, conf)

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def under(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        found = []
        files = self._fs.listFiles(self._path(path), True)
        while files.hasNext():
            status = files.next()
            if not status.getPath().getName().startswith("."):
                found.append(str(status.getPath().toString()))
        return sorted(found)

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        fresh = f"{path}.new"
        stream = self._fs.create(self._path(fresh), True)
        stream.write(bytearray(content))
        stream.close()
        self.move(fresh, path)

    def move(self, source: str, target: str) -> None:
        """Without a rename that replaces, the old one goes first: a commit that is killed in between is finished by the next start."""
        to = self._path(target)
        self._fs.mkdirs(to.getParent())
        if self._fs.exists(to):
            self._fs.delete(to, False)
        if not self._fs.rename(self._path(source), to):
            raise OSError(f"{source} could not be renamed to {target}")

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def sync(self, paths: list[str]) -> None:
        """A file that is closed there is safe."""


Files = LocalFiles | HadoopFiles


def files_for(spark: "SparkSession", root: str) -> Files:
    return HadoopFiles(spark, root) if has_scheme(root) else LocalFiles()


def load(files: Files, path: str) -> Any:
    return json.loads(files.read(path))


def dump(files: Files, path: str, value: Any) -> None:
    files.write(path, json.dumps(value, indent=0, sort_keys=True).encode())
