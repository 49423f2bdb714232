"""The blocking client: the asyncio client on an event loop in a background thread."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from polydomo.client.aio import AsyncClient
from polydomo.client.background import Background
from polydomo.client.bulk import Body, frames_of_body
from polydomo.client.flows import FlowRun
from polydomo.client.mapping import map_blocking
from polydomo.client.message import Frame, Headers, JobPart, Result
from polydomo.client.pending import OnProgress
from polydomo.client.registered import BlockingRegisteredService
from polydomo.client.retry import Retries
from polydomo.client.security import Security
from polydomo.client.topics import BlockingSubscription
from polydomo.limits import CALL_TIME, CONNECT_TIME, DBP_BEAT, MAP_OUTSTANDING, POOL_CONNECTIONS
from polydomo.model.flows.flow import Flow
from polydomo.model.retry_policy import Backoff as JobBackoff
from polydomo.protocols import registry


class CallFuture(Future[Result]):
    """The future of a submitted call. ``cancel`` returns True only if the request is also cancelled at the broker."""

    def __init__(self, running: "Future[Result]", cancels: Callable[[], bool]) -> None:
        super().__init__()
        self._running = running
        self._cancels = cancels
        running.add_done_callback(self._over)

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if self.done() or not self._cancels() or not self._running.cancel():
            return False
        return super().cancel()

    def _over(self, running: "Future[Result]") -> None:
        if running.cancelled():
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        error = running.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(running.result())


class Client:
    """Calls services through a broker and waits for the replies. Arguments and errors are those of ``AsyncClient``.

    ```python
    with Client("tcp://127.0.0.1:5246") as client:
        print(client.call("echo", "hello").text)

        for part in client.stream("count", "3"):
            print(part.text)

        futures = [client.submit("echo", str(n)) for n in range(1000)]  # all of them at once
        print([future.result().text for future in futures])
    ```

    A client can be used by several threads at once.
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
        self._client = AsyncClient(
            to,
            protocol,
            key=key,
            server_key=server_key,
            context=context,
            security=security,
            timeout=timeout,
            retries=retries,
            connect_timeout=connect_timeout,
            refused_timeout=refused_timeout,
            max_connections=max_connections,
            **options,
        )
        self._background = Background(self, "polydomo-client")
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client.protocol} {self._client.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def protocol(self) -> str:
        return self._client.protocol

    def connect(self) -> None:
        """Connects now instead of with the first call. Raises NotConnected."""
        self._background.run(self._client.connect())

    def close(self) -> None:
        """Ends open calls with ConnectionLost, closes all connections, and stops the thread."""
        if not self._closed:
            self._closed = True
            if not self._background.forked:  # the connections belong to the parent process and stay open there
                self._background.run(self._client.close())
            self._background.stop()

    def call(
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
        """Calls ``service`` and returns its reply; see ``AsyncClient.call``. ``on_progress`` runs in the client's own thread, and must not
        use the client."""
        return self._background.run(
            self._client.call(
                service,
                *body,
                timeout=timeout,
                retries=retries,
                check=check,
                headers=headers,
                key=key,
                group=group,
                near=near,
                on_progress=on_progress,
                **arguments,
            )
        )

    def submit(
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
    ) -> "Future[Result]":
        """Like ``call``, but returns a future at once; its ``.result()`` waits.

        Its ``cancel()`` returns True if the call is cancelled: the broker drops the request if it is queued, and cancels it at the worker
        if it runs. It returns False if the call has ended, or if it cannot be cancelled at the broker; then the call continues.
        """
        call = self._client.call(
            service,
            *body,
            timeout=timeout,
            retries=retries,
            check=check,
            headers=headers,
            key=key,
            group=group,
            near=near,
            on_progress=on_progress,
            **arguments,
        )
        return CallFuture(self._background.submit(call), self._client.cancels)

    def stream(
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
    ) -> Iterator[Result]:
        """Calls ``service`` and yields its partial replies as they arrive, then the final one; see ``AsyncClient.stream``."""
        stream = self._client.stream(
            service,
            *body,
            timeout=timeout,
            retries=retries,
            check=check,
            headers=headers,
            key=key,
            group=group,
            near=near,
            on_progress=on_progress,
            **arguments,
        )
        try:
            while True:
                try:
                    yield self._background.run(stream.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._background.finish(stream.aclose())

    def submit_job(
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
        """Submits a durable job and returns its id once the broker has stored it; see ``AsyncClient.submit_job``."""
        return self._background.run(
            self._client.submit_job(
                service,
                *body,
                key=key,
                delay=delay,
                at=at,
                priority=priority,
                ttl=ttl,
                retries=retries,
                run_timeout=run_timeout,
                timeout=timeout,
                group=group,
                near=near,
                **arguments,
            )
        )

    def submit_jobs(
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
        """Submits a durable job for each body and returns their ids once all are stored; see ``AsyncClient.submit_jobs``."""
        return self._background.run(
            self._client.submit_jobs(
                service,
                bodies,
                keys=keys,
                delay=delay,
                at=at,
                priority=priority,
                ttl=ttl,
                retries=retries,
                run_timeout=run_timeout,
                timeout=timeout,
                group=group,
                near=near,
            )
        )

    def map(
        self,
        service: str | bytes,
        bodies: Iterable[Body],
        *,
        outstanding: int = MAP_OUTSTANDING,
        in_order: bool = True,
        return_errors: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        """Calls ``service`` for each body, with at most ``outstanding`` calls open, and yields the results; see ``AsyncClient.map``."""
        calls = map_blocking(
            lambda body: self.submit(service, *frames_of_body(body), **options),
            bodies, outstanding, in_order, return_errors,
        )  # fmt: skip
        with contextlib.closing(calls):
            for number, outcome in calls:
                yield outcome if in_order else (number, outcome)

    def job(self, id: str, timeout: float | None = None) -> "dict[str, Any]":
        """Information about a job; see ``AsyncClient.job``."""
        return self._background.run(self._client.job(id, timeout))

    def result(
        self, id: str, wait: float = 0.0, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> Result:
        """Returns the result of a job, after waiting at most ``wait`` seconds; see ``AsyncClient.result``."""
        return self._background.run(self._client.result(id, wait, timeout, on_progress))

    def stream_result(
        self,
        id: str,
        after: str | int = "",
        wait: float | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Iterator[JobPart]:
        """Yields the partial replies of a job as they come, and then the rest of its result; see ``AsyncClient.stream_result``."""
        stream = self._client.stream_result(id, after, wait, timeout, on_progress)
        try:
            while True:
                try:
                    yield self._background.run(stream.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._background.finish(stream.aclose())

    def cancel(self, id: str, timeout: float | None = None) -> "dict[str, Any]":
        """Cancels a job or an open request; see ``AsyncClient.cancel``."""
        return self._background.run(self._client.cancel(id, timeout))

    def list_jobs(
        self, state: str = "", service: str = "", limit: int = 100, timeout: float | None = None
    ) -> "list[dict[str, Any]]":
        """Jobs, the newest first; see ``AsyncClient.list_jobs``."""
        return self._background.run(self._client.list_jobs(state, service, limit, timeout))

    def dead_jobs(self, service: str = "", limit: int = 100, timeout: float | None = None) -> "list[dict[str, Any]]":
        """Jobs that failed permanently; see ``AsyncClient.dead_jobs``."""
        return self._background.run(self._client.dead_jobs(service, limit, timeout))

    def retry_dead(self, id: str = "", *, service: str = "", all: bool = False, timeout: float | None = None) -> int:
        """Runs dead jobs again: one, all of a service, or all. Returns how many there were."""
        return self._background.run(self._client.retry_dead(id, service=service, all=all, timeout=timeout))

    def drop_dead(self, id: str = "", *, service: str = "", all: bool = False, timeout: float | None = None) -> int:
        """Removes dead jobs: one, all of a service, or all. Returns how many there were."""
        return self._background.run(self._client.drop_dead(id, service=service, all=all, timeout=timeout))

    def schedule(
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
        """Declares a schedule, which is left as it is if it exists and has not changed; see ``AsyncClient.schedule``."""
        return self._background.run(
            self._client.schedule(
                name,
                when,
                service,
                *body,
                flow=flow,
                zone=zone,
                missed=missed,
                priority=priority,
                retries=retries,
                run_timeout=run_timeout,
                timeout=timeout,
                group=group,
                **arguments,
            )
        )

    def schedules(self, timeout: float | None = None) -> "list[dict[str, Any]]":
        """All schedules, with the time of their next run."""
        return self._background.run(self._client.schedules(timeout))

    def unschedule(self, name: str, timeout: float | None = None) -> None:
        """Removes a schedule. Raises NoSuchJob if there is no such schedule."""
        self._background.run(self._client.unschedule(name, timeout))

    def run_schedule(self, name: str, timeout: float | None = None) -> str:
        """Submits the job of a schedule now, or starts its flow, and returns the id. Raises NoSuchJob."""
        return self._background.run(self._client.run_schedule(name, timeout))

    def publish(self, topic: str | bytes, *body: Frame) -> None:
        """Publishes a message under ``topic``; see ``AsyncClient.publish``."""
        self._background.run(self._client.publish(topic, *body))

    def subscribe(self, *topics: str | bytes) -> BlockingSubscription:
        """Iterates over the messages whose topics begin with one of ``topics``, or all: first the last value of each topic, then new
        messages. It reconnects when the connection is lost. ``close`` it, or use it as ``with``. Raises NotConnected."""
        return BlockingSubscription(self._background, self._client.subscribe(*topics))

    def services(self, timeout: float | None = None) -> "list[dict[str, Any]]":
        """The services that workers offer; see ``AsyncClient.services``."""
        return self._background.run(self._client.services(timeout))

    def register(
        self,
        name: str,
        *,
        port: int,
        function: str = "",
        ip: str = "",
        heartbeat: float = DBP_BEAT,
        **fields: object,
    ) -> BlockingRegisteredService:
        """Registers a service in the catalog and keeps it registered until it is closed, or the client is; see ``AsyncClient.register``."""
        registering = self._client.register(name, port=port, function=function, ip=ip, heartbeat=heartbeat, **fields)
        return BlockingRegisteredService(self._background, self._background.run(registering))

    def lookup(self, name: str = "", *, function: str = "", timeout: float | None = None) -> "list[dict[str, Any]]":
        """Entries of the catalog, by name or by function; see ``AsyncClient.lookup``."""
        return self._background.run(self._client.lookup(name, function=function, timeout=timeout))

    def start(self, flow: Flow, key: str | None = None, timeout: float | None = None) -> FlowRun:
        """Starts a flow and returns its run once the broker has stored it; see ``AsyncClient.start``."""
        return FlowRun(self._background.run(self._client.start(flow, key, timeout)), self._background)

    def flow(self, id: str, timeout: float | None = None) -> FlowRun:
        """The run of a flow that any client has started."""
        return FlowRun(self._client.flow(id, timeout), self._background)

    def flows(self, state: str = "", limit: int = 100, timeout: float | None = None) -> "list[dict[str, Any]]":
        """Flows, the newest first; see ``AsyncClient.flows``."""
        return self._background.run(self._client.flows(state, limit, timeout))

    def offered(self, service: str | bytes, timeout: float | None = None) -> bool:
        """Whether a worker currently offers ``service``."""
        return self._background.run(self._client.offered(service, timeout))
