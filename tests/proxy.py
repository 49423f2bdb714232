"""A bad network between two programs: a TCP proxy that delays, holds, throws away and cuts what goes through it.

```python
with Proxy("tcp://127.0.0.1:5246") as proxy:
    connect_to(proxy.url)
    proxy.delay(0.05)   # every byte comes that much later
    proxy.hold()        # nothing comes through, and nobody is told: a cable pulled out
    proxy.release()     # ... and put in again: what was held comes now
    proxy.cut()         # every connection is reset, and what was under way is lost
    proxy.refuse()      # nobody can connect
    proxy.accept()
```

Everything may be called from any thread; it has happened when the call returns.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, cast

from polydomo.client.background import Background
from polydomo.wire.address import Address, parse_url


class Side(asyncio.Protocol):
    """One of the two connections of a pair."""

    transport: asyncio.Transport

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy = proxy
        self.other: Side | None = None
        self.line: deque[tuple[float, bytes]] = deque()  # when it may go on, and what; b"" is the end
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.line.append((self.proxy.loop.time() + self.proxy.seconds, data))
        self.pump()

    def eof_received(self) -> bool:
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.line.append((self.proxy.loop.time() + self.proxy.seconds, b""))
        self.pump()
        self.proxy.sides.discard(self)

    def pump(self) -> None:
        """Passes on what is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        other = self.other
        if other is None or self.proxy.held:
            return
        now = self.proxy.loop.time()
        while self.line and self.line[0][0] <= now:
            _, data = self.line.popleft()
            if not data:
                other.transport.close()
            elif not other.transport.is_closing():
                other.transport.write(data)
                self.proxy.passed += len(data)
        if self.line:
            self.timer = self.proxy.loop.call_at(self.line[0][0], self.pump)

    def abort(self) -> None:
        self.line.clear()
        self.transport.abort()


class Front(Side):
    """Who connected to us: we connect to the target for it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.proxy.refusing:
            self.transport.abort()
            return
        self.proxy.sides.add(self)
        self.proxy.connections += 1
        self.proxy.start(self._connect())

    async def _connect(self) -> None:
        try:
            back = await self.proxy.dial()
        except OSError:
            self.abort()
            return
        self.proxy.sides.add(back)
        self.other, back.other = back, self
        if self.transport.is_closing():
            back.abort()
        self.pump()
        back.pump()


class Proxy:
    def __init__(self, target: str) -> None:
        self.target: Address = parse_url(target, connect=True)
        self.url = ""
        self.seconds = 0.0
        self.held = False
        self.refusing = False
        self.connections = 0  # ever made
        self.passed = 0  # bytes
        self.sides: set[Side] = set()
        self._background = Background(self, "proxy")
        self.loop = self._background.loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._background.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background.run(self._close())
        self._background.stop()

    def delay(self, seconds: float) -> None:
        self._do(lambda: setattr(self, "seconds", seconds))

    def hold(self) -> None:
        self._do(lambda: setattr(self, "held", True))

    def release(self) -> None:
        self._do(self._release)

    def cut(self) -> None:
        """Also ends a ``hold``."""
        self._do(self._cut)

    def refuse(self) -> None:
        self._do(lambda: setattr(self, "refusing", True))

    def accept(self) -> None:
        self._do(lambda: setattr(self, "refusing", False))

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def dial(self) -> Side:
        _, back = await self.loop.create_connection(lambda: Side(self), self.target.host, self.target.port)
        return back

    async def _open(self) -> None:
        self._server = await self.loop.create_server(lambda: Front(self), "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _release(self) -> None:
        self.held = False
        for side in list(self.sides):
            side.pump()

    def _cut(self) -> None:
        self.held = False
        for side in list(self.sides):
            side.abort()

    def _do(self, change: Callable[[], None]) -> None:
        async def done() -> None:
            change()

        self._background.run(done())
