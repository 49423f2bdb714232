"""A publisher that never waits: messages are put in a bounded line, and a thread of its own sends them."""

import asyncio
import threading
from collections import deque
from types import TracebackType
from typing import Self

from polydomo.client.background import Background
from polydomo.client.connection import Connection, connect
from polydomo.client.message import Frame, encode
from polydomo.client.retry import Backoff
from polydomo.client.security import Security, target
from polydomo.errors import NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import CLOSE_TIME, CONNECT_TIME, LOG_QUEUE, LOG_QUEUE_BYTES
from polydomo.protocols.pubsub_ends import PublisherEnd
from polydomo.wire.address import Address

PIECE = 256  # messages handed to the connection before it is asked whether it can take more


class Publisher:
    """Publishes to a broker, from any thread.

    ```python
    with Publisher("tcp://127.0.0.1:5246") as publisher:
        publisher.publish("weather.oslo", "snow")
    ```

    ``publish`` does not wait, whatever the network does. What the line cannot hold is dropped and counted in ``dropped``; while the
    broker cannot be reached, messages wait in line, and the connection is tried again and again.
    """

    def __init__(
        self,
        to: str | None = None,
        max_messages: int = LOG_QUEUE,
        max_bytes: int = LOG_QUEUE_BYTES,
        *,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
    ) -> None:
        address = target(to, key, server_key, context, security)
        self.url = str(address)
        self._line = Line(max_messages, max_bytes)
        self._background = Background(self, "polydomo-publisher")
        self._sender = Sender(self._line)
        self._background.submit(self._sender.run(address))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def closed(self) -> bool:
        return self._line.closed

    @property
    def dropped(self) -> int:
        """Messages that found no place in line."""
        return self._line.dropped

    def publish(self, topic: str | bytes, *body: Frame) -> bool:
        """Puts a message in line. False if it was dropped: the line is full, or the publisher closed."""
        name = topic.encode() if isinstance(topic, str) else topic
        length = self._line.put([name, *encode(body)])
        if length == 1:
            self._background.loop.call_soon_threadsafe(self._sender.news.set)
        return length > 0

    def flush(self, timeout: float = CLOSE_TIME) -> bool:
        """Waits until everything in line is on its way. False if that took too long."""
        if self._background.forked:
            return False
        return self._background.run(self._sender.drained(timeout))

    def close(self, timeout: float = CLOSE_TIME) -> None:
        """Sends what is in line, within ``timeout`` seconds, and ends."""
        if not self._line.closed:
            self._line.closed = True
            if not self._background.forked:
                self._background.run(self._sender.finish(timeout))
            self._background.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Line:
    """Messages that wait to be sent; filled by any thread, emptied by one."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.dropped = 0
        self.closed = False
        self._messages: deque[list[bytes]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, message: list[bytes]) -> int:
        """How long the line is now; 0 if the message was dropped."""
        size = sum(map(len, message))
        with self._lock:
            if self.closed or len(self._messages) >= self.max_messages or self._bytes + size > self.max_bytes:
                self.dropped += 1
                return 0
            self._bytes += size
            self._messages.append(message)
            return len(self._messages)

    def take(self, most: int) -> list[list[bytes]]:
        with self._lock:
            taken = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
            self._bytes -= sum(len(frame) for message in taken for frame in message)
        return taken

    def __len__(self) -> int:
        return len(self._messages)


class Sender:
    """Empties the line into a connection, made again whenever it is lost. It does not know the publisher, which may be forgotten
    unclosed."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.news = asyncio.Event()  # there may be something in line
        self.idle = asyncio.Event()  # nothing is
        self._connection: Connection | None = None

    async def run(self, address: Address) -> None:
        backoff = Backoff()
        while True:
            end = PublisherEnd()
            try:
                self._connection = await connect(address, end, lambda event: None, self._lost, CONNECT_TIME)
            except (NotConnected, ProtocolViolation):
                await asyncio.sleep(backoff.next())
                continue
            if await self._send(self._connection, end):
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _lost(self, error: PolydomoError) -> None:
        self.news.set()

    async def _send(self, connection: Connection, end: PublisherEnd) -> bool:
        """Until the connection is lost. Whether it was of any use."""
        useful = False
        while connection.alive:
            await connection.writable()
            for topic, *body in self.line.take(PIECE):
                end.publish(topic, body)
                useful = True
            connection.flush_soon()
            if not self.line:
                self.idle.set()
                self.news.clear()
                if not self.line and connection.alive:
                    await self.news.wait()
                self.idle.clear()
        return useful

    async def drained(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                while self.line:
                    await self.idle.wait()
                    await asyncio.sleep(0)
        except TimeoutError:
            return False
        return True

    async def finish(self, timeout: float) -> None:
        await self.drained(timeout)
        connection = self._connection
        if connection is not None and connection.alive:
            connection.close("the publisher is closed")
            await asyncio.wait([connection.gone], timeout=CLOSE_TIME)
