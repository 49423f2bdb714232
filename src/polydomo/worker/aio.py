"""The asyncio worker."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from polydomo.client.aio import AsyncClient
from polydomo.client.security import Security, targets
from polydomo.client.suspension import wait_running
from polydomo.errors import SettingError
from polydomo.limits import CONNECT_TIME, GRACE, MAX_SERVICE_NAME, MAX_WORKER_NAME, SCHEMA_TIME
from polydomo.protocols import registry
from polydomo.protocols.dbp.ends import DbpWorkerEnd
from polydomo.protocols.ends import WorkerEnd
from polydomo.worker.batcher import Batcher, run_here
from polydomo.worker.batches import BatchSize, check_function, read_size
from polydomo.worker.beat_thread import BeatThread
from polydomo.worker.functions import Function, LocalFunction, Threads
from polydomo.worker.processes.output import OnOutput
from polydomo.worker.processes.pool import PoolSize, ProcessPool
from polydomo.worker.registration import Registration
from polydomo.worker.schema_check import checked, checked_batches
from polydomo.worker.schema_sender import SchemaSender
from polydomo.worker.service_connection import ServiceConnection, listed, shares
from polydomo.worker.typed import Typed, is_typed

log = logging.getLogger("polydomo.worker")

F = TypeVar("F", bound=Callable[..., Any])  # takes one Call, or typed arguments


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
    and ``timeout``. It returns ``bytes``, ``str``, a list of those (one frame each), or ``None`` (an empty reply). It may be

    - ``async def``: runs on the event loop;
    - a normal function: runs in a thread, so that it does not block the event loop;
    - a generator of either kind: each yielded value is a partial reply; the return value of a normal generator is the final reply.

    A function with annotated parameters is typed: it gets its arguments by name from a JSON object, and its result is sent as JSON
    (see ``polydomo.worker.typed``).

    If the function raises an exception, the call fails. Over a protocol that can report failures (``mdx``), the caller gets the failure,
    with the code and text of a ``CallFailed``. Over the others, the worker returns the request, and the broker tries it again. With
    a broker that does not support polydomo's extensions, the worker disconnects and registers again instead.

    ``concurrency`` calls run at once: per service if a worker of the protocol has one service (``mdx``, ``mdp1``, ``mdp2``), otherwise
    for all services together. They share one connection, except over MDP, which allows one call per connection, and with brokers that
    do not support polydomo's extensions. ``connections`` opens more connections than needed. ``prefetch`` is the number of calls held in
    addition to the running ones. It saves a round trip per call, which pays off for calls of a few milliseconds or less. MDP and memo01
    workers do not prefetch.

    ``processes`` runs the functions in that many child processes instead, one call each at a time, for all services together. A process
    that dies fails only its own call, and is replaced. It is also replaced after ``max_calls`` calls, or when it uses more than
    ``max_memory`` bytes after a call. A call that is cancelled, or whose time is over, ends with its process, also if it is a normal
    function. The processes are forked when ``run`` begins: what was imported and loaded before is shared by them.

    The worker reconnects after a lost connection. Running functions may finish (a generator until its next ``yield``), but their results
    are discarded. If the caller gives up, the call is cancelled: ``call.cancelled`` becomes True, and an ``async`` function is cancelled.

    ``beat`` is the heartbeat interval in seconds, for a broker with an interval other than the protocol's default. The silence after
    which the broker is considered gone scales with it.

    ``name`` is shown by `polydomo workers` and in logs (not over memo01). ``to`` may be several comma-separated addresses of brokers that
    share a job store. The worker registers at each of them, and runs ``concurrency`` calls in total.

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
        processes: int = 0,
        max_calls: int = 0,
        max_memory: int = 0,
        grace: float = GRACE,
        beat: float | None = None,
        name: str = "",
        **options: object,
    ) -> None:
        if len(name.encode()) > MAX_WORKER_NAME or not name.isprintable() or not name.isascii():
            raise SettingError(f"name: {name!r} must be up to {MAX_WORKER_NAME} printable ASCII characters")
        if concurrency < 1:
            raise SettingError(f"concurrency: must be 1 or more, not {concurrency}")
        if processes and concurrency != 1:
            raise SettingError("concurrency: a worker with processes runs one call in each; leave it out")
        if prefetch < 0:
            raise SettingError(f"prefetch: must be 0 or more, not {prefetch}")
        if connections < 1:
            raise SettingError(f"connections: must be 1 or more, not {connections}")
        if beat is not None and not beat > 0:
            raise SettingError(f"beat: must be more than 0 seconds, not {beat}")
        self.beat = beat
        self._addresses = targets(to, key, server_key, context, security)
        self.name = name
        self._dialer = registry.find_worker(protocol)
        if self._dialer.alone and (concurrency > 1 or prefetch or connections > 1):
            raise SettingError(
                f"concurrency: a service of {self._dialer.title} runs one call at a time; start it under another name, or use mdx"
            )
        self._options = options
        self._make_end()  # report invalid options here, not in the background
        self.pool_size = PoolSize(processes, max_calls, max_memory)
        self.on_output: OnOutput | None = None  # gets the lines that functions print, with processes
        self.concurrency = processes or concurrency
        self.prefetch = prefetch
        self.connections = connections
        self.grace = grace
        self._functions: dict[bytes, LocalFunction] = {}
        self._batches: dict[bytes, BatchSize] = {}  # of those functions that get several calls at once
        self._client = partial(
            AsyncClient, to, key=key, server_key=server_key, context=context, security=security, timeout=SCHEMA_TIME
        )
        self._schemas = SchemaSender(self._client)
        self._threads = Threads("polydomo-work")
        self._beats = BeatThread()
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

    def service(
        self, name: str | bytes, *, batch: int | None = None, wait: str | float | None = None
    ) -> Callable[[F], F]:
        """Decorator for the function that serves ``name``. With ``batch``, it gets a list of up to ``batch`` calls and returns a list with
        one outcome for each: a result, or an exception. It is called when there are ``batch`` calls, or ``wait`` (such as "5ms", the
        default) after the first."""
        self._key(name)  # catches ``@worker.service`` without a name

        def register(function: F) -> F:
            self.add(name, function, batch=batch, wait=wait)
            return function

        return register

    def add(
        self,
        name: str | bytes,
        function: Callable[..., Any],
        *,
        schema: "dict[str, Any] | None" = None,
        batch: int | None = None,
        wait: str | float | None = None,
    ) -> None:
        """``function`` serves ``name`` from the next ``run`` on. ``schema`` describes a function that is not typed, as `polydomo.schema`
        shows it: description, input, output, encoding, streams, and media if it may be called with GET. Calls whose arguments do not match
        ``input`` fail with the code ``invalid-arguments``, before the function is called (unless ``encoding`` is ``text``). Raises
        SettingError if ``input`` has a keyword that the worker cannot check (``worker.schema_check``). ``batch`` and ``wait`` are those of
        ``service``."""
        key = self._key(name)
        if not callable(function):
            raise SettingError(f"service: {name!r} must be served by a function, not by {type(function).__name__}")
        if key in self._functions:
            raise SettingError(f"service: {name!r} already has a function")
        size = read_size(batch, wait)
        if size is not None:
            if self._dialer.alone:
                raise SettingError(f"batch: a service of {self._dialer.title} runs one call at a time; use mdx")
            check_function(key, function)
        if is_typed(function, size is not None):
            if schema is not None:
                raise SettingError(
                    f"schema: the function of {name!r} has annotations, and its schema is made from them"
                )
            typed = Typed(key.decode(errors="replace"), function, size is not None)
            self._schemas.add(key, typed.schema())
            function = typed.plain() if size is None else typed.of_batches()
        elif schema is not None:
            check = checked if size is None else checked_batches
            function = check(key.decode(errors="replace"), function, schema)
            self._schemas.add(key, schema)
        self._functions[key] = function
        if size is not None:
            self._batches[key] = size

    @staticmethod
    def _key(name: str | bytes) -> bytes:
        if not isinstance(name, str | bytes):
            raise SettingError(
                f'service: the name must be str or bytes, as in service("echo"), not {type(name).__name__}'
            )
        key = name.encode() if isinstance(name, str) else name
        if not key or len(key) > MAX_SERVICE_NAME:
            raise SettingError(f"service: the name must have 1 to {MAX_SERVICE_NAME} bytes, not {len(key)}")
        if key.startswith((b"mmi.", b"polydomo.")):
            shown = key.decode(errors="backslashreplace")
            raise SettingError(
                f"service: the name {shown!r} is reserved; names that begin with mmi. and polydomo. belong to the broker"
            )
        return key

    async def run(self) -> None:
        """Serves until ``stop``, then lets running calls finish within ``grace`` seconds and disconnects."""
        if not self._functions:
            raise SettingError("service: the worker has no services; add one with add() or @worker.service")
        if self._connections:
            raise RuntimeError("the worker is already running")
        pool = await self._start_pool()
        self._connections = self._make_connections(pool)
        tasks = [connection.start() for connection in self._connections]
        self._beats.start(self._make_end().interval)
        stop = asyncio.ensure_future(self._stop.wait())
        ends_it: list[asyncio.Future[Any]] = [stop, *tasks, *([pool.lost] if pool is not None else [])]
        self._started.set()
        announcing = asyncio.ensure_future(self._announce())
        try:
            # A connection ends when it is stopped. One that ends earlier has hit a bug, which is raised below.
            await asyncio.wait(ends_it, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(connection.stop(self.grace) for connection in self._connections))
        finally:
            stop.cancel()
            announcing.cancel()
            self._schemas.stop()
            for connection in self._connections:
                connection.drop()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._threads.stop()
            self._beats.stop()
            if pool is not None:
                await pool.close()
            self._connections = []
            # New events, because an event belongs to the loop it was first awaited on, and the next run may use another loop.
            self._started = asyncio.Event()
            self._stop = asyncio.Event()
        for end in ends:
            if isinstance(end, Exception):
                raise end
        if pool is not None and pool.lost.done():
            raise RuntimeError("the process that starts the worker's processes was killed, and its calls with it")

    async def _start_pool(self) -> ProcessPool | None:
        if not self.pool_size.processes:
            return None
        self._make_connections(None)  # raises before any process is started
        pool = ProcessPool(self._functions, self.pool_size, self.on_output)
        try:
            await pool.start()
        except BaseException:
            await pool.close()
            raise
        return pool

    def stop(self) -> None:
        """Asks ``run`` to finish. From other threads: ``loop.call_soon_threadsafe(worker.stop)``."""
        self._stop.set()

    async def ready(self) -> None:
        """Waits until every connection has registered once. MDP, MDX and eMQP brokers do not confirm this, so there it means READY was
        sent."""
        await self._started.wait()
        waits = [asyncio.ensure_future(connection.registered()) for connection in self._connections]
        needed = len(waits) // len(self._addresses)  # with several brokers, one is enough
        try:
            while sum(wait.done() for wait in waits) < needed:
                await asyncio.wait([wait for wait in waits if not wait.done()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def refused(self) -> bool:
        """Whether the last attempt to connect was refused, because no program listens at the address."""
        return any(connection.refused for connection in self._connections)

    @property
    def accepted(self) -> bool:
        """Whether a program accepted the last attempt to connect. It may not be a broker."""
        return any(connection.accepted for connection in self._connections)

    def _on_registered(self, registration: Registration, names: list[bytes]) -> None:
        self._beats.watch(registration)
        self._schemas.send(names)

    async def _announce(self) -> None:
        """Logs the services and the address, once it has registered."""
        await self.ready()
        names = listed(self._functions)
        several = f", {self.concurrency} calls at once" if self.concurrency > 1 else ""
        log.info("offering %s at %s over %s%s", names, self.url, self.protocol, several)

    async def __aenter__(self) -> Self:
        """Runs in the background. Waits for the registration, at most a few seconds; it keeps trying after that."""
        self._running = asyncio.get_running_loop().create_task(self.run())
        ready = asyncio.ensure_future(self.ready())
        await wait_running([self._running, ready], CONNECT_TIME, first=True)
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
        if isinstance(end, DbpWorkerEnd):
            end.clock = time.time
        if self.beat is not None:
            end.patience *= self.beat / end.interval
            end.interval = self.beat
        return end

    def _make_connections(self, pool: ProcessPool | None) -> list[ServiceConnection]:
        functions = pool.functions if pool is not None else self._functions
        single = {name: function for name, function in functions.items() if name not in self._batches}
        offers = [single] if self._dialer.several and single else [{name: single[name]} for name in single]
        for names in (*offers, *([name] for name in self._batches)):
            # Raises here, not in the background, if the protocol cannot express the name.
            self._make_end().open(list(names))
        connections: list[ServiceConnection] = []
        shared = asyncio.Semaphore(self.concurrency)

        def own_turns() -> asyncio.Semaphore:
            """For all connections, including those to several brokers; for all services, if they share a pool of processes."""
            return shared if self.pool_size.processes else asyncio.Semaphore(self.concurrency)

        for offer in offers:
            connections += self._connect_offer(offer, own_turns(), self.concurrency, self.prefetch)
        for name, size in self._batches.items():
            run = partial(pool.run_batch, name) if pool is not None else run_here(self._functions[name], self._threads)
            batcher = Batcher(name, size, run, own_turns())
            # The calls of the next batch arrive while a batch runs.
            slots, prefetch = size.most * self.concurrency, size.most + self.prefetch
            held = asyncio.Semaphore(slots + prefetch)
            connections += self._connect_offer({name: batcher}, held, slots, prefetch)
        return connections

    def _connect_offer(
        self, functions: "Mapping[bytes, Function | Batcher]", turns: asyncio.Semaphore, slots: int, prefetch: int
    ) -> list[ServiceConnection]:
        return [
            ServiceConnection(place, self._make_end, functions, self._threads, turns, share, self._on_registered)
            for share in shares(slots, prefetch, self._make_end().slots, self.connections)
            for place in self._addresses
        ]
