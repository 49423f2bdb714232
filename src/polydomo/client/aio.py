"""The asyncio client."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypedDict

from polydomo.client.bulk import Body, BulkSubmission, frames_of_body
from polydomo.client.catalog import AsyncCatalog
from polydomo.client.flows import AsyncFlowRun, FlowClient
from polydomo.client.jobs import NOT_LEADER, JobClient, JobOptions, Times
from polydomo.client.mapping import map_async
from polydomo.client.message import Frame, Headers, JobPart, Result, encode, frames_of
from polydomo.client.pending import OnProgress, Pending, Single, Stream
from polydomo.client.pool import ExclusivePool, Pool, PooledConnection, SharedPool
from polydomo.client.registered import CatalogClient, RegisteredService
from polydomo.client.retry import ReconnectDelay, Retries
from polydomo.client.security import DEFAULT_URL, Security, targets
from polydomo.client.subscriber import AsyncSubscriber
from polydomo.client.topics import Subscription, TopicClient
from polydomo.errors import CallError, CallFailed, CallTimeout, ConnectionLost, NoSuchService, SettingError
from polydomo.limits import (
    CALL_TIME,
    CONNECT_TIME,
    DBP_ANSWER_TIME,
    DBP_BEAT,
    MAP_OUTSTANDING,
    MAX_JOB_KEY,
    MAX_SERVICE_NAME,
    POOL_CONNECTIONS,
)
from polydomo.model.flows.flow import Flow
from polydomo.model.flows.growth import write_stored_flow
from polydomo.model.outcomes import GAVE_UP, INTERRUPTED, SHUTDOWN
from polydomo.model.request_options import PLAIN, RequestOptions, mark_fault, options_of
from polydomo.model.retry_policy import Backoff as JobBackoff
from polydomo.protocols import registry

__all__ = ["DEFAULT_URL", "AsyncClient"]

FOREVER = 1e8  # seconds: the deadline of calls without one

REPEATABLE = (
    GAVE_UP,
    INTERRUPTED,
    SHUTDOWN,
    NOT_LEADER,
)  # failures caused by the broker: another attempt may succeed


class Place(TypedDict):
    """How further connections of a client are opened: those for topics and for the catalog."""

    key: str
    server_key: str
    context: str
    security: Security | None
    connect_timeout: float


class AsyncClient:
    """Calls services through a broker, from asyncio.

    ```python
    async with AsyncClient("tcp://127.0.0.1:5246") as client:
        result = await client.call("echo", "hello")
        print(result.text)

        async for part in client.stream("count", "3"):
            print(part.text)

        results = await asyncio.gather(*(client.call("echo", str(n)) for n in range(1000)))
    ```

    Every call either returns a ``Result`` or raises a ``PolydomoError``: ``CallTimeout``, ``NoSuchService`` (if the protocol reports
    it), ``CallFailed``, ``ConnectionLost`` or its subclass ``NotConnected``, or ``ProtocolViolation``.

    The client connects with the first call, and reconnects after a connection is lost. ``timeout`` and ``retries`` are defaults for
    calls that do not set them; set ``retries`` only if *all* calls are safe to repeat. Over a protocol with request ids (the default
    ``mdx``, ``dcp``, ``memo``, ``emqp``), one connection carries any number of calls. Over ``mdp1`` and ``mdp2``, there are up to
    ``max_connections``, and further calls wait in a queue.

    ``key`` and ``server_key`` are for a broker with access control: files with your secret key and with the broker's public key.
    ``security`` has the settings for TLS and PLAIN. ``context`` is a name given to ``polydomo context save``, which also stores the
    address.
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
        timeout: float = CALL_TIME,
        retries: int | Retries = 0,
        connect_timeout: float = CONNECT_TIME,
        refused_timeout: float | None = None,
        max_connections: int = POOL_CONNECTIONS,
        **options: object,
    ) -> None:
        if max_connections < 1:
            raise SettingError(f"max_connections: must be 1 or more, not {max_connections}")
        addresses = targets(to, key, server_key, context, security)
        dialer = registry.find(protocol)
        self.url = ",".join(str(address) for address in addresses)
        self.protocol = dialer.name
        self.timeout = timeout
        self.retry = Retries.of(retries)
        self._keys = 0
        end = dialer.client(**options)
        shared = end.concurrent
        self.carries_keys = end.carries_keys  # whether calls can have a ``key``

        refused = refused_timeout if refused_timeout is not None else connect_timeout

        def new_pool() -> Pool:
            if shared:
                return SharedPool(addresses, lambda: dialer.client(**options), connect_timeout, refused)
            return ExclusivePool(addresses, lambda: dialer.client(**options), connect_timeout, refused, max_connections)

        self._make_pool = new_pool
        self._pool = new_pool()
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop that owns the connections
        self.jobs = JobClient(self._ask, self._moved)  # durable jobs: lists, dead jobs, schedules
        place: Place = {
            "key": key,
            "server_key": server_key,
            "context": context,
            "security": security,
            "connect_timeout": connect_timeout,
        }
        self._topics = TopicClient(addresses, connect_timeout, partial(AsyncSubscriber, to, **place))
        self._catalog = CatalogClient(partial(AsyncCatalog, to, **place))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects now instead of with the first call. Raises NotConnected."""
        self._pool.release(await self._here().acquire(_deadline(self.timeout)))

    async def close(self) -> None:
        """Ends open calls with ConnectionLost, ends subscriptions and registrations, and closes every connection."""
        pool = self._here()
        await self._catalog.close()
        await self._topics.close()
        await pool.close()

    async def call(
        self,
        service: str | bytes,
        *body: Frame,
        timeout: float | None = None,
        retries: int | Retries | None = None,
        check: bool = False,
        headers: Headers | None = None,
        key: str = "",
        group: str = "",
        near: str = "",
        on_progress: OnProgress | None = None,
        **arguments: object,
    ) -> Result:
        """Calls ``service`` and returns its reply. The frames of partial replies come before those of the final reply.

        ``timeout`` limits the whole call. ``retries`` declares that the request is safe to repeat, and how often to send it again if
        the connection breaks or the broker gives up; without it, a request is never sent twice. ``check`` first asks whether a worker
        offers the service and raises NoSuchService if not; otherwise the request waits for a worker. ``headers`` are sent with the
        request over eMQP, the only protocol that has headers.

        ``key`` is an idempotency key, over MDX and eMQP: if a request for this service with the same key is still open, from this client or
        another one, this call joins it and gets the same reply, and the service runs once.

        ``group`` is the group of the request, for a service that is limited per group; see docs/flow-control.md. ``near`` names what the
        request should be near to. Over MDX and eMQP.
        ``on_progress`` is called with a share from 0 to 1 and a text whenever the worker reports how far it is (``call.progress``), at
        most ten times a second, over MDX, the only protocol of the libraries that has a message for it. It runs on the event loop.

        Further keywords are the arguments of a typed service, instead of a body: ``call("add", a=1, b=2)`` sends them as one JSON object.
        An argument that has the name of an option above must be sent as JSON: ``call("wait", json.dumps({"timeout": 1}))``.
        """
        name, frames = _name(service), frames_of(body, arguments)
        header_bytes, options = self._write(headers), self._options(key, group, near)
        seconds = self.timeout if timeout is None else timeout
        deadline = _deadline(seconds)
        retry = self.retry if retries is None else Retries.of(retries)
        if check:
            await self._check(name, seconds)
        backoff = ReconnectDelay(retry.first, retry.most)
        attempt = 1
        while True:
            try:
                return await self._attempt(name, header_bytes, frames, deadline, seconds, retry, options, on_progress)
            except CallError as error:
                if isinstance(error, CallFailed) and error.code == NOT_LEADER and self._pool.move_on():
                    await _before_next(error, backoff, deadline)  # it was rejected, so it may be sent to another broker
                    continue
                if attempt >= retry.attempts:
                    raise
                await _before_next(error, backoff, deadline)
                attempt += 1

    async def stream(
        self,
        service: str | bytes,
        *body: Frame,
        timeout: float | None = None,
        retries: int | Retries | None = None,
        check: bool = False,
        headers: Headers | None = None,
        key: str = "",
        group: str = "",
        near: str = "",
        on_progress: OnProgress | None = None,
        **arguments: object,
    ) -> AsyncGenerator[Result, None]:
        """Calls ``service`` and yields its partial replies as they arrive, then the final one (``part.final``).

        An empty final reply after partial replies only ends the stream and is not yielded. The arguments are those of ``call``. A
        stream is not repeated once a part has arrived. Leaving the loop early abandons the call.
        """
        name, frames = _name(service), frames_of(body, arguments)
        header_bytes, options = self._write(headers), self._options(key, group, near)
        seconds = self.timeout if timeout is None else timeout
        deadline = _deadline(seconds)
        retry = self.retry if retries is None else Retries.of(retries)
        if check:
            await self._check(name, seconds)
        backoff = ReconnectDelay(retry.first, retry.most)
        loop = asyncio.get_running_loop()
        seen = False
        attempt = 1
        while True:
            stream = Stream(name, header_bytes, loop, options)
            stream.on_progress = on_progress
            try:
                connection, number, timer = await self._begin(stream, frames, deadline, seconds, seconds)
                try:
                    while True:
                        part = await stream.next()
                        if not part.final or not seen or any(part):
                            seen = True
                            yield part
                        if part.final:
                            return
                finally:
                    self._end(connection, number, timer)
            except CallError as error:
                if seen or attempt >= retry.attempts:
                    raise
                await _before_next(error, backoff, deadline)
                attempt += 1

    def cancels(self) -> bool:
        """Whether giving up a call (its timeout, ``task.cancel()``) cancels the request at the broker."""
        return self._pool.cancels()

    async def submit_job(
        self,
        service: str | bytes,
        *body: Frame,
        key: str | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = 0,
        ttl: float | None = None,
        retries: "int | JobBackoff | None" = None,
        run_timeout: float | None = None,
        timeout: float | None = None,
        group: str = "",
        near: str = "",
        **arguments: object,
    ) -> str:
        """Submits a durable job and returns its id once the broker has stored it. From then on, the job survives crashes of the client,
        the broker and the workers.

        Submissions with the same ``key`` return the same job as long as its result is kept. The job starts after ``delay`` seconds, or
        not before ``at``. A higher ``priority`` runs first. After ``ttl`` seconds it is no longer started. ``retries`` sets the retry
        policy, and ``run_timeout`` the timeout of one attempt in seconds. ``group`` and ``near`` are those of ``call``. ``timeout``
        limits the submission, which is repeated if the connection breaks; that never creates a second job. Further keywords are the
        arguments of a typed service, as in ``call``.
        """
        options = JobOptions(key, delay, at, priority, ttl, retries, run_timeout, group, near)
        return await self.jobs.submit(service, frames_of(body, arguments), options, self._patience(timeout))

    async def submit_jobs(
        self,
        service: str | bytes,
        bodies: Iterable[Body],
        *,
        keys: Iterable[str] | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = 0,
        ttl: float | None = None,
        retries: "int | JobBackoff | None" = None,
        run_timeout: float | None = None,
        timeout: float | None = None,
        group: str = "",
        near: str = "",
    ) -> list[str]:
        """Submits a durable job for each body and returns their ids in the same order, once the broker has stored all of them.

        A body is a frame, a list of frames, or a mapping: the named arguments of a typed service. The jobs are sent in messages of up to
        1,000, and the broker writes them to disk together. ``keys`` has an idempotency key for each; the other options are those of
        ``submit_job``, for all jobs. A message is repeated if the connection breaks, which never creates a second job. If the broker
        refuses a job, CallFailed names its body; jobs of other messages may have been stored.
        """
        options = JobOptions(None, delay, at, priority, ttl, retries, run_timeout, group, near)
        return await BulkSubmission(self.jobs, service, options, self._patience(timeout)).run(bodies, keys)

    async def map(
        self,
        service: str | bytes,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        outstanding: int = MAP_OUTSTANDING,
        in_order: bool = True,
        return_errors: bool = False,
        **options: Any,
    ) -> AsyncGenerator[Any, None]:
        """Calls ``service`` for each body, with at most ``outstanding`` calls open, and yields the results in the order of the bodies.

        With ``in_order=False``, it yields pairs as calls end: the number of the body, from 0, and its result. A call that fails raises
        its error when its turn comes, and the open calls are cancelled. With ``return_errors``, the error is yielded instead of a
        result, and the others go on. A body is one of ``submit_jobs``; ``options`` are those of ``call``, such as ``timeout``, which
        counts for each call from when it is sent. Bodies are read as calls end, so there may be any number of them.
        """
        calls = map_async(
            lambda body: self.call(service, *frames_of_body(body), **options),
            bodies, outstanding, in_order, return_errors,
        )  # fmt: skip
        async with contextlib.aclosing(calls):
            async for number, outcome in calls:
                yield outcome if in_order else (number, outcome)

    async def job(self, id: str, timeout: float | None = None) -> "dict[str, Any]":
        """Information about a job: its state, attempts, times, and failed attempts. Raises NoSuchJob."""
        return await self.jobs.info(id, self._patience(timeout))

    async def result(
        self, id: str, wait: float = 0.0, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> Result:
        """Returns the result of a job, from any client. ``wait``: seconds to wait for it. ``on_progress`` is that of ``call``.

        Raises CallTimeout if there is none yet, CallFailed if the job is dead or was cancelled, and NoSuchJob.
        """
        return await self.jobs.result(id, wait, self._patience(timeout), on_progress)

    async def stream_result(
        self,
        id: str,
        after: str | int = "",
        wait: float | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[JobPart, None]:
        """Yields the partial replies of a job as they come, from any client, and then the rest of its result (``part.final``).

        Every part was stored before it is yielded, and has an ``attempt`` and a ``number``. ``after``: the ``id`` of the last part that you
        have, such as ``2.17``, or its number in the first attempt; the stream continues behind it. If the job fails and is tried again,
        the next attempt begins at number 1: what earlier attempts sent is not part of the result. ``wait``: seconds to wait for a further
        part; None: until the job ends. The stream goes on after a restart of the broker, if that takes less than ``timeout``.

        An empty rest only ends the stream and is not yielded. Raises CallFailed if the job is dead or was cancelled, CallTimeout, and
        NoSuchJob.
        """
        stream = self.jobs.stream(id, str(after), wait, self._patience(timeout), on_progress)
        try:
            async for part in stream:
                yield part
        finally:
            await stream.aclose()

    async def cancel(self, id: str, timeout: float | None = None) -> "dict[str, Any]":
        """Cancels a job without an outcome, or an open request, and returns its new state. Raises NoSuchJob."""
        return await self.jobs.cancel(id, self._patience(timeout))

    async def list_jobs(
        self, state: str = "", service: str = "", limit: int = 100, timeout: float | None = None
    ) -> "list[dict[str, Any]]":
        """Jobs, the newest first, at most ``limit`` (1,000 at most): all, those of one ``service``, or those in one ``state``: delayed,
        queued, running, open (all of these), done, dead or cancelled. Each has the keys that ``job`` returns, without the attempts."""
        return await self.jobs.list(state, service, limit, self._patience(timeout))

    async def dead_jobs(
        self, service: str = "", limit: int = 100, timeout: float | None = None
    ) -> "list[dict[str, Any]]":
        """Jobs that failed permanently, the newest first; ``outcome`` and ``reason`` say why."""
        return await self.list_jobs("dead", service, limit, timeout)

    async def retry_dead(
        self, id: str = "", *, service: str = "", all: bool = False, timeout: float | None = None
    ) -> int:
        """Runs dead jobs again: one, all of a service, or all. Returns how many there were."""
        return await self.jobs.dead("retry", id, service, all, self._patience(timeout))

    async def drop_dead(
        self, id: str = "", *, service: str = "", all: bool = False, timeout: float | None = None
    ) -> int:
        """Removes dead jobs: one, all of a service, or all. Returns how many there were."""
        return await self.jobs.dead("drop", id, service, all, self._patience(timeout))

    async def schedule(
        self,
        name: str,
        when: str,
        service: str = "",
        *body: Frame,
        flow: Flow | None = None,
        zone: str = "UTC",
        missed: str = "once",
        priority: int = 0,
        retries: "int | JobBackoff | None" = None,
        run_timeout: float | None = None,
        timeout: float | None = None,
        group: str = "",
        **arguments: object,
    ) -> "dict[str, Any]":
        """Declares a schedule that submits a job of ``service`` at each time that ``when`` names: a cron expression in the time zone
        ``zone``, or an interval such as ``every 30s``. Returns its name and the time of its next run.

        A program can declare its schedules each time it starts: one that has not changed is left as it is, and one that has changed
        replaces the schedule of the same name. ``missed`` says what happens to runs that were missed while no broker was up: ``once`` or
        ``skip``. The other arguments are those of ``submit_job``. With ``flow`` instead of a service, each run starts that flow.
        """
        if flow is not None:
            if service or body or arguments:
                raise SettingError("schedule: give a service or a flow, not both")
            text = write_stored_flow(flow)
            return await self.jobs.schedule(
                name, "", Times(when, zone, missed), [text], JobOptions(), self._patience(timeout)
            )
        if not service:
            raise SettingError("schedule: name a service, or give a flow")
        options = JobOptions(priority=priority, retries=retries, timeout=run_timeout, group=group)
        times = Times(when, zone, missed)
        return await self.jobs.schedule(
            name, service, times, frames_of(body, arguments), options, self._patience(timeout)
        )

    async def schedules(self, timeout: float | None = None) -> "list[dict[str, Any]]":
        """All schedules, with the time of their next run; ``problem`` says why one cannot run."""
        return await self.jobs.schedules(self._patience(timeout))

    async def unschedule(self, name: str, timeout: float | None = None) -> None:
        """Removes a schedule. Jobs that it has submitted are kept. Raises NoSuchJob if there is no such schedule."""
        await self.jobs.unschedule(name, self._patience(timeout))

    async def run_schedule(self, name: str, timeout: float | None = None) -> str:
        """Submits the job of a schedule now, in addition to its planned runs, and returns the job's id; or starts its flow, and returns the
        id of that. Raises NoSuchJob."""
        return await self.jobs.fire(name, self._patience(timeout))

    async def publish(self, topic: str | bytes, *body: Frame) -> None:
        """Publishes a message under ``topic``: subscribers get it, and the broker keeps it as the topic's last value. Without a body, it
        removes the last value.

        Returns when the message was passed to the connection; ``close`` sends what is left. Publishing has no answer: nothing reports
        that the broker lost the message or that you may not publish under this topic. Raises NotConnected.
        """
        self._here()
        await self._topics.publish(topic, encode(body))

    def subscribe(self, *topics: str | bytes) -> Subscription:
        """The messages whose topics begin with one of ``topics``, or all: first the last value of each topic, then new messages.

        Use it as ``async with`` and ``async for topic, message in ...``. It reconnects when the connection is lost.
        """
        return self._topics.subscribe(topics)

    async def services(self, timeout: float | None = None) -> "list[dict[str, Any]]":
        """The services that workers offer, with their workers, queues, counts and latencies; the rows of ``polydomo services --json``."""
        rows: list[dict[str, Any]] = (await self.call("polydomo.services", timeout=timeout)).json()
        return rows

    async def register(
        self,
        name: str,
        *,
        port: int,
        function: str = "",
        ip: str = "",
        heartbeat: float = DBP_BEAT,
        **fields: object,
    ) -> RegisteredService:
        """Registers a service in the catalog, over DBP, and keeps it registered with heartbeats until it is closed, or the client is.

        The service itself listens at ``port`` of ``ip`` (default: this machine, as the broker sees it). ``function`` says what it does.
        A ``heartbeat`` of 0 sends none. Further keywords are stored in its entry. Raises NotConnected, or CallFailed with the code
        ``denied`` and the broker's reason.
        """
        self._here()
        given: dict[str, object] = {"ip": ip or None, "heartbeat": heartbeat or None}
        information = {"name": name, "port": port, "function": function, **fields}
        information.update((key, value) for key, value in given.items() if value is not None)
        return await self._catalog.register(information)

    async def lookup(
        self, name: str = "", *, function: str = "", timeout: float | None = None
    ) -> "list[dict[str, Any]]":
        """Entries of the catalog, over DBP: those with this ``name`` or ``function``, or all. ``function="images*"`` finds all that begin
        with "images". An entry of another broker that is joined by a bridge has ``broker``. Services that workers offer over other
        protocols are in the catalog too. The list is empty if there is none."""
        self._here()
        return await self._catalog.lookup(name, function, DBP_ANSWER_TIME if timeout is None else timeout)

    async def start(self, flow: Flow, key: str | None = None, timeout: float | None = None) -> AsyncFlowRun:
        """Starts a flow and returns its run once the broker has stored it. Starts with the same ``key`` and the same nodes return the same
        run as long as its results are kept."""
        flows = FlowClient(self.jobs, self._patience(timeout))
        return AsyncFlowRun(flows, await flows.start(flow, key))

    def flow(self, id: str, timeout: float | None = None) -> AsyncFlowRun:
        """The run of a flow that any client has started."""
        return AsyncFlowRun(FlowClient(self.jobs, self._patience(timeout)), id)

    async def flows(self, state: str = "", limit: int = 100, timeout: float | None = None) -> "list[dict[str, Any]]":
        """Flows, the newest first, of any state or of one: running, cancelling, retrying, done, failed or cancelled."""
        return await FlowClient(self.jobs, self._patience(timeout)).list(state, limit)

    def _patience(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout

    async def _ask(
        self, service: str, body: list[bytes], timeout: float, on_progress: OnProgress | None = None
    ) -> list[bytes]:
        """Calls a built-in service of the broker."""
        once, name = Retries(1), service.encode()
        return list(await self._attempt(name, b"", body, _deadline(timeout), timeout, once, PLAIN, on_progress))

    def _moved(self, leader: str) -> None:
        """Another broker is the leader. It is found by trying the other addresses."""
        self._pool.move_on()

    async def offered(self, service: str | bytes, timeout: float | None = None) -> bool:
        """Whether a worker currently offers ``service`` (MMI's ``mmi.service``)."""
        result = await self.call("mmi.service", _name(service), timeout=timeout)
        if result.body not in (b"200", b"404"):
            raise CallFailed(result.body.decode(errors="replace"), "the broker does not answer mmi.service")
        return result.body == b"200"

    async def _check(self, name: bytes, seconds: float) -> None:
        if not await self.offered(name, seconds):
            raise NoSuchService(f"no worker offers {name.decode(errors='replace')}")

    def _write(self, headers: Headers | None) -> bytes:
        if not headers:
            return b""
        dialer = registry.find(self.protocol)
        if dialer.headers is None:
            raise SettingError(f"headers: {dialer.title} has no headers; use eMQP (protocol='emqp')")
        return dialer.headers(headers)

    def _options(self, key: str, group: str, near: str) -> RequestOptions:
        for name, value in (("group", group), ("near", near)):
            fault = mark_fault(value.encode("utf-8", "replace")) if value else ""
            if fault:
                raise SettingError(f"{name}: {value!r:.100} {fault}")
            if value and not self.carries_keys:
                raise SettingError(f"{name}: {registry.find(self.protocol).title} cannot carry it; use MDX or eMQP")
            if value and self.protocol == "emqp" and (value != value.strip() or "," in value):
                raise SettingError(f"{name}: {value!r} is a header of eMQP and has no commas or surrounding spaces")
        return options_of(False, self._key_bytes(key), group.encode(), near.encode())

    def _key_bytes(self, key: str) -> bytes:
        if not key:
            return b""
        if not self.carries_keys:
            raise SettingError(f"key: {registry.find(self.protocol).title} cannot carry a key; use MDX or eMQP")
        idempotency_key = key.encode()
        if len(idempotency_key) > MAX_JOB_KEY:
            raise SettingError(f"key: {len(idempotency_key)} bytes, the limit is {MAX_JOB_KEY}")
        if self.protocol == "emqp" and (key != key.strip() or "," in key):
            raise SettingError(f"key: {key!r} is a header of eMQP and has no commas or surrounding spaces")
        return idempotency_key

    async def _attempt(
        self,
        name: bytes,
        headers: bytes,
        frames: list[bytes],
        deadline: float,
        seconds: float,
        retry: Retries,
        options: RequestOptions = PLAIN,
        on_progress: OnProgress | None = None,
    ) -> Result:
        """Sends the request once and waits for its outcome."""
        loop = asyncio.get_running_loop()
        single = Single(name, headers, loop, options)
        single.on_progress = on_progress
        patience = seconds
        if retry.attempt_timeout is not None and retry.attempt_timeout < seconds:
            patience = retry.attempt_timeout
            deadline = min(deadline, loop.time() + patience)
        connection, key, timer = await self._begin(single, frames, deadline, patience, seconds)
        try:
            return await single.future
        finally:
            self._end(connection, key, timer)

    async def _begin(
        self, pending: Pending, frames: list[bytes], deadline: float, patience: float, seconds: float
    ) -> tuple[PooledConnection, int, asyncio.TimerHandle]:
        connection = await self._here().acquire(deadline)
        if connection.connection.must_ask(frames):
            try:
                await connection.connection.ask_limit()
            finally:
                self._pool.release(connection)
            connection = await self._pool.acquire(deadline)  # it may have been lost meanwhile
        loop = asyncio.get_running_loop()
        self._keys += 1
        key = self._keys
        pending.deadline, pending.timeout = deadline, patience
        try:
            connection.ask(key, pending, frames, deadline - loop.time() if seconds < FOREVER else 0.0)
        except BaseException:
            self._pool.release(connection)
            raise
        return connection, key, loop.call_at(deadline, pending.expire)

    def _here(self) -> Pool:
        """The connections of the current event loop. Those of a closed loop are gone; the next ``asyncio.run`` opens new ones."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                if not self._loop.is_closed():
                    raise RuntimeError(
                        "an AsyncClient can be used in one event loop at a time; create one per loop, or share a Client"
                    )
                closed = self._pool.closed
                self._pool = self._make_pool()
                self._pool.closed = closed
            self._loop = loop
        return self._pool

    def _end(self, connection: PooledConnection, key: int, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        connection.finish(key)
        self._pool.release(connection)


def _name(service: str | bytes) -> bytes:
    if not isinstance(service, str | bytes):
        raise TypeError(f"the name of a service must be str or bytes, not {type(service).__name__}")
    name = service.encode() if isinstance(service, str) else service
    if len(name) > MAX_SERVICE_NAME:  # no worker can offer it, and a broker would drop the request
        raise NoSuchService(f"service name of {len(name)} bytes; the limit is {MAX_SERVICE_NAME}")
    return name


def _deadline(seconds: float) -> float:
    if not seconds >= 0:  # NaN is not comparable
        raise SettingError(f"timeout: must be 0 seconds or more, not {seconds}")
    return asyncio.get_running_loop().time() + min(seconds, FOREVER)


async def _before_next(error: CallError, backoff: ReconnectDelay, deadline: float) -> None:
    """Waits before the next attempt, or raises ``error`` again if there should be none."""
    if not isinstance(error, ConnectionLost | CallTimeout) and not (
        isinstance(error, CallFailed) and error.code in REPEATABLE
    ):
        raise error
    wait = backoff.next()
    if asyncio.get_running_loop().time() + wait >= deadline:
        raise error
    await asyncio.sleep(wait)
