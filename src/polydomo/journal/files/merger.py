"""Schedules merges in the writer: small segments of past hours, one group at a time, while the writer is idle."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from polydomo.journal.files.retention import StoredSegments
from polydomo.journal.files.segments import Segment
from polydomo.server import logs
from polydomo.server.logs import say

if TYPE_CHECKING:
    from polydomo.journal.files.merge import SegmentGroup

LOG = logs.get("journal")
LATEST = "~"  # sorts after every hour


class Stopped(Exception):
    """The merge was cancelled."""


class Merger:
    """Belongs to the writer's thread. pyarrow is imported by ``begin``."""

    def __init__(self, directory: Path, kept: StoredSegments) -> None:
        self._directory = directory
        self._kept = kept
        self._hour = ""  # of the newest segment of the run under way
        self._groups: list[list[SegmentGroup]] = []

    @property
    def pending(self) -> bool:
        return bool(self._groups)

    def begin(self, earlier: Iterable[int]) -> None:
        """Cleans up after a killed merge, and schedules merges of earlier runs."""
        from polydomo.journal.files import merge

        try:
            for problem in merge.remove_superseded(self._directory):
                say(LOG, logging.WARNING, "a journal segment is not read", why=problem)
        except Exception as error:
            self._failed(error)
        self._plan(earlier, LATEST)

    def published(self, segment: Segment) -> None:
        """The current run has a new segment. If it is the first of an hour, earlier hours are complete."""
        if segment.hour > self._hour:
            self._hour = segment.hour
            self._plan((segment.run,), segment.hour)

    def _plan(self, runs: Iterable[int], until: str) -> None:
        from polydomo.journal.files import merge

        self._groups += merge.plan(merge.batches(self._kept.of(runs, until)))

    def merge_next(self, go_on: Callable[[], bool]) -> None:
        """Merges one group. ``go_on`` is called between its parts; if it returns False, nothing is changed and no more is merged.

        After a failure, the segments stay unmerged and readable, only slower.
        """
        from polydomo.journal.files import merge

        def between() -> None:
            if not go_on():
                raise Stopped

        group = self._groups.pop()
        try:
            made = merge.merge(group, between)
        except Stopped:
            self._groups.clear()
        except merge.Unreadable as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # retention removes segments at any time
                self._failed(error)
            self._groups += merge.plan(merge.without(group, error.segment))
        except Exception as error:
            self._failed(error)
        else:
            self._kept.replace([(batch.hour, batch.run, batch.first) for batch in group], made)

    def _failed(self, error: Exception) -> None:
        say(LOG, logging.WARNING, "cannot merge journal segments", why=str(error), directory=str(self._directory))
