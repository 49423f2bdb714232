"""``polydomo pipeline stream``: keeps the tables up to date while the journal grows.

A Structured Streaming query reads the names of new segments from the journal's directories, with a checkpoint in ``_polydomo/checkpoint``.
``foreachBatch`` loads them with the definitions and the commit of a batch run (``batch.py``), in one session.

The tables themselves record which segments they have (``_polydomo/units``). So a micro-batch that Spark repeats after a crash loads nothing
twice, one that was lost with its checkpoint is loaded by the next, and the tables are those of a batch run over the same journal.

A late segment updates its hour. The delay is limited (``late``); a later segment is reported in a line, and a batch run loads it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.journal import schema
from polydomo.journal.quantities import counted
from polydomo.pipeline import batch, delta, segments
from polydomo.pipeline.batch import Options, Tell
from polydomo.pipeline.commit import OWN, TableStore
from polydomo.pipeline.segments import DirectoryLister, FoundSegments, ProcessedRanges, begin_of, unit_of
from polydomo.pipeline.session import LazySpark
from polydomo.pipeline.summary import Summary, conclude

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL = 5.0  # seconds between micro-batches
LATE = 2 * 86400.0  # seconds
FEW = 8  # files of an hour that the queries of a micro-batch open
POLL = 0.2  # seconds between looks at a query that runs
FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"  # of Spark's source of files


@dataclass
class Streaming:
    """What to keep up to date, and how. ``step`` is called with every step of a commit: tests stop it there."""

    journals: Sequence[str]
    tables: str
    options: Options = field(default_factory=Options)
    session: "LazySpark | SparkSession | None" = None
    late: float = LATE
    tell: Tell = lambda line: None
    complain: Tell = lambda line: None
    step: Callable[[str], None] = lambda name: None
    problems: set[str] = field(default_factory=set)  # already printed
    lister: DirectoryLister = field(default_factory=DirectoryLister)
    number: int = 0  # of the next batch
    failure: BaseException | None = None

    def run(self, once: bool = False, interval: float = INTERVAL, stop: threading.Event | None = None) -> None:
        """Runs until ``stop`` is set or, with ``once``, until everything is loaded. A batch in progress is completed."""
        ended = stop or threading.Event()
        with LazySpark.of(self.session) as session:
            if once and not self._is_anything_new(session):
                return  # no JVM is started
            # a journal that is small now will not grow fast: its session compiles quickly
            there = segments.find(self.journals, lister=self.lister).segments
            spark = session.get(sum(one.rows for one in there if one.kind == schema.MESSAGES))
            session.combined.few = FEW
            query = self._query(spark, session, once, interval)
            try:
                while query.isActive and not ended.is_set():
                    query.awaitTermination(POLL)
            finally:
                self._end(query)
            if once:  # files that Spark saw before, but that are not in the tables: they could not be read then
                self._load(session)

    def _is_anything_new(self, session: LazySpark) -> bool:
        with TableStore(self.tables, self.step) as store:
            work = batch.Batch(
                store, segments.find(self.journals, lister=self.lister), self.options, session, self.tell, Summary()
            )
            return work.has_new()

    def _query(self, spark: "SparkSession", session: LazySpark, once: bool, interval: float) -> Any:
        names: DataFrame | None = None
        for root in segments.roots(self.journals):
            files = spark.readStream.format("binaryFile").schema(FILES).option("recursiveFileLookup", "true")
            found = files.option("pathGlobFilter", "*.parquet").load(root).select("path")
            names = found if names is None else names.unionAll(found)
        assert names is not None
        checkpoint = f"{TableStore(self.tables).root}/{OWN}/checkpoint"
        writer = names.writeStream.queryName("polydomo").option("checkpointLocation", checkpoint)
        writer = writer.foreachBatch(lambda frame, number: self._load(session))
        return (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval} seconds")
        ).start()

    def _load(self, session: LazySpark) -> None:
        """A micro-batch: loads all segments that are not in the tables."""
        try:
            self._report(self._batch(segments.find(self.journals, lister=self.lister), session))
        except BaseException as error:
            self.failure = error
            raise

    def _end(self, query: Any) -> None:
        """Stops the query between two micro-batches, and raises what a micro-batch raised."""
        busy = threading.Event()
        while (
            query.isActive
            and query.status["isTriggerActive"]
            and query.status["isDataAvailable"]
            and not busy.wait(POLL)
        ):
            pass
        query.stop()
        if self.failure is not None:
            raise self.failure
        if query.exception() is not None:
            raise PolydomoError(f"the stream failed: {str(query.exception()).splitlines()[0]}")

    def _report(self, summary: Summary) -> None:
        for problem in summary.problems:
            if problem not in self.problems:
                self.problems.add(problem)
                self.complain(problem)
        if summary.segments:
            self.tell(
                f"batch {self.number}: {counted(summary.segments, 'segment')} loaded, "
                f"in {counted(len(summary.units), 'hour')}. {summary.verdict()}"
            )
            self.number += 1

    def _batch(self, found: FoundSegments, session: LazySpark) -> Summary:
        summary = Summary()
        with TableStore(self.tables, self.step, delta.check(self.options.format, self.tables)) as store:
            summary.problems += found.problems
            work = batch.Batch(store, found, self.options, session, lambda line: None, summary)
            self._drop_late(work, summary)
            work.run()
            if summary.segments:
                conclude(store, summary)
        return summary

    def _drop_late(self, work: batch.Batch, summary: Summary) -> None:
        """Skips segments of hours that are too old and not in the tables."""
        newest = max(work.there, default="")
        if not newest or not work.known:
            return  # the first check loads everything
        limit = unit_of(begin_of(newest) - timedelta(seconds=self.late))
        for unit in [unit for unit in work.there if unit < limit]:
            taken = ProcessedRanges(work.known.get(unit, {}).get("segments", ()))
            late = [segment for segment in work.there[unit] if not taken.has(segment)]
            if late:
                work.there[unit] = [segment for segment in work.there[unit] if segment not in late]
                summary.problems += [
                    f"{segment.path}: skipped: too late for the stream; `polydomo pipeline run` loads it"
                    for segment in late
                ]
