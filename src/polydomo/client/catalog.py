"""The catalog over DBP: looking up services, and registering a service."""

import asyncio
import socket
import time
from types import TracebackType
from typing import Any, Self, cast

from polydomo.client.connection import BrokerConnection, connect, connect_first
from polydomo.client.discovery import open_beacon_socket
from polydomo.client.retry import ReconnectDelay
from polydomo.client.security import Security, targets
from polydomo.client.suspension import running_timeout
from polydomo.errors import CallFailed, CallTimeout, ConnectionLost, PolydomoError
from polydomo.limits import CONNECT_TIME, DBP_ANSWER_TIME
from polydomo.protocols import ends
from polydomo.protocols.dbp import ends as dbp_ends
from polydomo.protocols.dbp.ends import Acknowledged, Approved, DbpEnd, Denied, Disconnected, Info
from polydomo.protocols.dbp.info import FUNCTION, has_function
from polydomo.protocols.dbp.udp import ServiceBeats
from polydomo.wire.address import Address


class UdpBeats(asyncio.DatagramProtocol):
    """DBP heartbeats of a service over UDP: sends them to the broker's port, and listens for its broadcasts. Those of other machines are
    ignored. Created by ``open_beats``."""

    transport: asyncio.DatagramTransport

    def __init__(self, beats: ServiceBeats, broker: tuple[str, int]) -> None:
        self.beats = beats
        self.broker = broker
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if addr[0] == self.broker[0]:
            self.beats.receive(time.monotonic(), data)

    def beat(self) -> bool:
        """Sends a heartbeat. Returns False if no broadcast arrived recently; then the heartbeat must be sent over the connection."""
        datagram = self.beats.beat(time.monotonic(), time.time())
        if datagram is not None:
            self.transport.sendto(datagram, self.broker)
            self.sent += 1
        return datagram is not None

    def close(self) -> None:
        self.transport.abort()


async def open_beats(name: str, interval: float, broker: tuple[str, int], at: Address) -> UdpBeats:
    """``broker`` is its IPv4 address and port; ``at`` is the address to listen on for its broadcasts. Raises OSError."""
    beats = ServiceBeats(name, interval, broker[1], time.monotonic())
    sock = open_beacon_socket(at)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: UdpBeats(beats, broker), sock=sock
        )
    except BaseException:
        sock.close()
        raise
    return protocol


# At least ``name``; the specification also lists ``ip``, ``port``, ``function`` and ``heartbeat``.
Registration = dict[str, object]


class AsyncCatalog:
    """A connection to the catalog of polydomo, or of another broker that speaks DBP.

    ```python
    async with AsyncCatalog("tcp://127.0.0.1:5246") as catalog:
        found, warning = await catalog.look("weather")
    ```

    Raises NotConnected, ConnectionLost, CallTimeout if no answer arrives in time, and CallFailed with the code ``denied`` and the
    broker's reason.
    """

    def __init__(
        self,
        to: str | None = None,
        *,
        timeout: float = DBP_ANSWER_TIME,
        connect_timeout: float = CONNECT_TIME,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
    ) -> None:
        self.addresses = targets(to, key, server_key, context, security)  # of several, the first that answers is used
        self.address = self.addresses[0]  # the one in use
        self.interval = 0.0  # the agreed heartbeat interval in seconds; 0 if there is none
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self._dialog: Dialog | None = None
        self._connection: BrokerConnection | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        self._connection = await connect_first(self.addresses, self._dial)

    async def _dial(self, address: Address) -> BrokerConnection:
        dialog = Dialog()
        connection = await connect(address, dialog, lambda event: None, dialog.lost, self.connect_timeout)
        self.address, self._dialog = address, dialog
        return connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("done")
            await connection.gone

    async def look(self, *names: str) -> tuple[dict[str, object], str]:
        """Looks up services by name, or all; also returns the broker's warning about unknown names."""
        return await self._look([name for name in names if name], [])

    async def with_function(self, function: str) -> dict[str, object]:
        """Looks up services by their function; "images*" finds all that begin with "images"."""
        found, warning = await self._look([], [function])
        if FUNCTION in warning:  # another broker, which takes it for a name
            found, _ = await self._look([], [])
        return {
            name: entry for name, entry in found.items() if isinstance(entry, dict) and has_function(entry, [function])
        }

    async def _look(self, names: list[str], functions: list[str]) -> tuple[dict[str, object], str]:
        self._said().info(names, time.time(), functions)
        info = await self._answer()
        if not isinstance(info, Info):
            raise CallFailed("unexpected", f"{type(info).__name__} instead of an info reply")
        return info.services, info.error

    async def register(self, information: Registration) -> float:
        """Registers or re-registers. Returns the agreed heartbeat interval; 0 if there is none."""
        self._said().register(information, time.time())
        approved = await self._answer()
        if not isinstance(approved, Approved):
            raise CallFailed("unexpected", f"{type(approved).__name__} instead of APPROVED")
        return self._agree({"heartbeat": information.get("heartbeat", 0.0), **approved.changes})

    async def update(self, changes: Registration) -> float:
        """Changes fields of the registration. Returns the agreed heartbeat interval."""
        self._said().update(changes, time.time())
        answer = await self._answer()
        agreed = answer.changes if isinstance(answer, Acknowledged) else {}
        return self._agree({"heartbeat": changes.get("heartbeat", self.interval), **agreed})

    def _agree(self, terms: Registration) -> float:
        agreed = terms["heartbeat"]
        self.interval = float(agreed) if isinstance(agreed, int | float) else 0.0
        return self.interval

    async def beat(self) -> None:
        """Sends a heartbeat and waits for the acknowledgement."""
        self._said().beat(time.time())
        await self._answer()

    def leave(self) -> None:
        """Sends DISCONNECT. There is no answer, and the connection cannot be used afterwards."""
        if self._connection is not None:
            self._said().disconnect(time.time())

    async def lost(self) -> PolydomoError:
        """Waits until the connection is lost or the broker sends DISCONNECT."""
        assert self._dialog is not None
        return await asyncio.shield(self._dialog.over)

    @property
    def host(self) -> str:
        """The address of this machine as the broker sees it; empty on a local socket."""
        return self._connection.local_host if self._connection is not None else ""

    async def beats_by_udp(self, name: str, interval: float, at: Address) -> UdpBeats | None:
        """Heartbeats by UDP besides this connection; the broker's broadcasts arrive ``at``. None if UDP is not possible: on a local
        socket, over IPv6, or if another program uses the port exclusively."""
        host, port = self._connection.remote if self._connection is not None else ("", 0)
        if not interval or not host or ":" in host:
            return None
        try:
            return await open_beats(name, interval, (host, port), at)
        except OSError:
            return None

    def _said(self) -> DbpEnd:
        if self._dialog is None or self._connection is None:
            raise ConnectionLost(f"{self.address}: not connected")
        self._connection.flush_soon()
        return self._dialog.dbp

    async def _answer(self) -> dbp_ends.Event:
        """Sends a question and waits for the answer. Answers arrive in the order of the questions."""
        assert self._dialog is not None
        try:
            async with running_timeout(self.timeout):
                event = await self._dialog.next()
        except TimeoutError:
            raise CallTimeout(f"{self.address}: no answer within {self.timeout:g} s; does it speak DBP?") from None
        if isinstance(event, Denied):
            raise CallFailed("denied", event.reason)
        return event


class Dialog(ends.ClientEnd):
    """Adapts DBP to the interface of a connection. DBP has no requests, so its events are queued here."""

    protocol = "dbp"

    def __init__(self) -> None:
        self.dbp = DbpEnd()
        self.out = self.dbp.out
        self.over: asyncio.Future[PolydomoError] = asyncio.get_running_loop().create_future()
        self._heard: asyncio.Queue[dbp_ends.Event] = asyncio.Queue()

    def receive(self, message: ends.Frames) -> list[ends.Event]:
        for event in self.dbp.receive(message, time.time()):
            if isinstance(event, Disconnected):
                self.lost(ConnectionLost("the broker sent DISCONNECT"))
            else:
                self._heard.put_nowait(event)
        return []

    def lost(self, error: PolydomoError) -> None:
        if not self.over.done():
            self.over.set_result(error)

    async def next(self) -> dbp_ends.Event:
        heard = asyncio.ensure_future(self._heard.get())
        try:
            first: list[asyncio.Future[Any]] = [heard, self.over]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if heard.done():
                return heard.result()
            raise self.over.result()
        finally:
            heard.cancel()


class RegistrationObserver:
    """Receives the events of a registration."""

    def registered(self, interval: float) -> None: ...

    def lost(self, error: PolydomoError) -> None: ...


async def stay_registered(
    catalog: AsyncCatalog, information: Registration, tell: RegistrationObserver, udp: Address | None = None
) -> None:
    """Registers and beats at the agreed interval until cancelled; registers again after the broker was lost.

    With ``udp``, the address at which the broker's broadcasts arrive, it beats by UDP while they arrive, otherwise over the connection. A
    registration that is denied is not tried again: raises CallFailed.
    """
    backoff = ReconnectDelay()
    while True:
        beats: UdpBeats | None = None
        try:
            await catalog.connect()
            interval = await catalog.register({"ip": catalog.host or "127.0.0.1", **information})
            backoff.reset()
            tell.registered(interval)
            if udp is not None:
                beats = await catalog.beats_by_udp(str(information["name"]), interval, udp)
                if beats is not None:
                    beats.beat()  # at once: the broker answers with its broadcasts
            while True:
                try:
                    async with asyncio.timeout(catalog.interval or None):
                        raise await catalog.lost()
                except TimeoutError:
                    if beats is None or not beats.beat():
                        await catalog.beat()
        except (ConnectionLost, CallTimeout) as error:
            tell.lost(error)
            await catalog.close()
            await asyncio.sleep(backoff.next())
        finally:
            if beats is not None:
                beats.close()
