"""One builder of Spark sessions: a quiet local one by default, a cluster's with ``--master`` or ``--remote``."""

import os
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from polydomo.errors import PolydomoError
from polydomo.pipeline import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Measured on a 2-core machine: more partitions only cost, a UI nobody opens costs a port and a second.
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # 8 partitions of a shuffle keep sorts of some million rows in memory; of less, Spark makes one out of several again.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    # histograms are gathered for some thousand windows at a time: in a hash map, not by sorting what they are of
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    # what is kept for some minutes is small: to choose how to compress it costs more than it weighs
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.driver.memory": "2g",
    # Rows of one hour come together, so a task writes few files at a time: no sort by partition before it writes.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # The committer's rename per file is enough: files are staged and published by a commit of our own.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
QUIETLY = Path(__file__).with_name("log4j2.properties")
# A run plans much and lives for minutes: by default the JVM spends as long on compiling Spark's planner well as on all
# rows of ten million. So only what is called very often, which is what handles rows, is compiled well. What Spark makes of
# a wide plan is one method of more bytes than the JVM compiles by default: it would be interpreted, row by row.
STEADY = (
    "-XX:+UseParallelGC -XX:ReservedCodeCacheSize=240m -XX:-DontCompileHugeMethods -XX:Tier4InvocationThreshold=400000 "
    "-XX:Tier4MinInvocationThreshold=200000 -XX:Tier4CompileThreshold=800000 -XX:Tier4BackEdgeThreshold=3000000"
)
# For short jobs in a JVM that lives for seconds: compiled quickly rather than well.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


# Under so many rows, plans are interpreted: compiling the code of some fifty jobs costs more than running them. The
# bound is a guess.
SMALL = 300_000
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt to, and every stage would be planned anew
    "spark.sql.shuffle.partitions": "1",
}


CONNECT_PORT = 15002  # of a Spark Connect server that is not told another
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 20.0  # for hooks of the JVM that remove its scratch directories; then it is killed


class NoSpark(PolydomoError):
    """pyspark is not installed, or no session could be made."""


def require() -> None:
    """Raises NoSpark with one line that says what to install."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise NoSpark("the pipeline needs pyspark: pip install 'polydomo[spark]'") from None


def build(
    master: str = "",
    remote: str = "",
    conf: "dict[str, str] | None" = None,
    name: str = "polydomo",
    progress: bool = False,
    quick: bool = False,
) -> "SparkSession":
    """A session. ``master`` is ``local[*]`` unless given; ``remote`` is a Spark Connect address (sc://...).

    ``quick`` is for work that is over in seconds.
    """
    require()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers would use whatever python3 is first on the path
    builder = SparkSession.builder.appName(name)
    settings = dict(QUIET)
    if progress and sys.stderr.isatty():
        settings["spark.ui.showConsoleProgress"] = "true"
    if remote:
        for key in ("spark.driver.memory", "spark.ui.enabled", "spark.ui.showConsoleProgress"):
            settings.pop(key)
        _heard(remote)
        builder = builder.remote(remote)
    else:
        os.environ["JAVA_HOME"] = java.find()
        local = not master or master.startswith("local")
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # what the JVM's compiler frees would else stay with the C library, in an arena for each of its threads
            os.environ.setdefault("MALLOC_ARENA_MAX", "2")
            settings["spark.driver.bindAddress"] = "127.0.0.1"
            settings["spark.driver.host"] = "127.0.0.1"
        builder = builder.master(master or "local[*]")
        if master.startswith("local-cluster") or not local:
            settings["spark.submit.pyFiles"] = str(package())
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={QUIETLY.as_uri()}"
    asked = dict(conf or {})
    java_options = "spark.driver.extraJavaOptions"
    if java_options in settings:
        # flags of the user's own take the place of ours: the JVM refuses two collectors
        asked[java_options] = f"{settings[java_options]} {asked.get(java_options, QUICK if quick else STEADY)}"
    for key, value in {**settings, **asked}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j and gRPC raise all sorts; what the user needs is one line
        raise NoSpark(f"no Spark session at {remote or master or 'local[*]'}: {str(error).splitlines()[0]}") from error
    return spark


def _heard(remote: str) -> None:
    """Raises NoSpark if nobody listens there: Spark's own client would try for over a minute, and say nothing meanwhile."""
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return  # the way is not the plain one
    try:
        place = urlsplit(remote)
        port = place.port or CONNECT_PORT
    except ValueError as error:
        raise NoSpark(f"not the address of a Spark Connect server: {remote} ({error})") from None
    if place.scheme != "sc" or not place.hostname:
        raise NoSpark(f"not the address of a Spark Connect server: {remote}; it would be like sc://host:{CONNECT_PORT}")
    try:
        socket.create_connection((place.hostname, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise NoSpark(
            f"no Spark session at {remote}: nobody answers at {place.hostname} port {port}: {error.strerror or error}"
        ) from None


def close(spark: "SparkSession") -> None:
    """Ends the session, and returns when its JVM is gone: what started us may look for processes left over."""
    spark.stop()
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return  # Spark Connect has no JVM of ours
    gateway.shutdown()
    process.stdin.close()  # at the end of its input the JVM exits
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = None  # another session starts another JVM


@contextmanager
def interpreted(spark: "SparkSession", small: bool) -> Iterator[None]:
    """Inside, the plans of small inputs are not compiled."""
    before = {key: spark.conf.get(key, None) for key in INTERPRETED} if small else {}
    for key in before:
        spark.conf.set(key, INTERPRETED[key])
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def package() -> Path:
    """This package as a zip for executors: a wheel is not importable there, the same file named .zip is."""
    source = Path(__file__).resolve().parent.parent
    path = Path(tempfile.mkdtemp(prefix="polydomo-spark-")) / "polydomo.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for root in (source, source.with_name("pyspark_polydomo")):
            for file in sorted(root.rglob("*.py")):
                packed.write(file, str(file.relative_to(source.parent)))
    return path
