"""A subscriber for asyncio: receives last values first, then new messages."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from polydomo.client.connection import BrokerConnection, connect, connect_first
from polydomo.client.message import Message
from polydomo.client.security import Security, targets
from polydomo.errors import NotConnected, PolydomoError
from polydomo.limits import CONNECT_TIME, STREAM_BACKLOG
from polydomo.protocols.ends import Event, Published
from polydomo.protocols.pubsub.ends import SubscriberEnd
from polydomo.wire.address import Address


class AsyncSubscriber:
    """Receives the messages under some topic prefixes, until its connection is lost.

    ```python
    async with AsyncSubscriber("tcp://127.0.0.1:5246", "weather.") as subscriber:
        async for topic, message in subscriber:
            print(topic, message.text)
    ```

    ``to`` may be several comma-separated addresses; the first that answers is used.
    """

    def __init__(
        self,
        to: str | None,
        *prefixes: str | bytes,
        connect_timeout: float = CONNECT_TIME,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
    ) -> None:
        self._addresses = targets(to, key, server_key, context, security)
        self.url = ",".join(str(address) for address in self._addresses)
        self._prefixes = [prefix.encode() if isinstance(prefix, str) else prefix for prefix in prefixes]
        self._connect_timeout = connect_timeout
        self._heard: asyncio.Queue[Published | PolydomoError] = asyncio.Queue()
        self._waiting = 0  # bytes of received messages that were not read yet
        self._connection: BrokerConnection | None = None

    async def __aenter__(self) -> Self:
        """Connects and subscribes. Raises NotConnected."""
        self._connection = await connect_first(self._addresses, self._dial)
        return self

    async def _dial(self, address: Address) -> BrokerConnection:
        end = SubscriberEnd()
        connection = await connect(address, end, self._on_event, self._heard.put_nowait, self._connect_timeout)
        for prefix in self._prefixes:
            end.subscribe(prefix)
        connection.flush_soon()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; ``next`` raises ConnectionLost from now on."""
        if self._connection is not None:
            self._connection.close("the subscriber was closed")
            await self._connection.gone

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Published):
            self._waiting += sum(map(len, event.body))
            self._heard.put_nowait(event)
            if self._waiting > STREAM_BACKLOG and self._connection is not None:
                self._connection.close("the subscriber reads too slowly", abort=True)

    async def next(self) -> tuple[str, Message]:
        """The next message. Raises ConnectionLost."""
        if self._connection is None:
            raise NotConnected(f"{self.url}: not connected; use `async with`")
        event = await self._heard.get()
        if isinstance(event, PolydomoError):
            self._heard.put_nowait(event)  # it stays lost
            raise event
        self._waiting -= sum(map(len, event.body))
        return event.topic.decode(errors="backslashreplace"), Message(event.body)

    async def __aiter__(self) -> AsyncIterator[tuple[str, Message]]:
        while True:
            yield await self.next()
