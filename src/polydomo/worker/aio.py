"""The asyncio worker."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from polydomo.client.aio import AsyncClient
from polydomo.client.security import Security, targets
from polydomo.errors import SettingError
from polydomo.limits import CONNECT_TIME, GRACE, MAX_SERVICE_NAME, MAX_WORKER_NAME, SCHEMA_TIME
from polydomo.protocols import registry
from polydomo.protocols.ends import WorkerEnd
from polydomo.worker.functions import Function, Threads
from polydomo.worker.schema_sender import SchemaSender
from polydomo.worker.service_connection import ServiceConnection, shares
from polydomo.worker.typed import Typed, is_typed

log = logging.getLogger("polydomo.worker")

F = TypeVar("F", bound=Callable[..., Any])  # of one Call, or typed


class AsyncWorker:
    """Offers services at a broker, from asyncio.

    ```python
    worker = AsyncWorker("tcp://127.0.0.1:5246", concurrency=4)

    @worker.service("upper")
    async def upper(call):
        return call.text.upper()

    @worker.service("count")
    async def count(call):
        for n in range(int(call.text)):
            yield str(n)  # a partial reply each

    await worker.run()  # until worker.stop()
    ```

    A function gets one argument, a ``Call``: a list of the request's frames with ``body``, ``text``, ``json()``, ``service``, ``headers``
    and ``timeout``. It gives ``bytes``, ``str``, a list of those (one frame each), or ``None`` (an empty reply). It may be

    - ``async def``: runs on the event loop;
    - plain: runs in a thread, so that heartbeats go on meanwhile;
    - a generator of either kind: what it yields are partial replies, and what a plain one returns is the final reply.

    A function with annotated parameters is typed: it gets its arguments by name from a JSON object, and its result is sent as JSON
    (see ``polydomo.worker.typed``).

    A function that raises has failed. Over a protocol with a word for failure (``mdx``) the caller is told, with ``CallFailed``'s own code
    and text if that is what was raised; over the others the worker leaves and registers again, and the broker tries the request
    elsewhere.

    ``concurrency`` calls run at once: of each service where a worker of the protocol has one service (``mdx``, ``mdp1``, ``mdp2``), of all
    of them together elsewhere. They share one connection, except over MDP, which allows one call per connection, and where the broker
    does not know polydomo's extensions. ``connections`` asks for more connections than needed. ``prefetch`` calls are held beyond those
    that run: that saves a round trip per call, and is worth it for calls that take less than a few milliseconds.

    A lost connection is made again; functions that were running may finish (a generator until its next ``yield``), but their results are
    discarded. A call whose caller has given up is cancelled: ``call.cancelled`` becomes True, and an ``async`` function is cancelled.

    ``beat`` is the heartbeat interval in seconds, for a broker whose own was set to something else than the protocol's default; the silence
    after which the broker is taken for gone grows and shrinks with it.

    ``name`` is what people know the worker by: `polydomo workers` and logs show it (not over memo01). ``to`` may be several addresses with
    commas between them: brokers that share a job store. The worker registers at each of them, and runs ``concurrency`` calls in all.

    ``key``, ``server_key``, ``context`` and ``security`` are those of ``AsyncClient``.
    """

    def __init__(
        self,
        to: str | None = None,
        protocol: str = registry.DEFAULT,
        *,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
        concurrency: int = 1,
        prefetch: int = 0,
        connections: int = 1,
        grace: float = GRACE,
        beat: float | None = None,
        name: str = "",
        **options: object,
    ) -> None:
        if len(name.encode()) > MAX_WORKER_NAME or not name.isprintable() or not name.isascii():
            raise SettingError(f"name: {name!r} must be up to {MAX_WORKER_NAME} printable ASCII characters")
        if concurrency < 1:
            raise SettingError(f"concurrency: {concurrency} is no work at all; 1 or more")
        if prefetch < 0:
            raise SettingError(f"prefetch: {prefetch} calls; 0 or more")
        if connections < 1:
            raise SettingError(f"connections: {connections}; 1 or more")
        if beat is not None and not beat > 0:
            raise SettingError(f"beat: {beat} s is no interval; more than 0")
        self.beat = beat
        self._addresses = targets(to, key, server_key, context, security)
        self.name = name
        self._dialer = registry.find(protocol)
        self._options = options
        self._make_end()  # wrong options are told here, not in the background
        self.concurrency = concurrency
        self.prefetch = prefetch
        self.connections = connections
        self.grace = grace
        self._functions: dict[bytes, Function] = {}
        self._client = partial(
            AsyncClient, to, key=key, server_key=server_key, context=context, security=security, timeout=SCHEMA_TIME
        )
        self._schemas = SchemaSender(self._client)
        self._threads = Threads("polydomo-work")
        self._connections: list[ServiceConnection] = []
        self._started = asyncio.Event()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        services = ", ".join(name.decode(errors="replace") for name in self._functions)
        return f"<{type(self).__name__} {self._dialer.name} {self.url}: {services}>"

    @property
    def url(self) -> str:
        return ",".join(str(address) for address in self._addresses)

    @property
    def protocol(self) -> str:
        return self._dialer.name

    def service(self, name: str | bytes) -> Callable[[F], F]:
        """Decorates the function that serves ``name``."""
        self._key(name)  # a decorator without its name would otherwise swallow the function without a word

        def register(function: F) -> F:
            self.add(name, function)
            return function

        return register

    def add(self, name: str | bytes, function: Callable[..., Any], *, schema: "dict[str, Any] | None" = None) -> None:
        """``function`` serves ``name`` from the next ``run`` on. ``schema`` describes a function that is not typed, as `polydomo.schema`
        shows it: description, input, output, encoding, streams, and media if it may be called with GET."""
        key = self._key(name)
        if not callable(function):
            raise SettingError(f"service: {name!r} is served by a function, not by {type(function).__name__}")
        if key in self._functions:
            raise SettingError(f"service: {name!r} has a function already")
        if is_typed(function):
            typed = Typed(key.decode(errors="replace"), function)
            self._schemas.add(key, typed.schema())
            function = typed.plain()
        elif schema is not None:
            self._schemas.add(key, schema)
        self._functions[key] = function

    @staticmethod
    def _key(name: str | bytes) -> bytes:
        if not isinstance(name, str | bytes):
            raise SettingError(f'service: a name is str or bytes, as in service("echo"), not {type(name).__name__}')
        key = name.encode() if isinstance(name, str) else name
        if not key or len(key) > MAX_SERVICE_NAME:
            raise SettingError(f"service: a name has 1 to {MAX_SERVICE_NAME} bytes, not {len(key)}")
        if key.startswith((b"mmi.", b"polydomo.")):
            shown = key.decode(errors="backslashreplace")
            raise SettingError(
                f"service: {shown!r} is not a name that a worker may offer; mmi. and polydomo. are the broker's own"
            )
        return key

    async def run(self) -> None:
        """Serves until ``stop``; then finishes what runs, within ``grace`` seconds, and leaves."""
        if not self._functions:
            raise SettingError("service: a worker offers at least one; add() a function first")
        if self._connections:
            raise RuntimeError("the worker is running already")
        self._connections = self._make_connections()
        tasks = [connection.start() for connection in self._connections]
        stop = asyncio.ensure_future(self._stop.wait())
        self._started.set()
        announcing = asyncio.ensure_future(self._announce())
        try:
            # A connection ends by being stopped; one that ends earlier has hit a bug, which is raised below.
            await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(connection.stop(self.grace) for connection in self._connections))
        finally:
            stop.cancel()
            announcing.cancel()
            self._schemas.stop()
            for connection in self._connections:
                connection.drop()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._threads.stop()
            self._connections = []
            # New ones: an event belongs to the loop it was first awaited on, and the next run may have another.
            self._started = asyncio.Event()
            self._stop = asyncio.Event()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def stop(self) -> None:
        """Asks ``run`` to finish. From other threads: ``loop.call_soon_threadsafe(worker.stop)``."""
        self._stop.set()

    async def ready(self) -> None:
        """Waits until every connection has registered once. MDP, MDX and eMQP brokers do not confirm it: READY has been sent."""
        await self._started.wait()
        waits = [asyncio.ensure_future(connection.registered()) for connection in self._connections]
        needed = len(waits) // len(self._addresses)  # of several brokers one is enough
        try:
            while sum(wait.done() for wait in waits) < needed:
                await asyncio.wait([wait for wait in waits if not wait.done()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _announce(self) -> None:
        """One line, once it has registered: what it offers, and where."""
        await self.ready()
        names = ", ".join(name.decode(errors="backslashreplace") for name in self._functions)
        several = f", {self.concurrency} calls at once" if self.concurrency > 1 else ""
        log.info("offering %s at %s over %s%s", names, self.url, self.protocol, several)

    async def __aenter__(self) -> Self:
        """Runs in the background. Waits until it has registered, or for a few seconds: it goes on trying."""
        self._running = asyncio.get_running_loop().create_task(self.run())
        ready = asyncio.ensure_future(self.ready())
        await asyncio.wait([self._running, ready], timeout=CONNECT_TIME, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            await self._running
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._running is not None
        self.stop()
        await self._running

    def _make_end(self) -> WorkerEnd:
        end = self._dialer.worker(**self._options)
        end.identity = self.name.encode()
        if self.beat is not None:
            end.patience *= self.beat / end.interval
            end.interval = self.beat
        return end

    def _make_connections(self) -> list[ServiceConnection]:
        if self._dialer.several:
            offers = [self._functions]
        else:
            offers = [{name: function} for name, function in self._functions.items()]
        end = self._make_end()
        for functions in offers:
            self._make_end().open(
                list(functions)
            )  # raises here, not in the background, if the protocol cannot express the name
        connections: list[ServiceConnection] = []
        for functions in offers:
            turns = asyncio.Semaphore(self.concurrency)  # of all connections, also to several brokers
            for slots, prefetch in shares(self.concurrency, self.prefetch, end.slots, self.connections):
                connections += [
                    ServiceConnection(
                        place, self._make_end, functions, self._threads, turns, slots, prefetch, self._schemas.send
                    )
                    for place in self._addresses
                ]
        return connections
