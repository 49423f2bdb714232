"""Connections that belong to process 0 of a broker, whichever process accepted them.

HTTP (the dashboard, jobs, metrics), TLS, DBP and eMQP's schedules need what only process 0 has. A process that recognises one in the first
bytes of a connection passes its socket to process 0, over a Unix socket with SCM_RIGHTS, together with what it has read. An HTTP or TLS
connection is passed before anything was sent. A ZMTP connection is recognised by its first message, after the handshake:
process 0 reads all bytes of the peer again, and does not repeat the bytes of the handshake that the peer has had. That works for the NULL
mechanism, whose bytes are always the same; with another one the connection is closed with a reason.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket

from polydomo import limits
from polydomo.model.listener_roles import ROLES, Role
from polydomo.server import logs
from polydomo.server.connections.connection import Connection
from polydomo.server.host import Host
from polydomo.server.logs import say, trouble
from polydomo.wire.address import parse_url
from polydomo.wire.link import Hub, LinkHandler, Turns
from polydomo.wire.zmtp.link import ZmtpLink

LOG = logs.get("server")

NAME = "handover.sock"


class Handover:
    """The sending side: in every process but the first."""

    def __init__(self, server: Host, directory: str) -> None:
        self._server = server
        self._path = os.path.join(directory, NAME)
        self._socket: socket.socket | None = None

    def give(self, connection: Connection, data: bytes, unsent: int = -1) -> None:
        """Passes the connection to process 0 with all bytes that it has sent. ``unsent``: bytes of a ZMTP handshake that were not
        written yet; -1: nothing was sent."""
        server = self._server
        skip = 0 if unsent < 0 else self._handshake(data) - unsent
        header = {
            "ipc": connection.ipc,
            "local": connection.local,
            "listener": str(connection.listener or ""),
            "role": connection.role.name,
            "skip": skip,
        }
        message = json.dumps(header).encode() + b"\n" + data
        sock = connection.transport.get_extra_info("socket")
        why = "it is larger than another process takes" if len(message) > limits.HANDOVER_MESSAGE else ""
        if not why:
            try:
                socket.send_fds(self._connected(), [message], [sock.fileno()])
            except OSError as error:
                self._close()
                why = f"process 0 does not answer: {error.strerror or error}"
        if why:
            say(LOG, logging.WARNING, "connection closed", peer=connection.peer, why=why)
        server.broker.counters.connections_accepted -= 1
        connection.transport.abort()  # this process' copy of the socket

    def _handshake(self, data: bytes) -> int:
        """How many bytes we answer to the handshake in ``data``."""
        link = ZmtpLink(Hub(Turns()), LinkHandler(), "", bounds=self._server.bounds)
        link.receive(data)
        return sum(map(len, link.out))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * limits.HANDOVER_MESSAGE)
                sock.connect(self._path)
            except BaseException:
                sock.close()
                raise
            self._socket = sock
        return self._socket

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def stop(self) -> None:
        self._close()


class Handed(Connection):
    """A connection that another process accepted: what that process has read comes first."""

    def __init__(self, server: Host, header: "dict[str, object]", role: Role, data: bytes) -> None:
        listener = parse_url(str(header["listener"])) if header["listener"] else None
        super().__init__(server, bool(header["ipc"]), role, bool(header["local"]), listener)
        self._data = data
        self._skip = int(str(header["skip"]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport.is_closing():
            return
        data, self._data = self._data, b""
        self.data_received(data)
        link = self.link
        if self._skip and link is not None:
            answer = b"".join(link.out)
            link.out[:] = [answer[self._skip :]]


class HandoverReceiver:
    """The receiving side: in process 0."""

    def __init__(self, server: Host, directory: str) -> None:
        self._server = server
        self._path = os.path.join(directory, NAME)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._peers: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener.setblocking(False)
        self._listener.bind(self._path)
        self._listener.listen(limits.MAX_PROCESSES)
        self._server.loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        peer.setblocking(False)
        self._peers.append(peer)
        self._server.loop.add_reader(peer.fileno(), self._receive, peer)

    def _receive(self, peer: socket.socket) -> None:
        for _ in range(limits.HANDOVERS_PER_TURN):
            try:
                message, files, _, _ = socket.recv_fds(peer, limits.HANDOVER_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    return
                message, files = b"", []
            if not message:
                self._server.loop.remove_reader(peer.fileno())
                self._peers.remove(peer)
                peer.close()
                return
            if files:
                task = self._server.loop.create_task(self._take(files[0], message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _take(self, file: int, message: bytes) -> None:
        try:
            head, _, data = message.partition(b"\n")
            header = json.loads(head)
            role = ROLES[header["role"]]
            sock = socket.socket(fileno=file)
            sock.setblocking(False)
            await self._server.loop.connect_accepted_socket(lambda: Handed(self._server, header, role, data), sock)
        except OSError as error:
            say(LOG, logging.DEBUG, "connection lost on its way to process 0", why=str(error))
        except Exception:
            trouble(LOG, "internal error", during="taking a connection over")

    def stop(self) -> None:
        for sock in (self._listener, *self._peers):
            self._server.loop.remove_reader(sock.fileno())
            sock.close()
        self._peers.clear()
