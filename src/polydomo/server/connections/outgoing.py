"""Outgoing connections of the broker: to other brokers, and to the publishers and services that DBP registrations name.

Each is retried with backoff as long as it is needed. After its handshake, it is handled like any other connection.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.errors import SettingError
from polydomo.keys import read_pair, read_public
from polydomo.limits import BACKOFF_FIRST, BACKOFF_MOST, CONNECT_TIME, FOLLOW_INTERVAL, SETTLED
from polydomo.model.records import Session
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.protocols.dbp.info import PublisherInfo, RequestsInfo
from polydomo.protocols.dbp.session import DbpSession
from polydomo.protocols.pubsub.session import PublisherSession
from polydomo.server import logs
from polydomo.server.connections.connection import Connection
from polydomo.server.connections.listening import KEEP_ALIVE
from polydomo.server.host import Host
from polydomo.server.logs import say
from polydomo.tls import TlsBytes, client_context
from polydomo.wire.address import IPC, TCP, Address, parse_url
from polydomo.wire.link import Link, LinkHandler
from polydomo.wire.security.curve import CurveClient, KeyPair
from polydomo.wire.zmtp.link import ZmtpLink

if TYPE_CHECKING:
    import ssl

    from polydomo.server.settings.sections import Bridge

LOG = logs.get("server")

MakeSession = Callable[[Link], Session]


class HandshakeHandler(LinkHandler):
    """The handler of an outgoing connection until its handshake is complete and the session takes over."""

    link: Link

    def __init__(self, server: Host, make_session: MakeSession) -> None:
        self.server = server
        self.make_session = make_session

    def on_open(self) -> None:
        session = self.make_session(self.link)
        self.link.handler = session
        self.server.broker.session_opened(session)
        session.on_open()


class Caller(Connection):
    """An outgoing connection."""

    outgoing = True

    def __init__(self, server: Host, call: "OutgoingConnection") -> None:
        super().__init__(server, call.address.kind == IPC)
        self.call = call
        self.gone: asyncio.Future[str] = server.loop.create_future()  # why
        self.opened = False  # the handshake was done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEP_ALIVE:
                if hasattr(socket, option):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        super().connection_made(transport)
        if self.transport.is_closing():
            return
        server = self.server
        server.wake()
        opening = HandshakeHandler(server, self.call.make_session)
        security = self.call.security
        self.link = opening.link = ZmtpLink(
            server.hub,
            opening,
            self.peer,
            socket_type=self.call.socket_type,
            bounds=server.bounds,
            mechanism=security.mechanism(self.call.socket_type, server.bounds.max_frame) if security else None,
        )
        self.link.owner = self
        if security is not None and security.tls_context is not None:
            self.tls = TlsBytes(security.tls_context, False, self.call.address.host)
            self.link.needs_full_flush = True
            self._take = self._decrypt
            self._write_tls(self.tls)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.opened and self.link is not None and self.link.open:
            self.opened = True
            self.call.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.gone.done():
            why = self.link.closing if self.link is not None else None
            self.gone.set_result(why or (f"connection lost: {exc}" if exc is not None else "connection closed"))


class OutgoingConnection:
    """Keeps a connection to one address, reconnecting until ``stop``."""

    def __init__(
        self,
        server: Host,
        address: Address,
        socket_type: bytes,
        what: str,
        make_session: MakeSession,
        security: "BridgeSecurity | None" = None,
        quiet: bool = False,
    ) -> None:
        self.server = server
        self.security = security
        self.address = address
        self.socket_type = socket_type
        self.what = what  # for log messages
        self._quiet = quiet  # its connections are logged at level debug
        self.make_session = make_session
        self._reported = False  # whether the failure has been logged; once is enough
        self._caller: Caller | None = None
        self._task = server.loop.create_task(self._keep())

    def stop(self) -> None:
        self._task.cancel()
        if self._caller is not None:
            self._caller.transport.close()

    def connected(self) -> None:
        self._reported = False
        level = logging.DEBUG if self._quiet else logging.INFO
        say(LOG, level, f"connected to {self.what}", address=str(self.address))

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            why = await self._once()
            if not self._reported:
                self._reported = True
                level = logging.DEBUG if self._quiet else logging.WARNING
                say(LOG, level, f"no connection to {self.what}", address=str(self.address), why=why)
            failures = 0 if time.monotonic() - began > SETTLED else failures + 1
            # random delay, so that peers that lost the same broker do not reconnect in lockstep
            await asyncio.sleep(min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(failures, 16)) * random.uniform(0.5, 1.0))

    async def _once(self) -> str:
        """Runs one connection from start to end; returns why it ended."""
        caller = Caller(self.server, self)
        loop = self.server.loop
        try:
            async with asyncio.timeout(CONNECT_TIME):
                if self.address.kind == IPC:
                    await loop.create_unix_connection(lambda: caller, self.address.path)
                else:
                    await loop.create_connection(lambda: caller, self.address.host, self.address.port)
        except TimeoutError:
            return f"no answer within {CONNECT_TIME:g} s"
        except OSError as error:
            return error.strerror or str(error)
        self._caller = caller
        try:
            return await caller.gone
        finally:
            self._caller = None
            with contextlib.suppress(AttributeError):
                caller.transport.close()


class BridgeSecurity:
    """The credentials that this broker presents to another broker."""

    def __init__(self, keys: KeyPair | None, server_key: bytes, tls_context: "ssl.SSLContext | None") -> None:
        self.keys = keys
        self.server_key = server_key
        self.tls_context = tls_context

    @classmethod
    def of(cls, settings: "Bridge", address: Address) -> "BridgeSecurity | None":
        """Raises SettingError."""
        if bool(settings.key) != bool(settings.server_key):
            raise SettingError("bridge.key and bridge.server_key: CURVE needs both; set the missing one")
        if not settings.key and not address.tls:
            return None
        keys = read_pair(settings.key, "bridge.key") if settings.key else None
        server_key = read_public(settings.server_key, "bridge.server_key") if settings.key else b""
        return cls(keys, server_key, client_context(settings.ca, settings.cert) if address.tls else None)

    def mechanism(self, socket_type: bytes, max_frame: int) -> CurveClient | None:
        if self.keys is None:
            return None
        return CurveClient(self.keys, self.server_key, os.urandom, socket_type, max_frame=max_frame)


def bridge_to(server: Host, url: str) -> OutgoingConnection:
    """A bridge to another broker. The other broker learns about this one when the connection arrives."""

    def session(link: Link) -> Session:
        return BridgeSession(server.broker, link, caller=True)

    address = parse_url(url, connect=True)
    return OutgoingConnection(
        server, address, b"DEALER", "the other broker", session, BridgeSecurity.of(server.settings.bridge, address)
    )


PUBLISHER = "publisher"
SERVICE = "service"
Place = PublisherInfo | RequestsInfo


class CatalogConnections:
    """Follows the catalog: subscribes to the publishers of its active services, and connects to those that take requests at an address."""

    def __init__(self, server: Host) -> None:
        self.server = server
        self.version = 0  # version of the catalog that was applied
        self._calls: dict[tuple[str, str], tuple[Place, OutgoingConnection]] = {}  # (kind, service) -> its connection
        self._wrong: dict[str, str] = {}  # name -> the logged problem with its registration
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def follow_soon(self) -> None:
        """Called when the catalog has changed. Changes are applied at once, and then at most once per ``FOLLOW_INTERVAL``."""
        if self._timer is None:
            self.follow()
            self._timer = self.server.loop.call_later(FOLLOW_INTERVAL, self._follow_again)

    def _follow_again(self) -> None:
        self._timer = None
        if self.server.broker.catalog.dialled_version != self.version:
            self.follow_soon()

    def follow(self) -> None:
        """Starts and stops connections to match the catalog."""
        catalog = self.server.broker.catalog
        self.version = catalog.dialled_version
        if self._stopped:  # during shutdown, a service may still register while the last requests finish
            return
        publishers = dict(catalog.publishers) if self.server.settings.values.dial else {}
        wrong = {name: place for name, place in publishers.items() if isinstance(place, str)}
        for name, what in wrong.items():
            if self._wrong.get(name) != what:
                say(LOG, logging.WARNING, "publisher not followed", service=name, why=what)
        self._wrong = wrong
        wanted: dict[tuple[str, str], Place] = {(SERVICE, name): place for name, place in catalog.callees.items()}
        for name, target in publishers.items():
            if isinstance(target, PublisherInfo):
                wanted[PUBLISHER, name] = target
        for key, (place, call) in list(self._calls.items()):
            if wanted.get(key) != place:
                call.stop()
                del self._calls[key]
        for key, place in wanted.items():
            if key not in self._calls:
                self._calls[key] = place, self._call(key[1], place)

    def stop(self) -> None:
        """Shutdown begins: no further connections. Those to services stay, because they may hold requests."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for key, (_, call) in list(self._calls.items()):
            if key[0] == PUBLISHER:
                call.stop()
                del self._calls[key]

    def close(self) -> None:
        """All requests have ended."""
        for _, call in self._calls.values():
            call.stop()
        self._calls.clear()

    def _call(self, name: str, place: Place) -> OutgoingConnection:
        broker = self.server.broker

        def session(link: Link) -> Session:
            made = (
                DbpSession(broker, link, called=name)
                if isinstance(place, RequestsInfo)
                else PublisherSession(broker, link, place.topics)
            )
            entry = broker.catalog.entries.get(name)
            if entry is not None and entry.session is not None:
                # It has the rights of the service that registered it.
                made.principal = entry.session.principal
            return made

        service = isinstance(place, RequestsInfo)
        what = f"the service {name}" if service else f"the publisher {name}"
        address = Address(TCP, place.host, place.port)
        return OutgoingConnection(self.server, address, b"DEALER" if service else b"SUB", what, session)
