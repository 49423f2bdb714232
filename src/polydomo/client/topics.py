"""Topics for clients: publishes over one connection, and subscriptions that survive a restart of the broker."""

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from polydomo.client.background import Background
from polydomo.client.connection import BrokerConnection, connect, connect_first
from polydomo.client.message import Message, check_size
from polydomo.client.retry import ReconnectDelay
from polydomo.client.subscriber import AsyncSubscriber
from polydomo.client.suspension import running_timeout, wait_running
from polydomo.errors import CallTimeout, ConnectionLost, NotConnected, SettingError
from polydomo.limits import CLOSE_TIME, MAX_TOPIC
from polydomo.protocols.pubsub.ends import PublisherEnd
from polydomo.wire.address import Address

log = logging.getLogger("polydomo.client")

BROKERS_OWN = b"monitor."  # topics that only the broker publishes


def topic_name(topic: str | bytes) -> bytes:
    """Checks a topic to publish. The broker would drop the message without an answer, because publishing has none."""
    name = topic.encode() if isinstance(topic, str) else topic
    if not name or len(name) > MAX_TOPIC:
        raise SettingError(f"topic: must have 1 to {MAX_TOPIC} bytes, not {len(name)}")
    if name.startswith(BROKERS_OWN):
        raise SettingError(f"topic: only the broker publishes under {BROKERS_OWN.decode()!r}")
    return name


class PublishConnection:
    """The connection of a client for its publications: opened by the first one, and again after it was lost."""

    def __init__(self, addresses: list[Address], connect_timeout: float) -> None:
        self._addresses = addresses
        self._connect_timeout = connect_timeout
        self._connection: BrokerConnection | None = None
        self._end = PublisherEnd()
        self._opening = asyncio.Lock()

    async def publish(self, topic: bytes, body: list[bytes]) -> None:
        """Returns when the message was passed to the connection. Raises NotConnected, or ConnectionLost if it may not have arrived."""
        check_size(body)
        async with self._opening:
            if self._connection is None or not self._connection.alive:
                self._connection = await connect_first(self._addresses, self._dial)
        connection, end = self._connection, self._end
        await connection.writable()
        if not connection.alive:
            raise ConnectionLost(f"{connection.address}: the connection was lost before the message was sent")
        end.publish(topic, body)
        connection.flush_soon()

    async def _dial(self, address: Address) -> BrokerConnection:
        self._end = PublisherEnd()
        return await connect(address, self._end, lambda event: None, lambda error: None, self._connect_timeout)

    async def close(self) -> None:
        """Sends what was published, for at most ``CLOSE_TIME`` seconds."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("the client was closed")
            await wait_running([connection.gone], CLOSE_TIME)
            connection.close("the client was closed", abort=True)


class Subscription:
    """The messages under some topic prefixes, for asyncio: first the last value of each topic, then new messages as they arrive.

    ```python
    async with client.subscribe("weather.") as subscription:
        async for topic, message in subscription:
            print(topic, message.text)
    ```

    It reconnects after a lost connection, and then receives the last values again; messages that were published meanwhile are missing.
    """

    def __init__(self, make: Callable[[], AsyncSubscriber], forget: "Callable[[Subscription], None]") -> None:
        self._make = make
        self._forget = forget
        self._subscriber: AsyncSubscriber | None = None
        self._opened = False  # it was connected once: from then on it reconnects
        self._closed = False

    async def open(self) -> None:
        """Connects and subscribes now instead of with the first message. Raises NotConnected."""
        if self._subscriber is None:
            self._subscriber = await self._make().__aenter__()
            self._opened = True

    async def next(self, timeout: float | None = None) -> tuple[str, Message]:
        """The next message, with its topic. Raises CallTimeout if none arrives within ``timeout`` seconds, NotConnected if the first
        connection cannot be opened, and ConnectionLost after ``close``."""
        if timeout is None:
            found = await self._take()
        else:
            try:
                async with running_timeout(timeout):
                    found = await self._take()
            except TimeoutError:
                raise CallTimeout(f"no message within {timeout:g} s") from None
        if found is None:
            raise ConnectionLost("the subscription was closed")
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, Message]:
        found = await self._take()
        if found is None:
            raise StopAsyncIteration
        return found

    async def _take(self) -> tuple[str, Message] | None:
        """The next message; None once the subscription is closed."""
        delay = ReconnectDelay()
        while not self._closed:
            try:
                await self.open()
                assert self._subscriber is not None
                return await self._subscriber.next()
            except ConnectionLost as error:
                if not self._opened:
                    raise
                if self._subscriber is not None and not self._closed:
                    log.warning("the subscription at %s was lost: %s; subscribing again", self._subscriber.url, error)
                self._subscriber = None
            if not self._closed:
                await asyncio.sleep(delay.next())
        return None

    async def close(self) -> None:
        """Ends the iteration. Messages that were not read are dropped."""
        self._closed = True
        self._forget(self)
        if self._subscriber is not None:
            await self._subscriber.close()

    @property
    def closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class BlockingSubscription:
    """The messages under some topic prefixes: first the last value of each topic, then new messages as they arrive.

    ```python
    with client.subscribe("weather.") as subscription:
        for topic, message in subscription:
            print(topic, message.text)
    ```

    It reconnects as ``Subscription`` does. ``close`` ends the loop, also from another thread.
    """

    def __init__(self, background: Background, subscription: Subscription) -> None:
        self._background = background
        self._subscription = subscription
        background.run(subscription.open())

    def next(self, timeout: float | None = None) -> tuple[str, Message]:
        """The next message, with its topic; see ``Subscription.next``."""
        return self._background.run(self._subscription.next(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[str, Message]:
        try:
            return self._background.run(self._subscription.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        except NotConnected:
            if not self._subscription.closed:
                raise
            raise StopIteration from None  # the client was closed while this thread was busy with a message

    def close(self) -> None:
        """Ends the iteration. Messages that were not read are dropped."""
        self._background.run(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class TopicClient:
    """Publications and subscriptions of one client."""

    def __init__(
        self, addresses: list[Address], connect_timeout: float, make_subscriber: Callable[..., AsyncSubscriber]
    ) -> None:
        self._addresses = addresses
        self._connect_timeout = connect_timeout
        self._make_subscriber = make_subscriber  # called with topic prefixes
        self._publishing: PublishConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of that connection
        self._subscriptions: set[Subscription] = set()
        self._closed = False

    async def publish(self, topic: str | bytes, body: list[bytes]) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._publishing is None or self._loop is not loop:
            self._publishing, self._loop = PublishConnection(self._addresses, self._connect_timeout), loop
        await self._publishing.publish(topic_name(topic), body)

    def subscribe(self, prefixes: tuple[str | bytes, ...]) -> Subscription:
        self._check_open()
        for prefix in prefixes:
            size = len(prefix.encode() if isinstance(prefix, str) else prefix)
            if size > MAX_TOPIC:
                raise SettingError(f"topic: must have up to {MAX_TOPIC} bytes, not {size}")
        wanted = prefixes or ("",)
        subscription = Subscription(lambda: self._make_subscriber(*wanted), self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    def _check_open(self) -> None:
        if self._closed:
            raise NotConnected("the client is closed")

    async def close(self) -> None:
        self._closed = True
        for subscription in list(self._subscriptions):
            await subscription.close()
        if self._publishing is not None and self._loop is asyncio.get_running_loop():
            await self._publishing.close()
