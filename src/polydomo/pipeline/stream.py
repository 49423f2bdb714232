"""``polydomo pipeline stream``: keeps the tables up to date while the journal grows.

Every few seconds, the journal is compared with the list of loaded segments in the tables, and new segments are loaded as a batch
(``batch.py``). There is no other record of what has been read: a stream that is killed leaves consistent tables, the next one continues
from there, and the tables are the same as those of a batch run over the same journal.

A late segment updates its hour. The delay is limited (``late``); a later segment is reported in a line, and a batch run loads it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from polydomo.pipeline import batch, segments
from polydomo.pipeline.batch import Options, Summary, Tell
from polydomo.pipeline.commit import Store
from polydomo.pipeline.executors import Executor, InProcess
from polydomo.pipeline.segments import DirectoryLister, FoundSegments, ProcessedRanges, begin_of, unit_of

INTERVAL = 5.0  # seconds between checks of the journal
LEAST_PAUSE = 0.1  # share of the interval to wait after a batch that took longer
LATE = 2 * 86400.0  # seconds


@dataclass
class Streaming:
    """What to keep up to date, and how. ``step`` is called with every step of a commit: tests stop it there."""

    journals: Sequence[str]
    tables: str
    options: Options = field(default_factory=Options)
    executor: Executor = field(default_factory=InProcess)
    late: float = LATE
    tell: Tell = lambda line: None
    complain: Tell = lambda line: None
    step: Callable[[str], None] = lambda name: None
    problems: set[str] = field(default_factory=set)  # already printed
    lister: DirectoryLister = field(default_factory=DirectoryLister)

    def run(self, once: bool = False, interval: float = INTERVAL, stop: threading.Event | None = None) -> None:
        """Runs until ``stop`` is set or, with ``once``, until everything is loaded. A batch in progress is completed."""
        ended = stop or threading.Event()
        seen: frozenset[str] | None = None  # segments at the last check
        number = 0
        while not ended.is_set():
            began = time.monotonic()
            found = segments.find(self.journals, lister=self.lister)
            now = frozenset(segment.id for segment in found.segments)
            if now != seen:
                summary = self._batch(found)
                self._report(number, summary)
                number += bool(summary.segments)
                seen = now
                if once and not summary.segments:
                    return
            elif once:
                return
            if not once:  # measured from check to check, so that a slow batch does not delay the next one further
                ended.wait(max(interval * LEAST_PAUSE, began + interval - time.monotonic()))

    def _report(self, number: int, summary: Summary) -> None:
        for problem in summary.problems:
            if problem not in self.problems:
                self.problems.add(problem)
                self.complain(problem)
        if summary.segments:
            self.tell(
                f"batch {number}: {batch.counted(summary.segments, 'segment')} loaded, "
                f"in {batch.counted(len(summary.units), 'hour')}. {summary.verdict()}"
            )

    def _batch(self, found: FoundSegments) -> Summary:
        summary = Summary()
        with Store(self.tables, self.step) as store:
            summary.problems += found.problems
            work = batch.Batch(store, found, self.options, self.executor, lambda line: None, summary)
            self._drop_late(work, summary)
            work.run()
            if summary.segments:
                batch.conclude(store, summary)
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
