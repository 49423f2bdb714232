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

``settings`` takes the settings that `polydomo config` lists, under the same names.
"""

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping

from polydomo.client.background import Background
from polydomo.client.suspension import running_timeout
from polydomo.protocols.model import Worker as BrokerWorker
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings, load

POLL = 0.005  # seconds between checks of a condition that a test waits for


class Broker:
    """A broker in a background thread. Create it with ``broker()``."""

    def __init__(
        self,
        listen: str = "tcp://127.0.0.1:0",
        settings: Settings | Mapping[str, object] | None = None,
        jobs: bool = False,
    ) -> None:
        if not isinstance(settings, Settings):
            settings = load(flags={**(settings or {}), "listen": [listen]})
        self._settings = dataclasses.replace(settings, listen=[listen])
        self._directory = tempfile.TemporaryDirectory(prefix="polydomo-jobs-") if jobs else None
        if self._directory is not None:
            self._settings.data = self._directory.name
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

    def start(self) -> None:
        """Starts or restarts the broker. Raises SettingError if the address is not available."""
        if self._server is None:
            self._server = self._background.run(self._start())
            self._settings.listen = [self._server.urls[0]]

    def stop(self, grace: float = 0.0) -> None:
        """Stops as on SIGTERM: requests in flight have ``grace`` seconds to finish, and workers get DISCONNECT."""
        if self._server is not None:
            server, self._server = self._server, None
            self._background.run(server.stop(grace))

    def kill(self) -> None:
        """Ends as on SIGKILL: every connection breaks without a message."""
        if self._server is not None:
            server, self._server = self._server, None
            self._background.run(self._kill(server))

    def wait_for(self, service: str | bytes, workers: int = 1, timeout: float = 30.0) -> None:
        """Waits until exactly ``workers`` workers (0: none) are registered for ``service``. One with ``concurrency=4`` counts as
        four. Raises TimeoutError."""
        name = service.encode() if isinstance(service, str) else service
        try:
            self._background.run(self._until(lambda server: _workers(server, name) == workers, timeout))
        except TimeoutError:
            found = _workers(self._server, name) if self._server is not None else 0
            raise TimeoutError(f"after {timeout:g} s {service!r} has {found} workers, not {workers}") from None

    def wait_until(self, condition: Callable[[BrokerServer], bool], timeout: float = 30.0) -> None:
        """Waits until ``condition()`` is true. It is called in the broker's thread. Raises TimeoutError."""
        self._background.run(self._until(condition, timeout))

    def close(self) -> None:
        self.stop()
        self._background.stop()
        if self._directory is not None:
            self._directory.cleanup()

    async def _start(self) -> BrokerServer:
        server = BrokerServer(self._settings)
        if self._directory is not None:
            server.keep_jobs()
        await server.start()
        return server

    async def _kill(self, server: BrokerServer) -> None:
        if server.job_store is not None:
            server.job_store.abandon()
        for connection in list(server.connections):
            connection.transport.abort()
        await server.stop()

    async def _until(self, condition: Callable[[BrokerServer], bool], timeout: float) -> None:
        async with running_timeout(timeout):
            while self._server is None or not condition(self._server):
                await asyncio.sleep(POLL)


def _workers(server: BrokerServer, name: bytes) -> int:
    service = server.broker.services.get(name)
    return 0 if service is None else sum(map(_places, service.workers))


def _places(worker: BrokerWorker) -> int:
    """How many calls the worker runs at once, as far as the broker knows."""
    return worker.runs or max(1, worker.auto_credit, worker.credit + len(worker.held))


@contextlib.contextmanager
def broker(
    listen: str = "tcp://127.0.0.1:0",
    settings: Settings | Mapping[str, object] | None = None,
    jobs: bool = False,
) -> Iterator[Broker]:
    """A broker that runs inside the ``with`` block; ``.url`` is its address. With ``jobs``, it stores durable jobs in a temporary
    directory. Raises SettingError."""
    broker = Broker(listen, settings, jobs)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
