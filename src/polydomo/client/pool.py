"""The connections of one client.

Over a protocol with request ids one connection carries every call (``SharedLine``); over one without them each call needs a
connection of its own while it is open, so there is a bounded pool and a queue (``LinePool``).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from polydomo.client.connection import Connection, connect
from polydomo.client.pending import Pending
from polydomo.client.retry import Backoff
from polydomo.errors import CallTimeout, NotConnected, PolydomoError
from polydomo.limits import CLOSE_TIME
from polydomo.protocols.ends import ClientEnd, Dismissed, Event, Failure, Reply
from polydomo.wire.address import DISCOVER, Address


class Line:
    """One connection and the calls that are open on it."""

    connection: Connection

    def __init__(self, end: ClientEnd, on_lost: "Callable[[Line], None]") -> None:
        self.end = end
        self.calls: dict[int, Pending] = {}
        self._on_lost = on_lost

    def ask(self, key: int, pending: Pending, body: list[bytes], timeout: float) -> None:
        self.end.request(key, pending.service, body, timeout, pending.headers)
        self.calls[key] = pending
        self.connection.flush_soon()

    def finish(self, key: int) -> None:
        """The caller has its outcome, or no longer wants one."""
        if self.calls.pop(key, None) is not None:
            self.end.forget(key)
            if not self.end.concurrent:
                # Without ids the late reply would pass for the next request's: the connection goes with its request.
                self.connection.close("a request on it was given up", abort=True)

    def on_event(self, event: Event) -> None:
        if isinstance(event, Reply):
            if event.final:
                pending = self.calls.pop(event.key, None)
            else:
                pending = self.calls.get(event.key)
            if pending is not None:
                pending.on_reply(event)
        elif isinstance(event, Failure):
            pending = self.calls.pop(event.key, None)
            if pending is not None:
                pending.on_failure(event)
        elif isinstance(event, Dismissed):
            self.connection.close(f"the broker said {event.why}")

    def on_lost(self, error: PolydomoError) -> None:
        calls, self.calls = self.calls, {}
        for pending in calls.values():
            pending.end(error)
        self._on_lost(self)


class Lines:
    """What both kinds of pool share: dialing, one attempt at a time in step with a backoff."""

    def __init__(self, addresses: list[Address], make_end: Callable[[], ClientEnd], connect_timeout: float) -> None:
        self.addresses = addresses
        self.address = addresses[
            0
        ]  # the one in use; where there are several, each broker that cannot be reached is passed over
        self.make_end = make_end
        self.connect_timeout = connect_timeout
        self.closed = False
        self.all: set[Line] = set()
        self._backoff = Backoff()
        self._trouble = ""  # why the last attempt to connect failed

    async def acquire(self, deadline: float) -> Line:
        """A line that is connected. Raises NotConnected, or CallTimeout if the deadline passes in the queue."""
        raise NotImplementedError

    def release(self, line: Line) -> None:
        """The call for which the line was acquired has ended."""

    def dropped(self, line: Line) -> None:
        """The line's connection is gone."""

    async def close(self) -> None:
        self.closed = True
        lines = list(self.all)
        if not lines:
            return
        for line in lines:
            line.connection.close("the client was closed")
        await asyncio.wait([line.connection.gone for line in lines], timeout=CLOSE_TIME)
        for line in lines:
            line.connection.close("the client was closed", abort=True)

    async def dial(self, deadline: float) -> Line:
        """Connects, again and again until it works or ``connect_timeout`` or the deadline has passed."""
        loop = asyncio.get_running_loop()
        limit = min(deadline, loop.time() + self.connect_timeout)
        while True:
            try:
                line = await self._dial_once(max(limit - loop.time(), 0.001))
            except NotConnected as error:
                self._trouble = str(error)
                self._next_address()
                wait = self._backoff.next()
                if loop.time() + wait >= limit or self.closed:
                    raise
                await asyncio.sleep(wait)
                continue
            self._backoff.reset()
            self._trouble = ""
            return line

    def _next_address(self) -> None:
        place = self.addresses.index(self.address)
        self.address = self.addresses[(place + 1) % len(self.addresses)]

    def move_on(self) -> bool:
        """The broker in use does not lead: the next call goes to the next address. False if there is only one."""
        if len(self.addresses) == 1:
            return False
        self._next_address()
        return True

    async def _dial_once(self, timeout: float) -> Line:
        if self.closed:
            raise NotConnected("the client is closed")
        line = Line(self.make_end(), self._lost)
        line.connection = await connect(self.address, line.end, line.on_event, line.on_lost, timeout)
        if not line.connection.alive:
            raise NotConnected(f"{self.address}: the broker closed the connection")
        self.all.add(line)
        if self.closed:
            line.connection.close("the client was closed")
        return line

    def _lost(self, line: Line) -> None:
        self.all.discard(line)
        self.dropped(line)


class SharedLine(Lines):
    """One connection for all calls; whoever finds it gone dials anew, and everybody waits for that."""

    _line: Line | None = None
    _dialing: "asyncio.Task[Line] | None" = None

    async def acquire(self, deadline: float) -> Line:
        while True:
            line = self._line
            if line is None or not line.connection.alive:
                line = await self._redial(deadline)
            if not line.connection.choked:
                if line.connection.alive:
                    return line
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await line.connection.writable()
            except TimeoutError:
                raise CallTimeout(f"{self.address}: the broker took no further request in time") from None

    async def _redial(self, deadline: float) -> Line:
        loop = asyncio.get_running_loop()
        limit = min(deadline, loop.time() + self.connect_timeout)
        while True:
            if self._dialing is None:
                self._dialing = loop.create_task(self.dial(loop.time() + self.connect_timeout))
                self._dialing.add_done_callback(self._dialed)
            dialing = self._dialing
            # Not wait_for: one caller's cancellation or deadline must not end the dialing for the others.
            await asyncio.wait([dialing], timeout=max(limit - loop.time(), 0))
            if not dialing.done():
                missing = "no broker's beacon was heard" if self.address.kind == DISCOVER else "no answer"
                raise NotConnected(self._trouble or f"{self.address}: {missing} in time")
            if dialing.cancelled():
                raise NotConnected("the client was closed")
            error = dialing.exception()
            if error is None:
                return dialing.result()
            if not isinstance(error, NotConnected) or self.closed or loop.time() + self._backoff.first >= limit:
                raise error

    def move_on(self) -> bool:
        if not super().move_on():
            return False
        line, self._line = self._line, None
        if line is not None and not line.calls:
            line.connection.close("another broker leads")
        return True

    def release(self, line: Line) -> None:
        if line is not self._line and not line.calls and line.connection.alive and self._line is not None:
            line.connection.close("another broker leads")

    def _dialed(self, task: "asyncio.Task[Line]") -> None:
        self._dialing = None
        if not task.cancelled() and task.exception() is None:
            self._line = task.result()

    def dropped(self, line: Line) -> None:
        if self._line is line:
            self._line = None

    async def close(self) -> None:
        self.closed = True
        if self._dialing is not None:
            self._dialing.cancel()
        await super().close()


class LinePool(Lines):
    """At most ``most`` connections, each with one call at a time; further calls wait in line, within their deadlines."""

    def __init__(
        self, addresses: list[Address], make_end: Callable[[], ClientEnd], connect_timeout: float, most: int
    ) -> None:
        super().__init__(addresses, make_end, connect_timeout)
        self.most = most
        self.places = 0  # connections in use, idle or being made
        self.idle: list[Line] = []
        self.waiters: deque[asyncio.Future[Line | None]] = deque()

    async def acquire(self, deadline: float) -> Line:
        while self.idle:
            line = self.idle.pop()
            if line.connection.alive:
                return line
            self._free_place()
        if self.places < self.most:
            self.places += 1
        else:
            passed = await self._wait(deadline)
            if passed is not None:
                return passed
        try:
            return await self.dial(deadline)
        except BaseException:
            self._free_place()
            raise

    async def _wait(self, deadline: float) -> Line | None:
        """Waits in line for another call's connection, or (None) for its place."""
        waiter: asyncio.Future[Line | None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                line = await waiter
        except BaseException as error:
            if (
                waiter.done() and not waiter.cancelled() and waiter.exception() is None
            ):  # it came at the same moment: for the next in line
                self._pass_on(waiter.result())
            elif waiter in self.waiters:
                self.waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise CallTimeout(f"{self.address}: all {self.most} connections were busy until the deadline") from None
            raise
        if line is not None and not line.connection.alive:
            return None  # it broke on the way here; its place is ours
        return line

    def release(self, line: Line) -> None:
        if line.connection.alive:
            self._pass_on(line)
        else:
            self._free_place()

    def dropped(self, line: Line) -> None:
        if line in self.idle:  # one in use is let go by its call
            self.idle.remove(line)
            self._free_place()

    def move_on(self) -> bool:
        if not super().move_on():
            return False
        while self.idle:
            self.idle.pop().connection.close("another broker leads")
            self._free_place()
        return True

    def _free_place(self) -> None:
        self._pass_on(None)

    def _pass_on(self, line: Line | None) -> None:
        """A line, or the place for one, to the first in line."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(line)
                return
        if line is None:
            self.places -= 1
        else:
            self.idle.append(line)

    async def close(self) -> None:
        self.closed = True
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(NotConnected("the client was closed"))
        await super().close()
