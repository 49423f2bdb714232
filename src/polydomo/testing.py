"""A real broker for your tests: it runs in the test process, on a free port, and stops when the test ends.

```python
import polydomo
import polydomo.testing
import pytest

@pytest.fixture
def broker():
    with polydomo.testing.broker() as broker:
        yield broker

def test_shout(broker):
    worker = polydomo.Worker(broker.url)
    worker.add("shout", lambda call: call.text.upper())
    with worker, polydomo.Client(broker.url) as client:
        assert client.call("shout", "hello").text == "HELLO"

def test_no_broker(broker):
    with polydomo.Client(broker.url) as client:
        broker.stop()
        with pytest.raises(polydomo.ConnectionLost):
            client.call("shout", "hello", timeout=0.1)
        broker.start()  # the same address again

def test_settings():
    with polydomo.testing.broker(settings={"attempts": 1, "queue_expiry": "100ms"}) as broker:
        with polydomo.Client(broker.url) as client, pytest.raises(polydomo.NoSuchService):
            client.call("missing")
```

``settings`` takes the settings that `polydomo config` lists, under the same names. All of them take effect; one that cannot, because it
concerns the process of `polydomo up` (``processes``, ``log_json``, ``log_level``), raises SettingError, as an unknown one does.

The broker stores nothing on disk unless it is asked to:

- ``jobs=True``, or a setting of ``store``, ``data`` or ``durable.*``: durable jobs and schedules
- a setting of ``journal.*``: a journal, so that `polydomo trace` and `polydomo requests` show finished requests
- a setting of ``data``, ``memo.max_bytes`` or ``memo.max_age``: the replies of memoised services

They are stored in the directory ``data`` or, without that setting, in a temporary directory that is removed at the end. They survive
``stop``, ``kill`` and ``start``.
"""

import asyncio
import contextlib
import dataclasses
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from polydomo.client.background import Background
from polydomo.client.suspension import running_timeout
from polydomo.errors import SettingError
from polydomo.model.records import Worker as BrokerWorker
from polydomo.server.data_directory import prepare_data
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import DEFAULT, Settings, load

if TYPE_CHECKING:
    from polydomo.broker.observe.recorder import Recorder
    from polydomo.cli.broker.broker_journal import BrokerJournal
    from polydomo.stores.memo import MemoStore
    from polydomo.stores.no_memo import NoMemoStore

WITHOUT_EFFECT = ("processes", "log_json", "log_level")  # of the process that `polydomo up` starts
POLL = 0.005  # seconds between checks of a condition that a test waits for


class Broker:
    """A broker in a background thread. Create it with ``broker()``."""

    def __init__(
        self,
        listen: str = "tcp://127.0.0.1:0",
        settings: Settings | Mapping[str, object] | None = None,
        jobs: bool = False,
        tuning: Mapping[str, Any] | None = None,
        recorder: "Recorder | None" = None,
    ) -> None:
        self._recorder = recorder  # of a broker without a journal
        if not isinstance(settings, Settings):
            settings = load(flags={**(settings or {}), "listen": [listen]})
            for notice in settings.notices:
                warnings.warn(str(notice), stacklevel=3)
        self._tuning = dict(tuning or {})
        self._settings = dataclasses.replace(settings, listen=[listen])
        rows = settings.describe()
        for row in rows:
            if row.key in WITHOUT_EFFECT and row.value != row.default:
                raise SettingError(
                    f"{row.key}: has no effect on a broker in this process; start one with `polydomo up`"
                )
        given = {row.key for row in rows if row.source != DEFAULT or row.value != row.default}
        self._stop_grace = settings.grace if "grace" in given else 0.0
        self._jobs = (
            jobs or bool(given & {"store", "data"}) or _names(given, "durable.") or bool(settings.chosen("durable"))
        )
        recorded = any({"journal", "bodies"} & set(options) for options in settings.service.values())
        self._journals = _names(given, "journal.") or recorded
        self._memoises = bool(given & {"data", "memo.max_bytes", "memo.max_age"})
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        if "data" in given:
            prepare_data(settings.data)
        elif self._jobs or self._journals or self._memoises:
            self._directory = tempfile.TemporaryDirectory(prefix="polydomo-testing-")
            self._settings.data = self._directory.name
        self._journal: BrokerJournal | None = None
        self._memo: MemoStore | NoMemoStore | None = None
        self._background = Background(self, "polydomo-broker")
        self._server: BrokerServer | None = None

    @property
    def url(self) -> str:
        """The address of the broker; ``stop`` and ``start`` do not change it."""
        return self._settings.listen[0]

    def place(self, role: str) -> str:
        """The address of a listener with a role, such as ``mdx.front``."""
        assert self._server is not None
        return self._server.places[role]

    def now(self) -> float:
        """The broker's clock, in seconds."""
        return self._server.broker.now if self._server is not None else 0.0

    def start(self) -> None:
        """Starts or restarts the broker. Raises SettingError if the address is not available."""
        if self._server is None:
            self._server = self._background.run(self._start())
            self._settings.listen = [self._server.urls[0]]

    def stop(self, grace: float | None = None) -> None:
        """Stops as on SIGTERM: requests in flight have ``grace`` seconds to finish (by default the setting ``grace``, or 0 if it is not
        given), and workers get DISCONNECT."""
        if self._server is not None:
            server, self._server = self._server, None
            self._background.run(self._stop(server, self._stop_grace if grace is None else grace))

    def kill(self) -> None:
        """Ends as on SIGKILL: every connection breaks without a message."""
        if self._server is not None:
            server, self._server = self._server, None
            self._background.run(self._kill(server))

    def wait_for(self, service: str | bytes, workers: int = 1, timeout: float = 60.0) -> None:
        """Waits until exactly ``workers`` workers (0: none) are registered for ``service``. One with ``concurrency=4`` counts as
        four. Raises TimeoutError."""
        name = service.encode() if isinstance(service, str) else service
        try:
            self._background.run(self._until(lambda server: _workers(server, name) == workers, timeout))
        except TimeoutError:
            found = _workers(self._server, name) if self._server is not None else 0
            raise TimeoutError(f"after {timeout:g} s {service!r} has {found} workers, not {workers}") from None

    def wait_until(self, condition: Callable[[BrokerServer], bool], timeout: float = 60.0) -> None:
        """Waits until ``condition()`` is true. It is called in the broker's thread. One that looks up a service or a worker that the
        broker does not know yet (a LookupError) is not true yet. Raises TimeoutError."""
        self._background.run(self._until(condition, timeout))

    def close(self) -> None:
        self.stop()
        self._background.stop()
        if self._directory is not None:
            self._directory.cleanup()

    async def _start(self) -> BrokerServer:
        if self._journals:
            from polydomo.cli.broker import broker_journal

            self._journal = broker_journal.open_here(self._settings)
            self._journal.stop_broker = lambda: None  # a test that removes the directory goes on
        if self._memoises:
            from polydomo.cli.broker.up import open_memo

            self._memo = open_memo(self._settings)
        recorder = self._journal.recorder if self._journal is not None else self._recorder
        tuning = dataclasses.replace(self._settings.tuning(), **self._tuning)
        server = BrokerServer(self._settings, recorder, self._memo, tuning=tuning)
        try:
            if self._jobs:
                server.keep_jobs()
            if self._journal is not None:
                self._journal.begin(server)
            await server.start()
        except BaseException:
            await self._close_files()
            raise
        if self._journal is not None:
            self._journal.tell()
        return server

    async def _stop(self, server: BrokerServer, grace: float) -> None:
        try:
            await server.stop(grace)
        finally:
            await self._close_files()

    async def _close_files(self) -> None:
        journal, self._journal = self._journal, None
        memo, self._memo = self._memo, None
        if journal is not None:
            await journal.end()
        if memo is not None:
            memo.close()

    async def _kill(self, server: BrokerServer) -> None:
        if server.job_store is not None:
            server.job_store.abandon()
        for connection in list(server.connections):
            connection.transport.abort()
        await self._stop(server, 0.0)

    async def _until(self, condition: Callable[[BrokerServer], bool], timeout: float) -> None:
        async with running_timeout(timeout):
            while self._server is None or not _holds(condition, self._server):
                await asyncio.sleep(POLL)


def _holds(condition: Callable[[BrokerServer], bool], server: BrokerServer) -> bool:
    try:
        return condition(server)
    except LookupError:
        return False


def _workers(server: BrokerServer, name: bytes) -> int:
    service = server.broker.services.get(name)
    return 0 if service is None else sum(map(_places, service.workers))


def _names(keys: set[str], section: str) -> bool:
    return any(key.startswith(section) for key in keys)


def _places(worker: BrokerWorker) -> int:
    """How many calls the worker runs at once, as far as the broker knows."""
    return worker.runs or max(1, worker.auto_credit, worker.credit + len(worker.held))


@contextlib.contextmanager
def broker(
    listen: str = "tcp://127.0.0.1:0",
    settings: Settings | Mapping[str, object] | None = None,
    jobs: bool = False,
    tuning: Mapping[str, Any] | None = None,
    recorder: "Recorder | None" = None,
) -> Iterator[Broker]:
    """A broker that runs inside the ``with`` block; ``.url`` is its address. With ``jobs``, it stores durable jobs, in a temporary
    directory unless ``settings`` names another place. ``tuning`` replaces fields of ``polydomo.model.tuning.Tuning``, such as
    ``handshake_time``, which are no settings. ``recorder`` gets the events of a broker without a journal. Raises SettingError."""
    broker = Broker(listen, settings, jobs, tuning, recorder)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
