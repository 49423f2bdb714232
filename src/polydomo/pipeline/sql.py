"""Spark SQL that the tables share: units of time, buckets of durations, percentiles."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from polydomo.journal import histogram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_US = 3_600_000_000
BRIDGE = "bridge"  # the protocol of a worker that is another broker

# Protocols of the broker's own workers. They hold requests whose reply is stored or comes from a run that several requests
# share; the run is a request of its own. So they count neither as workers of the service nor as work.
BROKERS_OWN = "('memoised', 'keyed')"
# Protocols of requests that the broker sent itself: attempts of jobs, runs that requests share.
SENT_BY_BROKER = "('job', 'memoised', 'keyed')"


# A hint of queries over unions. In small batches it puts all rows into one partition, so that nothing is shuffled: a query is one stage.
GATHER = "/*gather*/"
GATHERED = "spark.polydomo.gathered"  # the setting of a session that says so
_SHUFFLES = re.compile(r"/\*gather\*/|/\*\+ REPARTITION\([^)]*\) \*/")


# What a small batch needs least is stages: its frames have one partition, and are joined where they are.
# Spark would divide a partition that it estimates to be large, which it does for each result of several joins.
_SMALL = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.maxSinglePartitionBytes": "1024p"}
GATHERED_ROWS = 200_000  # rows of the journal up to which a batch is not divided among tasks
# On a local session with two cores, the audit and the tables keep both busy without dividing: a million and ten million rows took the same
# time in 38 stages as in 86. The more cores there are, the earlier a batch is divided.
GATHERED_CORES_ROWS = 30_000_000
_BEFORE = "spark.polydomo.before."  # the settings of the session before


def context_of(spark: "SparkSession") -> Any:
    """The Spark context of a session; Spark Connect has none."""
    return getattr(spark, "_sc", None)


def is_local(spark: "SparkSession") -> bool:
    context = context_of(spark)
    return context is not None and bool(context.master.startswith("local"))


def describe(spark: "SparkSession", what: str) -> None:
    """Names the queries that this thread starts from now on, in Spark's web pages and for lineage tools."""
    context = context_of(spark)
    if context is not None:
        context.setJobDescription(f"polydomo: {what}")


@contextmanager
def description_kept(spark: "SparkSession") -> Iterator[None]:
    """After this block, queries of the user's thread have the name that they had before."""
    context = context_of(spark)
    before = None if context is None else context.getLocalProperty("spark.job.description")
    try:
        yield
    finally:
        if context is not None:
            context.setJobDescription(before)


def is_gathered(spark: "SparkSession") -> bool:
    return spark.conf.get(GATHERED, "") == "true"


def most_gathered(spark: "SparkSession") -> int:
    """Up to how many rows of the journal a batch is computed in one partition."""
    if not is_local(spark):
        return GATHERED_ROWS
    return max(GATHERED_ROWS, GATHERED_CORES_ROWS // int(spark.sparkContext.defaultParallelism))


def gather(spark: "SparkSession", small: bool) -> None:
    """Sets the session up for a small batch, or for any other."""
    if small == is_gathered(spark):
        return
    spark.conf.set(GATHERED, str(small).lower())
    for name, value in _SMALL.items():
        if small:
            spark.conf.set(_BEFORE + name, str(spark.conf.get(name)))
            spark.conf.set(name, value)
        else:
            spark.conf.set(name, str(spark.conf.get(_BEFORE + name)))


_VIEWS = "_polydomo_views"  # of a session: the views of ``views_kept``
_VIEW = "_polydomo_view"  # of a frame: its view


@contextmanager
def views_kept(spark: "SparkSession") -> Iterator[None]:
    """Queries name frames as views. In this block a frame becomes a view once, not once for each query over it: to make one, Spark
    runs a command, which it plans as it plans a query."""
    session: Any = spark
    if "_jsparkSession" not in vars(session):  # Spark Connect sends frames inside the query
        yield
        return
    views: list[str] = []
    setattr(session, _VIEWS, views)
    try:
        yield
    finally:
        delattr(session, _VIEWS)
        for name in views:
            session.catalog.dropTempView(name)


def _view(frame: Any, views: list[str]) -> str:
    name: str | None = vars(frame).get(_VIEW)
    if name not in views:
        name = f"polydomo_{uuid.uuid4().hex[:12]}"
        frame.createTempView(name)
        views.append(name)
        setattr(frame, _VIEW, name)
    assert name is not None
    return name


def sql(text: str, **frames: "DataFrame") -> "DataFrame":
    """Runs a query over DataFrames, which it names in braces."""
    session: Any = next(iter(frames.values())).sparkSession
    if is_gathered(session):
        # a hash join in one partition needs no other stage
        text = _SHUFFLES.sub("/*+ COALESCE(1) */", text).replace("/*+ BROADCAST(", "/*+ SHUFFLE_HASH(")
    text = text.replace(GATHER, "")
    views = vars(session).get(_VIEWS)
    made: DataFrame
    if views is None:
        made = session.sql(text, **frames)
    else:
        made = session.sql(text.format(**{name: _view(frame, views) for name, frame in frames.items()}))
    return made


def gathered(frame: "DataFrame") -> "DataFrame":
    """The frame; in small batches, in one partition."""
    return frame.coalesce(1) if is_gathered(frame.sparkSession) else frame


def by_run(values: Mapping[int, int]) -> str:
    """SQL for a value of each run, 0 if there is none. A map is data: Spark compiles the query once for all values."""
    known = ", ".join(f"{run}L, {value}L" for run, value in values.items() if value)
    return f"coalesce(try_element_at(map({known}), run), 0L)" if known else "0L"


def hour_of(time: str) -> str:
    """The number of the hour of a timestamp, counted from 1970."""
    return f"(unix_micros({time}) div {HOUR_US})"


def window_of(hour: str) -> str:
    """The beginning of an hour that is given by its number."""
    return f"timestamp_seconds({hour} * 3600)"


def placed(time: str) -> str:
    """The columns ``date`` and ``hour`` of a row."""
    return f"to_date({time}) AS date, hour({time}) AS hour"


def bucket(us: str) -> str:
    """The logarithmic bucket of a duration."""
    return f"CAST(floor(ln(greatest({us}, 1)) / ln({histogram.RATIO}D)) AS INT)"


def percentile(entries: str, total: str, share: float) -> str:
    """The duration that ``share`` of all do not exceed, from a sorted array of (bucket, n): the middle of the bucket with the rank."""
    rank = f"greatest(1L, CAST(ceil({share}D * {total}) AS BIGINT))"
    walk = (
        f"aggregate({entries}, named_struct('left', {rank}, 'at', -1), (a, e) -> named_struct("
        "'left', a.left - e.n, 'at', IF(a.left > 0, e.bucket, a.at)), a -> a.at)"
    )
    return f"IF(size({entries}) > 0, pow({histogram.RATIO}D, {walk} + 0.5D), 0D)"
