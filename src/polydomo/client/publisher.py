"""A publisher that never blocks its caller: messages go to a bounded queue, and a background thread sends them."""

import asyncio
import atexit
import logging
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import Self

from polydomo.client.background import Background
from polydomo.client.connection import BrokerConnection, connect
from polydomo.client.message import Frame, check_size, encode
from polydomo.client.retry import ReconnectDelay
from polydomo.client.security import Security, target
from polydomo.client.suspension import running_timeout, wait_running
from polydomo.errors import NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import CLOSE_TIME, CONNECT_TIME, LOG_QUEUE, LOG_QUEUE_BYTES
from polydomo.protocols.pubsub.ends import PublisherEnd
from polydomo.wire.address import Address

log = logging.getLogger("polydomo.publisher")

PIECE = 256  # messages passed to the connection before checking whether it can take more


class Publisher:
    """Publishes to a broker, from any thread.

    ```python
    with Publisher("tcp://127.0.0.1:5246") as publisher:
        publisher.publish("weather.oslo", "snow")
    ```

    ``publish`` never blocks. If the queue is full, messages are dropped and counted in ``dropped``. While the broker cannot be reached,
    messages stay in the queue, and the publisher keeps trying to connect. When the program exits, every open publisher sends its
    queued messages, for at most ``CLOSE_TIME`` seconds.
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
        self._queue = Queue(max_messages, max_bytes)
        self._background = Background(self, "polydomo-publisher")
        self._sender = Sender(self._queue)
        self._background.submit(self._sender.run(address))
        _close_at_exit(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def closed(self) -> bool:
        return self._queue.closed

    @property
    def dropped(self) -> int:
        """The number of messages that were not sent: the queue was full, or they were still queued when the publisher was closed."""
        return self._queue.dropped

    def publish(self, topic: str | bytes, *body: Frame) -> bool:
        """Queues a message. Returns False if it was dropped, because the queue is full or the publisher is closed."""
        name = topic.encode() if isinstance(topic, str) else topic
        frames = encode(body)
        check_size(frames)
        length = self._queue.put([name, *frames])
        if length == 1:
            self._background.loop.call_soon_threadsafe(self._sender.news.set)
        return length > 0

    def flush(self, timeout: float = CLOSE_TIME) -> bool:
        """Waits until all queued messages are sent. Returns False if that took longer than ``timeout`` seconds."""
        if self._background.forked:
            return False
        return self._background.run(self._sender.drained(timeout))

    def close(self, timeout: float = CLOSE_TIME) -> None:
        """Sends queued messages for at most ``timeout`` seconds, then closes. Unsent messages are counted in ``dropped``."""
        if not self._queue.closed:
            self._queue.closed = True
            if not self._background.forked:
                self._background.run(self._sender.finish(timeout))
                lost = self._queue.give_up()
                if lost:
                    log.warning("%d messages were not published, because no broker accepted them (%s)", lost, self.url)
            self._background.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# At exit a publisher must be closed before the thread of its ``Background`` is stopped. Functions that are registered later run earlier,
# and ``Background`` has registered its own (by ``weakref.finalize``) before this one. ``logging.shutdown`` would come too late.
_open: "weakref.WeakSet[Publisher]" = weakref.WeakSet()
_registered = False


def _close_at_exit(publisher: Publisher) -> None:
    global _registered
    _open.add(publisher)
    if not _registered:
        _registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    """Closes all publishers at exit, within ``CLOSE_TIME`` in total, so that the waits for lost brokers do not add up."""
    end = time.monotonic() + CLOSE_TIME
    for publisher in [publisher for publisher in _open if not publisher.closed]:
        publisher.close(max(0.0, end - time.monotonic()))


class Queue:
    """The queue of messages, filled by any thread and emptied by one."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.dropped = 0
        self.closed = False
        self._messages: deque[list[bytes]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, message: list[bytes]) -> int:
        """Returns the number of queued messages; 0 if this one was dropped."""
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

    def give_up(self) -> int:
        """Drops and counts the remaining messages. Returns their number."""
        lost = len(self.take(len(self._messages)))
        self.dropped += lost
        return lost

    def __len__(self) -> int:
        return len(self._messages)


class Sender:
    """Sends the queue over a connection, reconnecting whenever it is lost. It has no reference to the publisher, so that a publisher that
    was never closed can be garbage collected."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.news = asyncio.Event()  # something may be queued
        self.idle = asyncio.Event()  # nothing is queued
        self._connection: BrokerConnection | None = None

    async def run(self, address: Address) -> None:
        backoff = ReconnectDelay()
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

    async def _send(self, connection: BrokerConnection, end: PublisherEnd) -> bool:
        """Sends until the connection is lost. Returns whether anything was sent."""
        useful = False
        while connection.alive:
            await connection.writable()
            for topic, *body in self.queue.take(PIECE):
                end.publish(topic, body)
                useful = True
            connection.flush_soon()
            if not self.queue:
                self.idle.set()
                self.news.clear()
                if not self.queue and connection.alive:
                    await self.news.wait()
                self.idle.clear()
        return useful

    async def drained(self, timeout: float) -> bool:
        try:
            async with running_timeout(timeout):
                while self.queue:
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
            await wait_running([connection.gone], CLOSE_TIME)
