"""One connection to a broker: a socket, the wire protocol's link, and the client side ("end") of a messaging protocol.

The link and the end are pure; this module connects them to a transport. Output is collected and written once per turn of the event
loop, so a thousand calls in one turn cost one write.
"""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast

from polydomo.client import discovery
from polydomo.client.security import proof_of
from polydomo.client.suspension import running_timeout
from polydomo.errors import AccessDenied, ConnectionLost, NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import (
    ENVELOPE,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE,
    KEEPALIVE_INTERVAL,
    LIMIT_ASKED_TIME,
    LIMIT_UNASKED,
    MAX_ANSWER,
    MAX_BODY,
    MAX_MESSAGE,
    MAX_SP_ANSWER,
)
from polydomo.protocols.ends import ANNOUNCED, ClientEnd, Event, Frames, WorkerEnd
from polydomo.protocols.mdx.ends import MdxClientEnd
from polydomo.transports import writer_of
from polydomo.wire import frames, sp
from polydomo.wire.address import DISCOVER, IPC, Address
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.link import ABORTING, OPEN, Bounds, Hub, Link, LinkHandler
from polydomo.wire.security.mechanism import Null
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink

End = ClientEnd | WorkerEnd
T = TypeVar("T")
# Errors of a connection to an address where no program listens. asyncio combines the errors of several addresses of one name in an error
# without a number.
REFUSALS = (errno.ECONNREFUSED, errno.ENOENT, None)

BOUNDS = Bounds(max_frame=MAX_ANSWER, max_message=MAX_ANSWER, extensions=ANNOUNCED)


class BrokerConnection(asyncio.Protocol, LinkHandler):
    """Created by ``connect``. ``on_event`` receives the parsed messages of the broker; ``on_lost`` receives the reason, once.

    After a change of the end (``end.request(...)``, ``end.beat()``, ...) call ``flush_soon``.

    Another thread may send single messages with ``send_while_blocked``. The link and the socket are therefore used under a lock; the end
    belongs to the loop's thread alone.
    """

    def __init__(
        self,
        address: Address,
        end: End,
        on_event: Callable[[Event], None],
        on_lost: Callable[[PolydomoError], None],
        on_accepted: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self.end = end
        self.on_event = on_event
        self.on_lost = on_lost
        self.on_accepted = on_accepted
        self.loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self.loop.create_future()  # the handshake is complete
        self.gone: asyncio.Future[None] = self.loop.create_future()  # the socket is closed
        self.heard = self.loop.time()  # time of the last message from the broker
        proof = proof_of(address)
        self._tls = proof.tls(address.host) if proof is not None else None
        self._hub = Hub()
        self._link = self._make_link()
        self._transport: asyncio.Transport | None = None
        self._lock = threading.RLock()
        self._rest = b""  # of a message of ``send_while_blocked``: written before anything else
        self.was_accepted = False  # a program accepted the connection; whether it is a broker shows in the handshake
        self._scheduled = False
        self._choked: asyncio.Future[None] | None = None  # cleared while the broker does not read; writers wait for it
        self._violation: ProtocolViolation | None = None
        self.max_body = MAX_BODY  # bytes of a body that the broker accepts, as far as it says
        self._limit: asyncio.Task[int] | None = None  # over SP: asks for it

    def _make_link(self) -> Link:
        if self.end.wire == "sp":
            return SpLink(
                self._hub,
                self,
                str(self.address),
                listener=False,
                ipc=self.address.kind == IPC,
                max_message=MAX_SP_ANSWER,
            )
        proof = proof_of(self.address)
        kind = self.end.socket_type
        identity = self.end.identity
        secured = (
            proof.mechanism(kind, BOUNDS.max_frame, identity) if proof is not None else Null(False, kind, identity)
        )
        return ZmtpLink(self._hub, self, str(self.address), kind, BOUNDS, secured)

    @property
    def alive(self) -> bool:
        """Open, and not being closed by this side."""
        return self._transport is not None and self._link.state == OPEN

    @property
    def local_host(self) -> str:
        """The address of this end of the connection; empty on a local socket."""
        if self.address.kind == IPC or self._transport is None:
            return ""
        return str(self._transport.get_extra_info("sockname", ("",))[0])

    @property
    def remote(self) -> tuple[str, int]:
        """The address and port of the broker's end; empty on a local socket."""
        if self.address.kind == IPC or self._transport is None:
            return "", 0
        host, port = self._transport.get_extra_info("peername", ("", 0))[:2]
        return str(host), int(port)

    @property
    def choked(self) -> bool:
        """Whether the broker reads more slowly than we write. Then wait for ``writable`` before sending more."""
        return self._choked is not None

    async def writable(self) -> None:
        while self._choked is not None:
            await asyncio.shield(self._choked)

    def must_ask(self, body: Frames) -> bool:
        """Whether ``ask_limit`` has to be awaited before this body is sent: SP has no metadata in which a broker announces its limit."""
        return self.end.wire == "sp" and not self._limit_known() and sum(map(len, body)) > LIMIT_UNASKED

    def _limit_known(self) -> bool:
        return self._limit is not None and self._limit.done()

    async def ask_limit(self) -> None:
        """Asks the broker for its message limit, over ZMTP at the same address."""
        if self._limit is None:
            self._limit = self.loop.create_task(_announced_limit(self.address))
        self.max_body = await asyncio.shield(self._limit)

    def flush_soon(self) -> None:
        """Sends the end's output at the end of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends the end's output now."""
        with self._lock:
            self._flush_locked()

    def write_at_once(self) -> None:
        """Makes the transport write in the call, as far as the socket accepts. uvloop otherwise writes at the end of the loop's turn, which
        may take long if a function blocks the loop."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(0)

    def send_while_blocked(self, message: Frames) -> bool:
        """Sends one message from another thread. Does nothing and returns False if the connection is closed, or if output of the loop
        waits in the transport: the broker does not read then."""
        with self._lock:
            transport = self._transport
            if transport is None or self._link.state != OPEN or transport.get_write_buffer_size():
                return False
            if not self._rest:
                self._link.send(frames.join(message))
                self._hub.dirty.clear()
                self._rest = b"".join(self._taken())
            try:
                written = os.write(transport.get_extra_info("socket").fileno(), self._rest)
            except BlockingIOError:
                written = 0
            except OSError:
                return False  # the connection broke, and the loop will notice
            self._rest = self._rest[written:]
            if self._rest:
                self.loop.call_soon_threadsafe(self.flush)
            return True

    def close(self, reason: str, abort: bool = False) -> None:
        """Closes the connection after all output has been written; with ``abort``, at once."""
        with self._lock:
            self._hand_over()
            self._link.close(CloseCause.OTHER, reason, abort)
        self.flush_soon()

    def discard(self) -> None:
        """Closes a connection that its owner never got: ``on_lost`` is not called."""
        self.on_lost = lambda error: None
        self.opened.cancel()
        self.close("not connected in time", abort=True)

    # --- from the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        if self.address.kind != IPC and transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
            # If no program listens on a port of the ephemeral range, TCP can connect a socket to itself.
            self._link.close(CloseCause.OTHER, "no broker listens there", abort=True)
        else:
            self.was_accepted = True
            self.on_accepted()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._hub.now = self.heard = self.loop.time()
        with self._lock:
            if self._tls is not None:
                try:
                    data = self._tls.receive(data)
                except ProtocolViolation as error:
                    self._violation = error
                    self._link.close(CloseCause.VIOLATION, str(error))
                    data = b""
            if data:
                self._link.receive(data)
            self._flush_locked()

    def connection_lost(self, exc: Exception | None) -> None:
        with self._lock:
            why = f"the connection broke: {exc}" if exc else "the broker closed the connection"
            self._link.lost(CloseCause.OTHER, why)
        self.resume_writing()
        self.gone.set_result(None)

    def pause_writing(self) -> None:
        if self._choked is None:
            self._choked = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._choked is not None:
            self._choked.set_result(None)
            self._choked = None

    def _hand_over(self) -> None:
        """Passes the end's messages to the link, in the form of the wire protocol."""
        out = self.end.out
        if not out:
            return
        link = self._link
        if isinstance(link, SpLink):
            for rid, payload in out:
                link.send_message(rid, b"", payload)
        else:
            for message in out:
                link.send(frames.join(message))
        out.clear()

    def _flush_locked(self) -> None:
        self._scheduled = False
        transport = self._transport
        if transport is None:
            return
        self._hand_over()
        link = self._link
        self._hub.dirty.clear()
        large = link.needs_full_flush
        link.needs_full_flush = False
        out = self._taken()
        if self._rest:
            out.insert(0, self._rest)
            self._rest = b""
        if out and link.state != ABORTING and not transport.is_closing():
            if large:
                writer_of(transport)(out)
            else:
                transport.write(b"".join(out))
        if link.state and not transport.is_closing():
            if link.state == ABORTING:
                transport.abort()
            else:
                transport.close()

    def _taken(self) -> "list[frames.Body]":
        """What the socket is to get, sealed and encrypted."""
        link = self._link
        out = link.take() if link.out and link.state != ABORTING else []
        if self._tls is None:
            return out
        self._tls.send(out)
        if link.state:
            self._tls.close()
        data = self._tls.take()
        return [data] if data else []

    # --- from the link --------------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        agreed = self.end.agreed = self._link.extensions
        if agreed.max_message:
            self.max_body = max(1, agreed.max_message - ENVELOPE)
            if agreed.max_message > MAX_MESSAGE and isinstance(self._link, ZmtpLink):
                largest = agreed.max_message + ENVELOPE
                self._link.bounds = Bounds(max_frame=largest, max_message=largest)
        if not self.opened.done():
            self.opened.set_result(None)

    def on_message(self, data: bytes, start: int, end: int) -> None:
        try:
            if self.end.wire == "sp":
                message = sp.split(data, start, end)
            else:
                message = frames.split(data[start:end])
            events = self.end.receive(message)
        except ProtocolViolation as error:
            self._violation = error
            self.close(f"protocol violation: {error}", abort=True)
            return
        for event in events:
            self.on_event(event)

    def on_close(self, reason: CloseReason) -> None:
        error: PolydomoError
        fault = self._violation or self._link.fault
        if isinstance(fault, AccessDenied):
            error = AccessDenied(fault.status, f"{self.address}: {fault}")
        elif fault is not None:
            hint = "" if self.opened.done() else "; is it a polydomo broker?"
            error = ProtocolViolation(f"{self.address}: {fault}{hint}")
        else:
            error = ConnectionLost(f"{self.address}: {reason}")
        if not self.opened.done():
            self.opened.set_exception(error)
        elif not self.opened.cancelled():
            self.on_lost(error)


async def connect(
    address: Address,
    end: End,
    on_event: Callable[[Event], None],
    on_lost: Callable[[PolydomoError], None],
    timeout: float,
    on_accepted: Callable[[], None] = lambda: None,
) -> BrokerConnection:
    """Connects and waits until the handshake is complete. Raises NotConnected, ProtocolViolation if the peer is not a broker, or
    AccessDenied if it rejects our credentials."""
    if address.kind != DISCOVER:
        return await _connect(address, end, on_event, on_lost, timeout, on_accepted)

    def attempt(found: Address, seconds: float) -> Coroutine[Any, Any, BrokerConnection]:
        return _connect(replace(found, security=address.security), end, on_event, on_lost, seconds, on_accepted)

    proof = proof_of(address)
    if proof is not None and proof.server_key:
        return await discovery.search(address, attempt, timeout)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    found = await discovery.find(address, timeout)
    return await attempt(found, max(deadline - loop.time(), 0.001))


async def connect_first(addresses: list[Address], dial: Callable[[Address], Awaitable[T]]) -> T:
    """Tries several addresses in their order until one answers. Raises NotConnected for the last one if none does."""
    for address in addresses[:-1]:
        try:
            return await dial(address)
        except NotConnected:
            continue
    return await dial(addresses[-1])


async def _connect(
    address: Address,
    end: End,
    on_event: Callable[[Event], None],
    on_lost: Callable[[PolydomoError], None],
    timeout: float,
    on_accepted: Callable[[], None] = lambda: None,
) -> BrokerConnection:
    loop = asyncio.get_running_loop()
    connection = BrokerConnection(address, end, on_event, on_lost, on_accepted)
    complete = False
    try:
        async with running_timeout(timeout):
            if address.kind == IPC:
                await loop.create_unix_connection(lambda: connection, address.path)
            else:
                await loop.create_connection(lambda: connection, address.host, address.port)
            await connection.opened
        complete = True
    except TimeoutError:
        raise silent(address, connection.was_accepted, timeout) from None
    except ConnectionLost as error:
        failure = NotConnected(str(error))
        failure.accepted = connection.was_accepted
        raise failure from None
    except OSError as error:
        failure = NotConnected(f"{address}: {error.strerror or error}")
        failure.refused = error.errno in REFUSALS
        raise failure from None
    finally:
        if not complete:  # the caller will not have this connection, even if the handshake is completed at this moment
            connection.discard()
    return connection


def silent(address: Address, accepted: bool, timeout: float) -> NotConnected:
    """The error for an address that did not answer within ``timeout``. ``accepted``: a program accepted the connection."""
    what = "a program accepted the connection, but did not answer" if accepted else "no answer"
    failure = NotConnected(f"{address}: {what} {f'within {timeout:.2g} s' if timeout > 0.1 else 'in time'}")
    failure.accepted = accepted
    return failure


async def _announced_limit(address: Address) -> int:
    """The size of a body that the broker accepts; the default if the peer is another broker, which has no ZMTP there."""
    try:
        connection = await _connect(address, MdxClientEnd(), lambda event: None, lambda error: None, LIMIT_ASKED_TIME)
    except PolydomoError:
        return MAX_BODY
    connection.close("the limit is known")
    return connection.max_body


def _keep_alive(sock: socket.socket | None) -> None:
    """Enables TCP keepalive, which detects a broker whose machine has vanished."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        (
            "TCP_USER_TIMEOUT",
            1000 * (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT),
        ),  # the same for unacknowledged data
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
