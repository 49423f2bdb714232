"""Concurrent calls over one connection, in a task of Spark: requests in, replies out, in the same order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from polydomo.client.aio import AsyncClient
from polydomo.client.message import Result
from polydomo.errors import CallError
from polydomo.spark.keys import RequestKeys, run_prefix

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The broker, and how to call it. It is sent to executors, so it has only plain values."""

    to: str
    protocol: str = "mdx"
    timeout: float = 60.0
    retries: int = 3
    outstanding: int = 64
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of the client, such as key and server_key

    def client(self) -> AsyncClient:
        return AsyncClient(self.to, self.protocol, timeout=self.timeout, retries=self.retries, **self.options)


class ConcurrentCalls(Generic[T]):
    """Keeps up to ``outstanding`` calls open. The event loop runs only while the task waits for a reply. Other replies wait in
    the socket, and the broker sends no more than the task reads."""

    def __init__(
        self,
        target: Target,
        begin: "Callable[[AsyncClient, bytes | list[bytes], T], Coroutine[Any, Any, Result]]",
    ) -> None:
        self._target = target
        self._begin = begin
        self._open: deque[tuple[T, asyncio.Task[Result]]] = deque()

    def run(self, requests: "Iterable[tuple[bytes | list[bytes], T]]") -> Iterator[list[tuple[T, Result | CallError]]]:
        """``requests`` are bodies, each with a tag of any type; yields lists of the tag and the reply, or the error of the call."""
        loop = _new_loop()
        client = self._target.client()
        try:
            source = iter(requests)
            while done := loop.run_until_complete(self._advance(client, source)):
                yield done
        finally:
            for _, task in self._open:
                task.cancel()
            loop.run_until_complete(client.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _advance(
        self, client: AsyncClient, source: "Iterator[tuple[bytes | list[bytes], T]]"
    ) -> list[tuple[T, Result | CallError]]:
        """Opens calls up to the limit, waits for the oldest, and returns it with all calls after it that have ended. Empty at the end."""
        opened = self._open
        while len(opened) < self._target.outstanding:
            request = next(source, None)
            if request is None:
                break
            body, belongs = request
            opened.append((belongs, asyncio.ensure_future(self._begin(client, body, belongs))))
        if not opened:
            return []
        await asyncio.wait([opened[0][1]])
        done: list[tuple[T, Result | CallError]] = []
        while opened and opened[0][1].done():
            belongs, task = opened.popleft()
            error = task.exception()
            if error is not None and not isinstance(error, CallError):
                raise error
            done.append((belongs, error if error is not None else task.result()))
        return done


def caller(
    service: str, name: str, group: str = ""
) -> "Callable[[AsyncClient, bytes | list[bytes], Any], Coroutine[Any, Any, Result]]":
    """Calls one service. Each call has a key, if the protocol can carry one: a request that Spark repeats while the first one is open joins
    it. ``name`` is that of the write or of the DataFrame."""
    keys = RequestKeys(run_prefix(name))

    def begin(client: AsyncClient, body: "bytes | list[bytes]", belongs: object) -> Coroutine[Any, Any, Result]:
        frames = [body] if isinstance(body, bytes) else body
        return client.call(service, *frames, key=keys.key_of(frames) if client.carries_keys else "", group=group)

    return begin


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
