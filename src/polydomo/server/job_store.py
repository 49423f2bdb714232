"""The job store of a running broker: opens the store from the settings, runs it in a thread, and passes results to the event loop."""

import asyncio
import contextlib
import importlib.util
import logging
import socket
import time
import zoneinfo
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path
from urllib.parse import urlsplit

from polydomo.broker.broker import Broker
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.ops import Loaded
from polydomo.broker.jobs.policy import JobPolicy
from polydomo.errors import SettingError
from polydomo.limits import JOBS_CLOCK_STEP, STORE_OPENING, STORE_REACHED
from polydomo.model.name_patterns import PatternMap
from polydomo.model.retry_policy import Backoff
from polydomo.server import logs
from polydomo.server.data_directory import shares_of
from polydomo.server.logs import say, trouble
from polydomo.server.settings.services import key_of
from polydomo.server.settings.settings import DEFAULT, Settings
from polydomo.stores.backend import Backend
from polydomo.stores.sqlite import SqliteBackend
from polydomo.stores.thread import LeaseTimes, Owner, StoreThread
from polydomo.stores.urls import without_password

LOG = logs.get("jobs")

OFF = "off"
SQLITE = "sqlite"
POSTGRESQL = ("postgresql", "postgres")
FILE = "jobs.db"


def backend_of(settings: Settings) -> Backend | None:
    """The store from the settings; None if jobs are off. Raises SettingError."""
    url = settings.store
    source = settings.sources.get("store", DEFAULT)
    if url == OFF:
        for pattern in settings.chosen("durable"):
            raise SettingError(f"{key_of(pattern, 'durable')}: needs a job store, but store ({source}) is off")
        return None
    if url == SQLITE:
        return SqliteBackend(Path(settings.data) / FILE)
    if url.startswith("sqlite:"):
        return SqliteBackend(Path(url.removeprefix("sqlite:").removeprefix("//")))
    if urlsplit(url).scheme in POSTGRESQL:
        if importlib.util.find_spec("psycopg") is None:
            raise SettingError(f"store ({source}): psycopg is not installed (pip install 'polydomo[postgresql]')")
        from polydomo.stores.postgres import PostgresBackend

        return PostgresBackend(url)
    raise SettingError(
        f"store ({source}): {without_password(url)!r} must be sqlite, sqlite:/path/to/jobs.db, postgresql://user@host/database, or off"
    )


def policy_of(settings: Settings) -> JobPolicy:
    durable = settings.durable
    policy = JobPolicy()
    policy.backoff = Backoff(durable.attempts, durable.backoff_first, max(durable.backoff_first, durable.backoff_most))
    retries = settings.by_service("retries").values
    usual = policy.backoff
    policy.backoffs = PatternMap({name: Backoff(tries, usual.first, usual.most) for name, tries in retries.items()})
    policy.keep = durable.keep
    policy.keep_dead = durable.keep_dead
    policy.repeat = durable.repeat
    policy.max_jobs = durable.max_jobs
    policy.max_bytes = durable.max_bytes
    return policy


def zone_of(name: str) -> tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise SettingError(f"zone: unknown time zone {name!r}; use an IANA name such as Europe/Berlin") from None


class JobStore(Owner):
    """Created before the broker listens; ``start`` is called in the running loop."""

    def __init__(self, settings: Settings, broker: Broker, wake: Callable[[], None], backend: Backend) -> None:
        self._settings = settings
        self._broker = broker
        self._wake = wake  # begins a turn of the loop
        self.backend = backend
        durable = settings.durable
        name = settings.journal.name or f"{socket.gethostname()}:{settings.listeners()[0].address}"
        self.thread = StoreThread(
            backend,
            self,
            name,
            self._post,
            repeat=durable.repeat,
            lease=LeaseTimes(durable.lease, durable.lease / 4),
            disk_share=shares_of(settings.data, settings.limits.max_disk).jobs,
        )
        names = settings.by_service("durable")
        self.durable = Durable(broker, broker, self.thread, policy_of(settings), names, zone_of)
        broker.use_jobs(self.durable)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._reached = asyncio.Event()  # set once the store is open, or has failed
        self._settled = asyncio.Event()  # set once the leader is known, or the store has failed

    async def start(self) -> None:
        """Called once the broker knows its address, which clients use to find the leader. Waits a moment for the jobs of the store, because
        until then clients that reconnect after a restart are rejected. It does not wait for a store that cannot be reached: that is tried
        again in the background, and until then requests for jobs are rejected."""
        self._loop = asyncio.get_running_loop()
        self.thread.address = self._settings.durable.address or self._broker.address
        self.thread.start()
        with contextlib.suppress(TimeoutError):
            if self.backend.shared:
                await asyncio.wait_for(self._reached.wait(), STORE_REACHED)
            await asyncio.wait_for(self._settled.wait(), STORE_OPENING)

    async def stop(self) -> None:
        """Writes pending data; the loop keeps running."""
        if self._loop is not None and not self._stopped:
            self._stopped = True
            self.thread.ask_to_stop()
            while self.thread.running:
                await asyncio.sleep(0.01)

    def abandon(self) -> None:
        """For tests: simulates a killed process."""
        self._stopped = True
        self.thread.abandon()

    def tick(self) -> None:
        """Called once a second. Due times of jobs follow the wall clock, which may have been changed."""
        self.thread.tick()
        self.follow_clock(time.time() - (time.monotonic() + self._broker.wall))

    def follow_clock(self, shift: float) -> None:
        """``shift``: how far the wall clock is ahead of where it would be if it had never been changed."""
        step, self.durable.wall_shift = shift - self.durable.wall_shift, shift
        if step > JOBS_CLOCK_STEP:
            text = "the clock was set forward, or the machine was suspended: jobs and schedules that became due run now"
        elif step < -JOBS_CLOCK_STEP:
            text = (
                "the clock was set back: jobs and schedules wait until it reaches their times; "
                "`polydomo schedule ls` shows them, and adding a schedule again plans it anew"
            )
        else:
            return
        say(LOG, logging.WARNING, text, seconds=round(step, 1))

    @property
    def leads(self) -> bool:
        return self.durable.jobs.leads and not self.durable.jobs.suspended

    def _post(self, function: Callable[[], None]) -> None:
        """Called from the store's thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._run, function)
            except RuntimeError:
                pass  # the loop is closed: the broker has stopped

    def _run(self, function: Callable[[], None]) -> None:
        self._wake()
        try:
            function()
        except Exception:
            trouble(LOG, "internal error", during="the job store's answer")

    # --- Owner ----------------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        self._reached.set()

    def unavailable(self) -> None:
        self._reached.set()
        self._settled.set()

    def lead(self, epoch: int, loaded: Loaded) -> None:
        say(
            LOG,
            logging.INFO,
            "this broker is the leader for jobs",
            store=self.backend.url,
            epoch=epoch,
            open_jobs=len(loaded.jobs),
        )
        for job in [*loaded.jobs, *loaded.uncollected]:
            if job.damage:
                say(LOG, logging.ERROR, "a stored job is damaged; it is dead now", job=job.id, reason=job.damage)
        for row in loaded.schedules:
            if row.damage:
                say(LOG, logging.ERROR, "a schedule does not run", schedule=row.name, reason=row.damage)
        for note in loaded.notes:
            say(LOG, logging.ERROR, "stored data is damaged", reason=note)
        self.durable.lead(epoch, loaded)
        self._settled.set()

    def follow(self, leader: str, why: str) -> None:
        if self.durable.jobs.leads:
            say(LOG, logging.WARNING, "this broker is no longer the leader for jobs", store=self.backend.url, why=why)
        else:
            say(LOG, logging.INFO, "another broker is the leader for jobs", store=self.backend.url, leader=leader)
        self.durable.follow(leader, why)
        self._settled.set()

    def suspend(self, suspended: bool) -> None:
        text = (
            "jobs are suspended: the lease could not be renewed" if suspended else "jobs resumed: the lease was renewed"
        )
        say(LOG, logging.WARNING, text, store=self.backend.url)
        self.durable.suspend(suspended)
