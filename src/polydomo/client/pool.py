"""The connections of one client to a broker.

If the protocol has request ids, one connection carries all calls (``SharedPool``). Otherwise each open call needs its own connection, so
there is a bounded pool of connections and a queue of calls (``ExclusivePool``).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from polydomo.client.connection import BrokerConnection, connect, silent
from polydomo.client.message import check_size
from polydomo.client.pending import Pending
from polydomo.client.retry import ReconnectDelay
from polydomo.client.suspension import SuspensionMeter, wait_running
from polydomo.errors import CallTimeout, NotConnected, PolydomoError
from polydomo.limits import CLOSE_TIME
from polydomo.protocols.ends import ClientEnd, Dismissed, Event, Failure, Progressed, Reply
from polydomo.wire.address import DISCOVER, Address


class PooledConnection:
    """One connection and the calls that are open on it."""

    connection: BrokerConnection

    def __init__(self, end: ClientEnd, on_lost: "Callable[[PooledConnection], None]") -> None:
        self.end = end
        self.calls: dict[int, Pending] = {}
        self._on_lost = on_lost

    def ask(self, key: int, pending: Pending, body: list[bytes], timeout: float) -> None:
        check_size(body, self.connection.max_body)
        self.end.request(key, pending.service, body, timeout, pending.headers, pending.options)
        self.calls[key] = pending
        self.connection.flush_soon()

    def finish(self, key: int) -> None:
        """Called when the caller has its outcome or has stopped waiting."""
        pending = self.calls.pop(key, None)
        if pending is not None:
            self.end.cancel(key, pending.expired)
            if self.end.concurrent:
                self.connection.flush_soon()
            else:
                # Without ids a late reply would be taken for the reply to the next request: the connection is closed, which cancels it.
                self.connection.close("a request on this connection was abandoned", abort=True)

    def on_event(self, event: Event) -> None:
        if isinstance(event, Reply):
            if event.final:
                pending = self.calls.pop(event.key, None)
            else:
                pending = self.calls.get(event.key)
            if pending is not None:
                pending.on_reply(event)
        elif isinstance(event, Progressed):
            pending = self.calls.get(event.key)
            if pending is not None:
                pending.progressed(event)
        elif isinstance(event, Failure):
            pending = self.calls.pop(event.key, None)
            if pending is not None:
                pending.on_failure(event)
        elif isinstance(event, Dismissed):
            self.connection.close(f"the broker sent {event.why}")

    def on_lost(self, error: PolydomoError) -> None:
        calls, self.calls = self.calls, {}
        for pending in calls.values():
            pending.end(error)
        self._on_lost(self)


class Pool:
    """The base of both pools: connecting with backoff, one attempt at a time."""

    def __init__(
        self,
        addresses: list[Address],
        make_end: Callable[[], ClientEnd],
        connect_timeout: float,
        refused_timeout: float,
    ) -> None:
        self.addresses = addresses
        self.address = addresses[0]  # the address in use; with several, brokers that cannot be reached are skipped
        self.make_end = make_end
        self.connect_timeout = connect_timeout
        self.refused_timeout = refused_timeout  # the same while connections are refused
        self.closed = False
        self.all: set[PooledConnection] = set()
        self._backoff = ReconnectDelay()
        self._trouble: NotConnected | None = None  # why the last attempt to connect failed
        self._accepted = False  # a program accepted the current attempt

    async def acquire(self, deadline: float) -> PooledConnection:
        """Returns an open connection. Raises NotConnected, or CallTimeout if the deadline passes in the queue."""
        raise NotImplementedError

    def cancels(self) -> bool:
        """Whether giving up a call cancels it at the broker."""
        return True

    def release(self, pooled: PooledConnection) -> None:
        """Called when the call that acquired the connection has ended."""

    def dropped(self, pooled: PooledConnection) -> None:
        """Called when the connection is lost."""

    async def close(self) -> None:
        self.closed = True
        connections = list(self.all)
        if not connections:
            return
        for pooled in connections:
            pooled.connection.close("the client was closed")
        await wait_running([pooled.connection.gone for pooled in connections], CLOSE_TIME)
        for pooled in connections:
            pooled.connection.close("the client was closed", abort=True)

    async def dial(self, started: float, deadline: float) -> PooledConnection:
        """Connects, retrying until it succeeds or it is too late: at the deadline, or ``connect_timeout`` or ``refused_timeout`` after
        ``started``."""
        loop = asyncio.get_running_loop()
        limit = min(deadline, started + self.connect_timeout)
        with SuspensionMeter() as suspended:
            while True:
                try:
                    pooled = await self._dial_once(max(limit + suspended.seconds - loop.time(), 0.001))
                except NotConnected as error:
                    self._trouble = error
                    self._next_address()
                    left = self._retry_until(error, started, deadline) + suspended.seconds - loop.time()
                    if left <= self._backoff.first or self.closed:
                        raise
                    await asyncio.sleep(min(self._backoff.next(), left / 2))  # leaves time for a last attempt
                    continue
                self._backoff.reset()
                self._trouble = None
                return pooled

    def _retry_until(self, error: NotConnected, started: float, deadline: float) -> float:
        return min(deadline, started + (self.refused_timeout if error.refused else self.connect_timeout))

    def _next_address(self) -> None:
        place = self.addresses.index(self.address)
        self.address = self.addresses[(place + 1) % len(self.addresses)]

    def move_on(self) -> bool:
        """The current broker is not the leader: switches to the next address. Returns False if there is only one."""
        if len(self.addresses) == 1:
            return False
        self._next_address()
        return True

    async def _dial_once(self, timeout: float) -> PooledConnection:
        if self.closed:
            raise NotConnected("the client is closed")
        pooled = PooledConnection(self.make_end(), self._lost)
        self._accepted = False
        pooled.connection = await connect(
            self.address, pooled.end, pooled.on_event, pooled.on_lost, timeout, self._was_accepted
        )
        if not pooled.connection.alive:
            raise NotConnected(f"{self.address}: the broker closed the connection")
        self.all.add(pooled)
        if self.closed:
            pooled.connection.close("the client was closed")
        return pooled

    def _was_accepted(self) -> None:
        self._accepted = True

    def _lost(self, pooled: PooledConnection) -> None:
        self.all.discard(pooled)
        self.dropped(pooled)


class SharedPool(Pool):
    """One connection for all calls. The first call after a loss reconnects, and the others wait for it."""

    _shared: PooledConnection | None = None
    _dialing: "asyncio.Task[PooledConnection] | None" = None
    _dialing_until = 0.0  # when that task ends at the latest

    async def acquire(self, deadline: float) -> PooledConnection:
        while True:
            pooled = self._shared
            if pooled is None or not pooled.connection.alive:
                pooled = await self._redial(deadline)
            if not pooled.connection.choked:
                if pooled.connection.alive:
                    return pooled
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await pooled.connection.writable()
            except TimeoutError:
                raise CallTimeout(f"{self.address}: the broker accepted no further request in time") from None

    async def _redial(self, deadline: float) -> PooledConnection:
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit = min(deadline, started + self.connect_timeout)
        while True:
            if self._dialing is None:
                self._dialing_until = started + self.connect_timeout
                self._dialing = loop.create_task(self.dial(started, self._dialing_until))
                self._dialing.add_done_callback(self._dialed)
            dialing = self._dialing
            # If the attempt ends no later than this caller's limit, it is awaited to its end, because its error is the better one.
            # Not wait_for, because one caller's cancellation or deadline must not stop the attempt for the others.
            await asyncio.wait([dialing], timeout=None if self._dialing_until <= limit else max(limit - loop.time(), 0))
            if not dialing.done():
                if self._trouble is not None:
                    raise self._trouble
                if self.address.kind == DISCOVER and not self._accepted:
                    raise NotConnected(f"{self.address}: no broker was found in time")
                raise silent(self.address, self._accepted, limit - started)
            if dialing.cancelled():
                raise NotConnected("the client was closed")
            error = dialing.exception()
            if error is None:
                return dialing.result()
            if not isinstance(error, NotConnected) or self.closed:
                raise error
            if loop.time() + self._backoff.first >= self._retry_until(error, started, limit):
                raise error  # otherwise the attempt began before this call, and this call may wait longer

    def cancels(self) -> bool:
        return self._shared is None or self._shared.end.cancels

    def move_on(self) -> bool:
        if not super().move_on():
            return False
        pooled, self._shared = self._shared, None
        if pooled is not None and not pooled.calls:
            pooled.connection.close("another broker is the leader")
        return True

    def release(self, pooled: PooledConnection) -> None:
        if pooled is not self._shared and not pooled.calls and pooled.connection.alive and self._shared is not None:
            pooled.connection.close("another broker is the leader")

    def _dialed(self, task: "asyncio.Task[PooledConnection]") -> None:
        self._dialing = None
        if not task.cancelled() and task.exception() is None:
            self._shared = task.result()

    def dropped(self, pooled: PooledConnection) -> None:
        if self._shared is pooled:
            self._shared = None

    async def close(self) -> None:
        self.closed = True
        if self._dialing is not None:
            self._dialing.cancel()
        await super().close()


class ExclusivePool(Pool):
    """At most ``most`` connections, each with one call at a time; further calls wait in a queue, within their deadlines."""

    def __init__(
        self,
        addresses: list[Address],
        make_end: Callable[[], ClientEnd],
        connect_timeout: float,
        refused_timeout: float,
        most: int,
    ) -> None:
        super().__init__(addresses, make_end, connect_timeout, refused_timeout)
        self.most = most
        self.places = 0  # connections in use, idle or being opened
        self.idle: list[PooledConnection] = []
        self.waiters: deque[asyncio.Future[PooledConnection | None]] = deque()

    async def acquire(self, deadline: float) -> PooledConnection:
        while self.idle:
            pooled = self.idle.pop()
            if pooled.connection.alive:
                return pooled
            self._free_place()
        if self.places < self.most:
            self.places += 1
        else:
            passed = await self._wait(deadline)
            if passed is not None:
                return passed
        try:
            return await self.dial(asyncio.get_running_loop().time(), deadline)
        except BaseException:
            self._free_place()
            raise

    async def _wait(self, deadline: float) -> PooledConnection | None:
        """Waits in the queue for a connection that another call releases, or for a free slot in the pool (None)."""
        waiter: asyncio.Future[PooledConnection | None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                pooled = await waiter
        except BaseException as error:
            # It was assigned at the same moment; the next call in the queue gets it.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._pass_on(waiter.result())
            elif waiter in self.waiters:
                self.waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise CallTimeout(f"{self.address}: all {self.most} connections were busy until the deadline") from None
            raise
        if pooled is not None and not pooled.connection.alive:
            return None  # it broke in the meantime; this call keeps the slot
        return pooled

    def release(self, pooled: PooledConnection) -> None:
        if pooled.connection.alive:
            self._pass_on(pooled)
        else:
            self._free_place()

    def dropped(self, pooled: PooledConnection) -> None:
        if pooled in self.idle:  # a connection in use is released by its call
            self.idle.remove(pooled)
            self._free_place()

    def move_on(self) -> bool:
        if not super().move_on():
            return False
        while self.idle:
            self.idle.pop().connection.close("another broker is the leader")
            self._free_place()
        return True

    def _free_place(self) -> None:
        self._pass_on(None)

    def _pass_on(self, pooled: PooledConnection | None) -> None:
        """Assigns a connection, or a free slot in the pool, to the first call in the queue."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(pooled)
                return
        if pooled is None:
            self.places -= 1
        else:
            self.idle.append(pooled)

    async def close(self) -> None:
        self.closed = True
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_exception(NotConnected("the client was closed"))
        await super().close()
