"""A broker's journal: opened before the broker starts, ticked by its event loop, closed after it has stopped."""

import logging
import os
import secrets
import time
from pathlib import Path

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.errors import PolydomoError, SettingError
from polydomo.journal.files import runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.files.writer import LOG, Writer
from polydomo.journal.ids import RUN_BITS, run_name
from polydomo.journal.levels import Levels
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.name_patterns import PatternMap
from polydomo.server.logs import say


class DirectoryLost(PolydomoError):
    """The journal's directory was removed and cannot be created again."""


class Journal:
    """``recorder`` is for the broker; ``attach`` begins the run."""

    def __init__(
        self,
        directory: Path,
        levels: Levels,
        name: str,
        wall: float,
        inner: Recorder | None = None,
        bounds: JournalBounds | None = None,
        bodies: "PatternMap[bool] | None" = None,
        attempts: int = limits.ATTEMPTS,
        trace_parts: bool = False,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        self.directory = directory.absolute()
        self._process = process  # of a broker that has several
        try:
            self._lock = runs.lock(self.directory, process)
            self._dead = runs.recover(self.directory, process, processes)
            run = secrets.randbits(RUN_BITS) or 1
            self._file = runs.RunFile(self.directory, run, process)
        except OSError as error:
            raise SettingError(f"data: cannot keep a journal in {self.directory}: {error.strerror or error}") from None
        self.run = Run(name, run, wall, attempts, limits.JOURNAL_BODY if bodies else 0)
        self.recorder = JournalRecorder(self.run, levels, inner, self._file.mark, bodies, trace_parts)
        self.writer = Writer(
            self.directory, self.recorder, self._file, bounds if bounds is not None else JournalBounds()
        )
        self.writer.process = process
        self.writer.processes = processes
        self._reported_dropped = 0
        self._flushed = 0.0
        self._handed = 0.0
        self._looked = 0.0  # when the directory was last seen to be there
        self.recorder.status = self.status

    def attach(self, broker: Broker) -> None:
        """Records the first rows: this run, and the rows that earlier runs lost."""
        recorder = self.recorder
        recorder.attach(broker)
        if self._dead:
            *earlier, last = self._dead
            for dead in earlier:
                recorder.missing(dead.run, dead.first, dead.last, how_it_ended(dead))
            recorder.begin(how_it_ended(last), last.run, last.first, last.last)
        else:
            recorder.begin("the first run")
        for dead in self._dead:
            if dead.lost:
                say(
                    LOG,
                    logging.WARNING,
                    "the journal lost rows",
                    run=run_name(dead.run),
                    rows=dead.lost,
                    first=dead.first,
                    last=dead.last,
                )
        self.writer.covered = [dead.path for dead in self._dead]
        self.writer.earlier = [dead.run for dead in self._dead]
        self.writer.start()

    def tick(self, eager: bool = True) -> None:
        """Called on the loop every ``JOURNAL_TICK`` seconds: passes collected events to the writer (once they are a second old, unless
        ``eager``), and records rows that could not be written."""
        recorder, writer = self.recorder, self.writer
        now = time.monotonic()
        if now >= self._looked + limits.JOURNAL_LOOK:
            self._looked = now
            if not runs.holds(self._lock, self.directory, self._process):
                self._make_again()
        if not self._file.kept and self._file.keep():
            recorder.count_in(self._file.mark)
        self._state_given_up()
        while recorder.queue.restate:
            run, first, last = recorder.queue.restate.popleft()
            recorder.missing(run, first, last, "stated again: the row that stated it was lost")
        self._report_dropped()
        if eager or now >= self._handed + limits.JOURNAL_GATHER:
            self._handed = now
            closed = recorder.peers.take_closed()
            recorder.hand_over()
            writer.forget_after(recorder.seq + 1, closed)  # no row after the next chunk refers to them
        if recorder.queue.chunks:
            writer.wake()

    def _state_given_up(self) -> None:
        """Counts the rows that the writer could not write, and records that they are missing."""
        while self.writer.given_up:
            first, last, why = self.writer.given_up.popleft()
            self.recorder.queue.dropped += last - first + 1
            self.recorder.missing(self.run.run, first, last, why)

    def _report_dropped(self) -> None:
        dropped = self.recorder.queue.dropped
        if dropped > self._reported_dropped:
            say(LOG, logging.ERROR, "journal rows dropped", rows=dropped - self._reported_dropped, in_all=dropped)
            self._reported_dropped = dropped

    def _make_again(self) -> None:
        """The directory was removed while in use: its lock and all its rows are gone. Creates it again. Raises DirectoryLost if that
        fails, or if another broker has locked it."""
        say(LOG, logging.ERROR, "the journal's directory was removed; creating it again", directory=str(self.directory))
        safe = self.writer.closed
        try:
            lock = runs.lock(self.directory, self._process)
            os.close(self._lock)
            self._lock = lock
            if self._file.keep():
                self.recorder.count_in(self._file.mark)
            self.writer.start_over()
        except (OSError, SettingError) as error:
            raise DirectoryLost(str(error)) from None
        if safe:
            self.recorder.missing(self.run.run, 1, safe, "the journal's directory was removed")

    def flush(self) -> int:
        """Closes the current segment soon; returns the sequence number of its last row."""
        self.tick()
        self.writer.flush()
        return self.recorder.seq

    def stop(self, reason: str = "the broker is shutting down") -> None:
        """Records the last row and writes everything to disk."""
        if not self.writer.is_alive() and (not self.recorder.seq or self.writer.ident is None):  # it never began
            self._file.close()
            self._file.path.unlink(missing_ok=True)
            os.close(self._lock)
            return
        self.tick()
        self.recorder.end(reason)
        done = self.writer.finish(limits.JOURNAL_CLOSE)
        given_up = list(self.writer.given_up)  # no row can state these now; the audit finds the gap
        self.recorder.queue.dropped += sum(last - first + 1 for first, last, _ in given_up)
        self._report_dropped()
        if done and self.writer.closed == self.recorder.seq:
            self._file.stopped()
        else:
            lost = self.recorder.seq - self.writer.closed
            say(
                LOG,
                logging.ERROR,
                "the last rows of the journal could not be written",
                rows=lost,
                why=given_up[-1][2] if given_up else self.writer.trouble or "no time",
            )
        if done:
            self._file.close()
            os.close(self._lock)

    def status(self, flush: bool = False) -> dict[str, object]:
        if flush and time.monotonic() >= self._flushed + limits.JOURNAL_FLUSH:
            self._flushed = time.monotonic()
            self.flush()
        return {
            "directory": str(self.directory),
            "level": self.recorder.levels.most,
            "run": run_name(self.run.run),
            "rows": self.recorder.seq,
            "safe": self.writer.closed,
            "dropped": self.recorder.queue.dropped,
            "trouble": self.writer.trouble,
        }


def how_it_ended(dead: runs.EarlierRun) -> str:
    """What the first row of the next run states about a run."""
    if dead.lost:
        ended = "ended normally" if dead.stopped else "ended without a final row"
        return f"run {run_name(dead.run)} before it {ended} and lost {dead.lost} rows"
    return f"run {run_name(dead.run)} before it lost no rows"
