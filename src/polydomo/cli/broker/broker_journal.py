"""The journal of the broker that ``polydomo up`` runs: opens it if configured, ticks it from the event loop, closes it at shutdown."""

import asyncio
import errno
import importlib.util
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from polydomo.broker.observe.recorder import Recorder
from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import JOURNAL_BODY, JOURNAL_TICK, STORY_LOOK, STORY_TIME
from polydomo.model.name_patterns import PatternMap
from polydomo.server import logs
from polydomo.server.data_directory import shares_of
from polydomo.server.event_log import EventLog
from polydomo.server.processes.plan import ProcessPlan
from polydomo.server.resources import REMEDIES
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import DEFAULT, Settings

if TYPE_CHECKING:
    from polydomo.journal.journal import Journal

LOG = logs.get("journal")
NEEDED = ("numpy", "pyarrow")


class JournalOff(NamedTuple):
    """Why no journal is kept although the default settings ask for one."""

    level: int  # log level of the message
    why: str


class BrokerJournal:
    """The journal of a running broker, or none."""

    def __init__(self, journal: "Journal | JournalOff | None" = None, bodies: PatternMap[bool] | None = None) -> None:
        self._without = journal if isinstance(journal, JournalOff) else None
        journal = None if isinstance(journal, JournalOff) else journal
        self.journal = journal
        self._bodies = bodies
        self.recorder: Recorder = EventLog() if journal is None else journal.recorder
        self._timer: asyncio.TimerHandle | None = None
        self.stop_broker = end_process  # called if the data directory is gone

    def begin(self, server: BrokerServer) -> None:
        """Starts the journal; called in the event loop before the broker listens."""
        from polydomo.journal.recording.chunk import Run
        from polydomo.journal.recording.tap import Tap

        broker = server.broker
        if self.journal is not None:
            # Importing pyarrow takes most of a second of CPU, so do it before the broker accepts connections. If it fails (no file
            # descriptor left), the writer tries again.
            with suppress(Exception):
                import_module("polydomo.journal.files.parquet")
            broker.now = time.monotonic()
            try:
                self.journal.attach(broker)
                server.find_story = self._find_story
                server.search_journal = self._search
            except RuntimeError as error:  # the writer thread cannot be started
                raise SettingError(f"cannot start the journal: {error}; {REMEDIES[errno.EAGAIN]}") from None
        self._tap = Tap(broker, self.recorder, Run("", 0, broker.wall, max_body=JOURNAL_BODY), self._bodies)
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(JOURNAL_TICK, self._tick)

    async def _find_story(self, request: str) -> "dict[str, object] | None":
        """The story of a finished request. Flushes rows in memory to disk first."""
        from polydomo.journal.reading.reader import Reader
        from polydomo.journal.reading.story_row import find_story

        await self._flush()
        return await self._loop.run_in_executor(None, lambda: find_story(Reader([self._directory()]), request))

    async def _search(self, parameters: "dict[str, str]") -> "dict[str, object]":
        """One page of finished requests. Flushes rows in memory to disk first."""
        from polydomo.journal.reading import finished
        from polydomo.journal.reading.reader import Reader

        finished.read_filter(parameters, time.time())  # an invalid query does not wait
        if "before" not in parameters:
            await self._flush()
        reader = Reader([self._directory()])
        return await self._loop.run_in_executor(None, lambda: finished.answer(reader, parameters, time.time()))

    def _directory(self) -> Path:
        return Path(self._server.settings.data) / "journal"

    async def _flush(self) -> None:
        recorder = self._server.broker.recorder
        wanted = 0
        for _ in range(round(STORY_TIME / STORY_LOOK)):  # looks, not a time of the clock: this process may stand still
            if self.journal is None:
                break
            status: dict[str, Any] = recorder.journal(True)
            wanted = wanted or status.get("rows", 0)
            if status.get("safe", 0) >= wanted or status.get("trouble"):
                break
            await asyncio.sleep(STORY_LOOK)

    def tell(self) -> None:
        """Logs why no journal is kept although the default asks for one; called once the broker listens."""
        if self._without is not None:
            logs.say(LOG, self._without.level, "no journal is kept", why=self._without.why)

    def _tick(self) -> None:
        self._server.wake()  # tap events are sent at the end of this turn
        try:
            if self.journal is not None:
                self.journal.tick(eager=False)
            self._tap.tick()
        except PolydomoError as error:
            logs.say(LOG, logging.CRITICAL, "stopping the broker: the data directory is gone", why=str(error))
            self.stop_broker()
            return
        except Exception:
            logs.trouble(LOG, "internal error", during="writing to the journal")
        self._timer = self._loop.call_later(JOURNAL_TICK, self._tick)

    async def end(self) -> None:
        """Writes the remaining rows. The event loop keeps running, so a second signal is still handled."""
        if self._timer is not None:
            self._timer.cancel()
        if self.journal is not None:
            self._server.broker.record_to(EventLog())  # from here on, events go to the log only
            journal, self.journal = self.journal, None
            try:
                await asyncio.get_running_loop().run_in_executor(None, journal.stop)
            except RuntimeError:  # a thread cannot be started
                journal.stop()


def end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def open_here(settings: Settings, plan: ProcessPlan | None = None) -> BrokerJournal:
    """Opens the journal that the settings ask for. Raises SettingError if it was set explicitly and cannot be opened."""
    bodies: PatternMap[bool] = settings.by_service("bodies")
    return BrokerJournal(_open(settings, bodies, plan if plan is not None else ProcessPlan()), bodies)


@contextmanager
def open_journal(settings: Settings, plan: ProcessPlan | None = None) -> Iterator[BrokerJournal]:
    """The same for a ``with`` block, which stops the journal if the broker does not."""
    kept = open_here(settings, plan)
    try:
        yield kept
    finally:
        if kept.journal is not None:  # the broker failed to start, or stopped on an error
            kept.journal.stop("the broker ended early")


def _open(settings: Settings, bodies: PatternMap[bool], plan: ProcessPlan) -> "Journal | JournalOff | None":
    wanted = settings.journal
    levels: PatternMap[str] = settings.by_service("journal")
    if wanted.level == "off" and not any(level != "off" for level in levels.values.values()):
        return None
    asked = settings.sources.get("journal.level", DEFAULT)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        remedy = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed (pip install 'polydomo[journal]')"
        if asked != DEFAULT:
            raise SettingError(f"journal.level ({asked}): the journal cannot record {wanted.level}: {remedy}")
        return JournalOff(logging.INFO, remedy)
    from polydomo.journal.files.retention import JournalBounds
    from polydomo.journal.journal import Journal
    from polydomo.journal.levels import Levels

    try:
        return Journal(
            Path(settings.data) / "journal",
            Levels(wanted.level, levels),
            broker_name(settings, plan),
            time.time() - time.monotonic(),
            EventLog(),
            JournalBounds(keep_bytes=journal_bytes(settings, plan), keep_age=wanted.keep_age),
            bodies,
            settings.attempts,
            wanted.trace_parts,
            plan.index,
            plan.count,
        )
    except SettingError as error:
        if asked != DEFAULT:
            raise
        return JournalOff(logging.WARNING, str(error))  # a second broker in the same directory runs without a journal


def journal_bytes(settings: Settings, plan: ProcessPlan) -> int:
    """The most bytes of the journal: those of the setting, or its share of the disk. All processes of a broker write one journal, each its
    own segments, and each removes the oldest."""
    share = shares_of(settings.data, settings.limits.max_disk).journal
    return min(settings.journal.keep_bytes, share) if share else settings.journal.keep_bytes


def broker_name(settings: Settings, plan: ProcessPlan) -> str:
    """In the journal. Each process of a broker has a name of its own, since each has its own runs."""
    name = settings.journal.name or f"{socket.gethostname()}:{settings.listeners()[0].address.port}"
    return f"{name}#{plan.index}" if plan.index else name
