"""The writer: a thread that turns chunks into Parquet segments, publishes them, merges them and applies retention.

A segment is written under a name that begins with a dot, which every reader ignores, synced, and renamed. The files of
one batch, one of each kind, are all on disk before the first is renamed. A failed write is retried while there is space
in the queue of chunks; then the rows are dropped, and a row states which.
"""

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from polydomo import limits
from polydomo.journal.files.merger import Merger
from polydomo.journal.files.retention import AgeClock, JournalBounds, StoredSegments
from polydomo.journal.files.runs import RunFile
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.server import logs
from polydomo.server.logs import say

if TYPE_CHECKING:
    from polydomo.journal.files.parquet import PendingRows

LOG = logs.get("journal")


class Writer(threading.Thread):
    def __init__(self, directory: Path, recorder: JournalRecorder, file: RunFile, bounds: JournalBounds) -> None:
        super().__init__(name="polydomo-journal", daemon=True)
        self.directory = directory
        self.recorder = recorder
        self.file = file
        self.bounds = bounds
        self.closed = 0  # sequence number of the last row on disk
        self.written = 0  # rows, in all
        self.given_up: deque[tuple[int, int, str]] = deque()  # rows that could not be written; the loop records them
        self.trouble = ""  # why nothing can currently be written
        self.earlier: list[int] = []  # runs before this one, whose segments may be merged
        self.covered: list[Path] = []  # files of earlier runs, removed once the row that states their losses is on disk
        self.process = 0  # of a broker that has several, which write to one directory ...
        self.processes = 1
        self._listed = time.monotonic()  # when the directory was last read
        self._batch: PendingRows | None = None  # rows for the next segment
        self._wake = threading.Event()
        self._flush = False
        self._leave = False
        self._doubted = False  # the clock jumped, and that was logged
        self._kept = StoredSegments(directory)
        self._clock = AgeClock(self._kept.newest, time.time(), time.monotonic())
        self._merger = Merger(directory, self._kept)
        # Connections to forget once all rows up to a number have been read.
        self._forget: deque[tuple[int, list[int]]] = deque()

    # --- for the loop ------------------------------------------------------------------------------------------------------

    @property
    def has_rows(self) -> bool:
        """Whether rows wait for the next segment."""
        return self._batch is not None

    def wake(self) -> None:
        self._wake.set()

    def flush(self) -> None:
        """Closes the segment early."""
        self._flush = True
        self._wake.set()

    def finish(self, timeout: float) -> bool:
        """Writes all queued chunks and ends. False if that took longer than the timeout; time in which the process was suspended is not
        counted."""
        self._leave = True
        self._wake.set()
        left = timeout
        while self.is_alive() and left > 0.0:
            self.join(min(left, limits.JOURNAL_JOIN))
            left -= limits.JOURNAL_JOIN
        return not self.is_alive()

    def start_over(self) -> None:
        """The directory was removed and created again, so it is empty."""
        self._kept = StoredSegments(self.directory)
        self._merger = Merger(self.directory, self._kept)

    def forget_after(self, seq: int, connections: list[int]) -> None:
        if connections:
            self._forget.append((seq, connections))

    # --- the thread --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        if not self._load():
            return
        self._sweep()
        self._merger.begin(self.earlier if self.bounds.merge else ())
        while True:
            leave = self._leave
            if not self.recorder.queue.chunks and not leave:
                if self._merger.pending:
                    self._merger.merge_next(self._between_parts)
                else:
                    self._wake.wait(self._patience())
            self._wake.clear()
            self._safely(self._work)
            if leave:
                self._safely(self._close)
                return

    def _safely(self, do: Callable[[], None]) -> None:
        """After any error the broker continues, and the loss is recorded."""
        try:
            do()
        except Exception as error:
            logs.trouble(LOG, "internal error", during="writing the journal")
            self._give_up(str(error))

    def _load(self) -> bool:
        """Imports pyarrow and what uses it in this thread, so that the broker starts sooner. If the import fails, for example because no
        file descriptor is left, it is retried. False if the broker stopped before it succeeded."""
        while True:
            try:
                from polydomo.journal.files import merge, parquet  # noqa: F401 - the merger imports ``merge`` when it is used
            except Exception as error:  # an import that broke off may fail in any way
                if not self.trouble:
                    say(LOG, logging.ERROR, "cannot write the journal", why=str(error), directory=str(self.directory))
                self.trouble = str(error)
                if self._leave:
                    return False
                time.sleep(limits.JOURNAL_RETRY)
                continue
            self._parquet = parquet
            return True

    def _patience(self) -> float:
        if self._batch is None:
            return 3600.0
        return max(0.0, self._batch.since + self.bounds.roll_seconds - time.monotonic())

    def _work(self) -> None:
        line = self.recorder.queue.chunks
        while line:
            try:
                chunk = line.popleft()
            except IndexError:  # the loop dropped it
                break
            try:
                made = self._parquet.tables(self.recorder.run, chunk, self.recorder.who)
            except Exception as error:  # this chunk is lost; those before and after it are not
                logs.trouble(LOG, "internal error", during="writing the journal", rows=chunk.last - chunk.first + 1)
                self.given_up.append((chunk.first, chunk.last, f"{type(error).__name__}: {error}"))
                self.recorder.queue.restate.extend(
                    (s.covers_run, s.covers_first, s.covers_last) for s in chunk.steps if s.covers_run
                )
                continue
            while self._forget and self._forget[0][0] <= chunk.last:
                self.recorder.peers.forget(self._forget.popleft()[1])
            for part, first, last in self._parquet.by_hour(made, chunk.first, chunk.last):
                if self._batch is not None and (
                    self._batch.hour != self._parquet.hour_of(part) or first != self._batch.last + 1
                ):
                    self._close()  # a batch has no hole: its name says what is in it
                if self._batch is None:
                    self._batch = self._parquet.PendingRows()
                self._batch.add(part, first, last)
                if self._batch.rows >= self.bounds.roll_rows or self._batch.bytes >= self.bounds.roll_bytes:
                    self._close()
        flush, self._flush = self._flush, False
        if self._batch is not None and (flush or time.monotonic() >= self._batch.since + self.bounds.roll_seconds):
            self._close()

    def _close(self) -> None:
        """Writes and publishes the batch; retries as long as the queue behind it is short."""
        batch = self._batch
        if batch is None:
            return
        while True:
            try:
                if not self.file.kept:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                published = self._parquet.publish(self.directory, self.recorder.run.run, batch)
            except Exception as error:
                why = self._parquet.failure(error)
                if not self.trouble:
                    say(LOG, logging.ERROR, "cannot write the journal", why=why, directory=str(self.directory))
                self.trouble = why
                if self._leave or len(self.recorder.queue.chunks) * 2 > limits.JOURNAL_CHUNKS:
                    self._give_up(why)
                    return
                time.sleep(limits.JOURNAL_RETRY)
                continue
            break
        if self.trouble:
            say(LOG, logging.WARNING, "the journal can be written again", directory=str(self.directory))
            self.trouble = ""
        self.closed = batch.last
        self.file.closed(batch.last)
        self.written += batch.rows
        self._batch = None
        for path in self.covered:
            path.unlink(missing_ok=True)
        self.covered = []
        self._kept.add(published)
        self._sweep()
        if self.bounds.merge:
            self._merger.published(published[0])

    def _sweep(self) -> None:
        """Applies retention, and logs it."""
        if self.process:
            return  # process 0 does it for all
        if self.processes > 1 and time.monotonic() >= self._listed + limits.JOURNAL_LIST and not self._merger.pending:
            self._listed = time.monotonic()
            self._kept.list_again()
        now = self._clock.read(time.time(), time.monotonic())
        if self._clock.doubted and not self._doubted:
            say(
                LOG,
                logging.WARNING,
                "the clock has jumped: journal segments are not removed by age until the clock is steady",
                steady_for=limits.JOURNAL_CLOCK_TRUST,
            )
        self._doubted = self._clock.doubted
        removed = self._kept.sweep(self.bounds, now)
        if removed.files:
            say(
                LOG,
                logging.INFO,
                "journal segments removed",
                files=removed.files,
                bytes=removed.bytes,
                until=removed.until,
                why=removed.why,
            )

    def _give_up(self, why: str) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            self.given_up.append((batch.first, batch.last, why))
            self.recorder.queue.restate.extend(batch.accounts())

    def _between_parts(self) -> bool:
        """Writes new rows during a merge. Returns False if the merge must be aborted, because the broker is shutting down."""
        if self.recorder.queue.chunks or self._patience() <= 0.0:
            self._safely(self._work)
        return not self._leave
