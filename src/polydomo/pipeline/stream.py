"""``polydomo pipeline stream``: the tables kept up to date while the journal grows.

Structured Streaming watches the journal with its file source and remembers in a checkpoint which segments it has handed
over. What is done with them is the batch run's own work (``batch.py``): it compares the journal with what the tables say
they hold, and makes the hours that are touched anew. So a batch that is handed over twice, which the checkpoint allows,
finds nothing to do the second time; a driver that is killed at any moment leaves whole tables behind; and the tables are
the same as a batch run's over the same journal.

A late segment corrects the hour that it belongs to. How late it may be is bounded (``late``), so that neither the source's
memory of segments nor the work grows with the age of the journal; what is later is named in a line, and a batch run takes
it in.
"""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.pipeline import batch, segments
from polydomo.pipeline.batch import Summary, Tell
from polydomo.pipeline.commit import OWN, PARQUET, Store
from polydomo.pipeline.segments import Found, NoJournal
from polydomo.pipeline.tables.capacity import Objective

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL = 5.0  # seconds between two looks at the journal
LATE = 2 * 86400.0  # seconds
LOOK = 1  # seconds between two looks at whether to stop
NOTED = 10.0  # ... that Spark may take to note in its checkpoint that a batch is done


class Stopped(PolydomoError):
    """Ends Spark's query. The checkpoint does not have the batch then: the next stream is handed it again.

    Short, and without what it came of: Spark searches the text with an expression that fails, in a thousand lines, on a long one.
    """


@dataclass
class Streaming:
    """What to keep up to date, and how. ``step`` hears every step of a commit: tests stop it there."""

    spark: "SparkSession"
    journals: Sequence[str]
    tables: str
    format: str = PARQUET
    late: float = LATE
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    tell: Tell = lambda line: None
    complain: Tell = lambda line: None
    step: Callable[[str], None] = lambda name: None
    problems: set[str] = field(default_factory=set)  # those told already
    failure: BaseException | None = None
    stopping: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)  # held while a batch is made

    def run(self, once: bool = False, interval: float = INTERVAL, stop: threading.Event | None = None) -> None:
        """Until ``stop`` is set or, with ``once``, until all that is there has been taken in."""
        with Store(self.spark, self.tables, self.format):
            pass  # what a driver before was killed in the middle of is finished, even if there is nothing new
        writer = self._source().writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint())
        writer = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds")
        )
        query = writer.start()
        try:
            while not query.awaitTermination(LOOK):
                if stop is not None and stop.is_set():
                    self._finish(query)
                    break
        except Exception as error:  # Spark's own wraps ours, with a page of Java around it
            raise self.failure or PolydomoError(f"the stream ended: {str(error).splitlines()[0]}") from None
        finally:
            query.stop()

    def _finish(self, query: "StreamingQuery") -> None:
        """Lets the batch that is being made come to its end: Spark tells of one that is interrupted in a thousand lines."""
        self.stopping = True
        with self.busy:
            pass
        end = time.monotonic() + NOTED
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
            time.sleep(0.05)

    def _checkpoint(self) -> str:
        root = self.tables.rstrip("/") if "://" in self.tables else str(Path(self.tables).absolute())
        return f"{root}/{OWN}/stream"

    def _source(self) -> "DataFrame":
        """Paths of new segments. No column of theirs is asked for, so that only footers are read; torn ones are told of by the batch."""
        made: DataFrame | None = None
        for journal in self.journals:
            path = journal if segments.has_scheme(journal) else str(_directory(journal))
            reader = self.spark.readStream.schema("time TIMESTAMP, run BIGINT, seq BIGINT").option(
                "recursiveFileLookup", "true"
            )
            reader = reader.option("ignoreMissingFiles", "true")  # merged since they were listed
            reader = reader.option("ignoreCorruptFiles", "true").option("maxFileAge", f"{round(self.late)}s")
            found = reader.parquet(path).selectExpr("_metadata.file_path AS path")
            made = found if made is None else made.union(found)
        assert made is not None
        return made

    def _take(self, fresh: "DataFrame", number: int) -> None:
        """One micro-batch. What is fresh is not looked at: the batch compares names, and reads a torn segment's footer to tell of it."""
        with self.busy:
            if self.stopping:
                raise Stopped("the stream was told to stop")
            try:
                summary = self._batch()
            except BaseException as error:
                self.failure = error
                raise Stopped("a batch failed") from None
        for problem in summary.problems:
            if problem not in self.problems:
                self.problems.add(problem)
                self.complain(problem)
        if summary.segments:
            self.tell(
                f"batch {number}: {batch.counted(summary.segments, 'segment')} taken in, "
                f"in {batch.counted(len(summary.units), 'hour')}. {summary.verdict()}"
            )

    def _batch(self) -> Summary:
        summary = Summary()
        with Store(self.spark, self.tables, self.format, self.step) as store:
            found = segments.find(self.spark, self.journals)
            summary.problems += found.problems
            self._drop_late(found, store.units(), summary)
            work = batch.Batch(self.spark, store, found, None, None, self.objectives, lambda line: None, summary)
            work.early = True
            work.run()
            batch.conclude(store, summary)
        return summary

    def _drop_late(self, found: Found, known: Mapping[str, Any], summary: Summary) -> None:
        """Leaves out what belongs to hours that are too long ago, and is not in the tables."""
        newest = max((segment.unit for segment in found.segments), default="")
        if not newest or not known:
            return  # the first look takes in all there is
        limit = (
            f"{datetime.strptime(newest, '%Y-%m-%d/%H').replace(tzinfo=UTC) - timedelta(seconds=self.late):%Y-%m-%d/%H}"
        )
        taken = {unit: segments.ranges(had.get("segments", ())) for unit, had in known.items()}
        late = [
            segment
            for segment in found.segments
            if segment.unit < limit and not segments.covered(segment, taken.get(segment.unit, {}))
        ]
        found.segments = [segment for segment in found.segments if segment not in late]
        summary.problems += [
            f"{segment.path}: left out: too late for the stream; `polydomo pipeline run` takes it in"
            for segment in late
        ]


def stop_on_signals() -> threading.Event:
    """Set by SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _directory(journal: str) -> Path:
    directory = Path(journal.removeprefix("file://"))
    if not directory.is_dir():
        raise NoJournal(f"there is no journal in {directory}: no such directory")
    if not list(directory.glob("kind=*")) and (directory / "journal").is_dir():
        directory = directory / "journal"  # the data directory of a broker was named
    return directory.absolute()
