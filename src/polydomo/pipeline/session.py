"""Builds Spark sessions: a quiet local one by default, a cluster's with ``--master`` or ``--remote``."""

import hashlib
import logging
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from polydomo.errors import PolydomoError
from polydomo.pipeline import java, local_disk
from polydomo.pipeline.combined import Combined
from polydomo.scratch import scratch_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.pipeline")

QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # a row is written to the file of its hour without sorting all rows by hour first
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # the driver lists segments: jobs that list them in parallel cost more
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # segments are small: one task reads many
    "spark.sql.files.openCostInBytes": "65536",
}
# Of sessions that are started here; a Spark Connect server has its own.
OF_DRIVER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.driver.memory": "1g",
    # a Python worker is used for all tasks of its core
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",
    # compiled code of all queries of a run is kept for the next batch of a stream
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# Those of QUIET on which the rows and the files of tables depend.
OF_TABLES = (
    "spark.sql.session.timeZone",
    "spark.sql.parquet.compression.codec",
    "spark.sql.parquet.outputTimestampType",
)
# On one machine a plan with few partitions needs no adapting, which would plan every stage again. Nor does
# Spark check plans after each step of its optimizer: a check of Spark itself, which costs time in every query.
LOCAL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.lightweightPlanChangeValidation": "false",
    # A task puts its files at their place itself. On a cluster, an executor may be lost right after that, and another one repeats the task.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    # no column is a variant
    "spark.sql.variant.pushVariantIntoScan": "false",
}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# For small batches: compiling quickly costs less than compiling well.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
THOROUGH = "-XX:+UseParallelGC"
QUICK_ROWS = 1_500_000  # rows of the journal (an upper bound, of both kinds) up to which QUICK is faster
ROWS_PER_GIB = 2_000_000  # rows of the journal for which a local session gets one more GiB
MOST_MIB = 3584  # of its heap; with what the JVM needs besides, ten million rows take less than 5 GiB

CONNECT_PORT = 15002  # the default port of a Spark Connect server
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 20.0  # for the JVM's shutdown hooks, which remove scratch directories; then it is killed
ARCHIVE_DAYS = 30  # an archive of another version that no session used for so long is removed
ARCHIVE_SECONDS = 120.0  # ... and for writing the class archive, once


class NoSpark(PolydomoError):
    """pyspark is not installed, or no session could be created."""


def require() -> None:
    """Raises NoSpark with the package to install."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise NoSpark("this needs pyspark: pip install 'polydomo[spark]'") from None


class ClassArchive:
    """An archive of the JVM's loaded classes for faster starts (AppCDS). The first session that ends normally writes it."""

    def __init__(self, home: str) -> None:
        import pyspark

        key = hashlib.sha256(f"{home} {pyspark.__version__} {QUICK}".encode()).hexdigest()[:12]
        self.path = java.own_directory() / f"spark-{key}.jsa"
        self.fresh = self.path.with_suffix(f".{os.getpid()}")
        self.skipped = self.path.with_suffix(".skipped")  # writing it took too long: not tried again
        self.writes = not self.path.is_file() and not self.skipped.exists()
        self._sweep()

    def _sweep(self) -> None:
        """Removes archives that nothing will use: unfinished ones of processes that were killed, and those of other versions that were
        last used ``ARCHIVE_DAYS`` ago. Each has more than 100 MB."""
        oldest = time.time() - ARCHIVE_DAYS * 86400
        for file in self.path.parent.glob("spark-*.*"):
            try:
                owner = file.suffix.removeprefix(".")
                if owner.isdecimal():
                    unused = not _is_running(int(owner))
                else:
                    unused = file.suffix == ".jsa" and file != self.path and file.stat().st_mtime < oldest
                if unused:
                    file.unlink()
            except OSError:
                pass  # another process removed it, or may not be asked about

    def options(self) -> str:
        """Options for the JVM, which checks whether the archive matches and otherwise ignores it."""
        quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
        if self.writes:
            return f"{quiet} -XX:ArchiveClassesAtExit={self.fresh}"
        return f"{quiet} -XX:SharedArchiveFile={self.path}" if self.path.is_file() else ""

    def skip(self) -> None:
        """The JVM did not end in time."""
        if self.writes:
            self.fresh.unlink(missing_ok=True)
            self.skipped.touch()

    def keep(self) -> None:
        """After the JVM has ended."""
        if not self.writes and self.path.is_file():
            os.utime(self.path)  # it is in use
        if self.writes and self.fresh.is_file():
            self.fresh.replace(self.path)


_archive: ClassArchive | None = None  # of the session that is open


def build(
    master: str = "",
    remote: str = "",
    conf: "dict[str, str] | None" = None,
    name: str = "polydomo",
    progress: bool = False,
    ui: bool = False,
    rows: int | None = None,
) -> "SparkSession":
    """A session. ``master`` is ``local[*]`` unless given; ``remote`` is a Spark Connect address (sc://...).

    ``progress`` shows Spark's progress bars, ``ui`` starts its web interface. ``rows`` is the number of journal rows that the
    pipeline computes in a local session: it decides about its memory and compiler. Without ``master`` and ``remote``, such a session uses
    and makes the class archive.
    """
    global _archive
    require()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers would use whatever python3 is first on the path
    builder = SparkSession.builder.appName(name)
    settings = dict(QUIET)
    asked = dict(conf or {})
    if remote:
        _reachable(remote)
        builder = builder.remote(remote)
    else:
        settings |= OF_DRIVER
        settings["spark.ui.showConsoleProgress"] = str(progress).lower()
        settings["spark.ui.enabled"] = str(ui).lower()
        if not ui:
            # Spark describes each plan for its interface, also without one
            settings["spark.sql.ui.explainMode"] = "simple"
        home = java.find()
        os.environ["JAVA_HOME"] = home
        local = not master or master.startswith("local")
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # otherwise the C library keeps memory that the JVM's compiler frees, in an arena per thread
            os.environ.setdefault("MALLOC_ARENA_MAX", "2")
            if rows is not None:
                settings |= LOCAL
                settings["spark.driver.memory"] = f"{min(MOST_MIB, 1024 * (1 + -(-rows // ROWS_PER_GIB)))}m"
            settings["spark.driver.bindAddress"] = "127.0.0.1"
            settings["spark.driver.host"] = "127.0.0.1"
        builder = builder.master(master or "local[*]")
        if master.startswith("local-cluster") or not local:
            settings["spark.submit.pyFiles"] = str(package())
        options = [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"]
        if rows is not None and not master:
            _archive = ClassArchive(home)
            options.append(_archive.options())
        # the user's options replace the defaults: the JVM rejects two garbage collectors
        options.append(asked.pop(JAVA_OPTIONS, QUICK if (rows or 0) <= QUICK_ROWS else THOROUGH))
        settings[JAVA_OPTIONS] = " ".join(options)
    for key, value in {**settings, **asked}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j and gRPC raise many classes; the user needs one line
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise NoSpark(f"no Spark session at {remote or master or 'local[*]'}: {first}") from error
    if remote:
        spark.addArtifacts(str(package()), pyfile=True)
    else:
        _ignore_end_of_jvm(spark)
        if local and rows is not None:
            local_disk.use(spark)
    return spark


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def _ignore_end_of_jvm(spark: "SparkSession") -> None:
    """pyspark's server for accumulators prints a traceback if the JVM ends before it, for example at Ctrl-C."""
    server: Any = spark.sparkContext._accumulatorServer
    report = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            report(request, address)

    server.handle_error = handle_error


def _reachable(remote: str) -> None:
    """Raises NoSpark if no server listens there. Spark's own client would retry silently for over a minute."""
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return  # the connection goes through a proxy
    try:
        place = urlsplit(remote)
        port = place.port or CONNECT_PORT
    except ValueError as error:
        raise NoSpark(f"--remote: {remote} is not the address of a Spark Connect server ({error})") from None
    if place.scheme != "sc" or not place.hostname:
        raise NoSpark(
            f"--remote: {remote} is not the address of a Spark Connect server, such as sc://host:{CONNECT_PORT}"
        )
    try:
        socket.create_connection((place.hostname, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise NoSpark(
            f"no Spark session at {remote}: no server answers at {place.hostname} port {port}: {error.strerror or error}"
        ) from None


def saves_classes() -> bool:
    """Whether closing the session takes longer because it writes the class archive."""
    return _archive is not None and _archive.writes


def close(spark: "SparkSession") -> None:
    """Ends the session, and returns when its JVM has ended."""
    global _archive
    from pyspark import SparkContext

    try:
        spark.stop()
    except Exception as error:
        # the JVM ended before (a signal, or out of memory): pyspark leaves its own state behind
        log.debug("the session could not be stopped: %s", error)
        session: Any = type(spark)
        session._instantiatedSession = session._activeSession = None
        SparkContext._active_spark_context = None
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return  # Spark Connect has no local JVM
    archive, _archive = _archive, None
    gateway.shutdown()
    process.stdin.close()  # at the end of its input the JVM exits
    try:
        process.wait(ARCHIVE_SECONDS if archive is not None and archive.writes else CLOSE_SECONDS)
        if archive is not None:
            archive.keep()
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        if archive is not None:
            archive.skip()
    SparkContext._gateway = SparkContext._jvm = None  # the next session starts a new JVM


def package() -> Path:
    """This package as a zip for executors: a wheel is not importable there, the same file named .zip is."""
    source = Path(__file__).resolve().parent.parent
    path = scratch_directory("spark") / "polydomo.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for root in (source, source.with_name("pyspark_polydomo")):
            for file in sorted(root.rglob("*.py")):
                packed.write(file, str(file.relative_to(source.parent)))
    return path


class LazySpark:
    """A Spark session that is started when it is needed. ``start`` gets the number of journal rows to compute."""

    def __init__(self, start: "Callable[[int], SparkSession]") -> None:
        self._start = start
        self.started: SparkSession | None = None
        self.combined = Combined()

    @staticmethod
    def of(given: "LazySpark | SparkSession | None") -> "AbstractContextManager[LazySpark]":
        """A session to use in a ``with`` statement, which closes only one that was started here."""
        if given is None:
            return LazySpark(lambda rows: build(rows=rows))
        if isinstance(given, LazySpark):
            return nullcontext(given)
        return _Given(given)

    def get(self, rows: int = 0) -> "SparkSession":
        if self.started is None:
            self.started = self._start(rows)
        return self.started

    @property
    def where(self) -> str:
        """Where it runs, for progress messages."""
        if self.started is None:
            return "Spark"
        master = self.started.conf.get("spark.master", None) or "a Spark Connect server"
        return f"Spark ({master})"

    def __enter__(self) -> "LazySpark":
        return self

    def __exit__(self, *_: object) -> None:
        self.combined.clear()
        if self.started is not None:
            close(self.started)
            self.started = None


class _Given(LazySpark):
    """A session that the user built. While tables are computed in it, it has the settings on which their rows and files depend."""

    def __init__(self, session: "SparkSession") -> None:
        super().__init__(self._prepared)
        self._session = session
        self._settings = ExitStack()

    def _prepared(self, rows: int) -> "SparkSession":
        self._settings.enter_context(settings_of(self._session, {name: QUIET[name] for name in OF_TABLES}))
        return self._session

    def __exit__(self, *_: object) -> None:
        self.combined.clear()
        self._settings.close()


@contextmanager
def settings_of(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """In this block, the session has these settings."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)
