"""Listening sockets. All are bound before the first peer can connect: each address of a name, and Unix sockets with private permissions."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
from typing import Any

from polydomo.errors import SettingError
from polydomo.limits import PORT_TRIES
from polydomo.server.resources import REMEDIES, remedy
from polydomo.wire.address import IPC, Address

Place = tuple[int, tuple[Any, ...]]  # address family, and the argument of ``bind``

KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Listening:
    """The bound sockets of one address. ``address`` contains the port that the system chose."""

    def __init__(self, address: Address, sockets: list[socket.socket], own_file: bool = True) -> None:
        self.address = address
        self.sockets = sockets
        self._file = _identity(address.path) if address.kind == IPC and own_file else None

    def remove_file(self) -> None:
        """Removes the socket file, unless another process has replaced it."""
        if self._file is not None and _identity(self.address.path) == self._file:
            with contextlib.suppress(OSError):
                os.unlink(self.address.path)

    def close(self) -> None:
        self.remove_file()
        for sock in self.sockets:
            sock.close()


async def bind(address: Address, shared: bool = False) -> Listening:
    """Binds, but does not listen yet. ``shared``: other processes of this broker bind the same TCP port. Raises SettingError."""
    try:
        if address.kind == IPC:
            return Listening(address, [_bind_file(address.path)])
        host = None if address.host == "*" else address.host
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        places: list[Place] = list(dict.fromkeys((family, place) for family, _, _, _, place in found))
        sockets = _bind_all(places, address.port, shared)
        return Listening(Address(address.kind, address.host, sockets[0].getsockname()[1]), sockets)
    except OSError as error:
        raise SettingError(f"cannot listen on {address}: {reason(error)}") from None
    except RuntimeError as error:  # no thread can be started to resolve the name
        raise SettingError(f"cannot listen on {address}: {error}; {REMEDIES[errno.EAGAIN]}") from None


def _bind_all(places: list[Place], port: int, shared: bool) -> list[socket.socket]:
    """A name may have several addresses (``localhost`` often has two). All get the same port, even if the system chooses it."""
    for _ in range(PORT_TRIES):
        try:
            return _bind_each(places, port, shared)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
            taken = error  # the port was free on one address, but not on the next
    raise taken


def _bind_each(places: list[Place], port: int, shared: bool) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, place in places:
            try:
                sockets.append(_bind_tcp(family, place, port, shared))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error  # without IPv6, use the other address
            else:
                port = sockets[-1].getsockname()[1]
        if not sockets and missing is not None:
            raise missing
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bind_tcp(family: int, place: tuple[Any, ...], port: int, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # TCP keepalive: the kernel detects a dead peer within about two minutes. Accepted sockets inherit this.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE:
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        sock.bind((place[0], port, *place[2:]))
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_file(path: str) -> socket.socket:
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, 0o600)  # before listen, so that no peer can connect under other permissions
    except BaseException:
        sock.close()
        raise
    return sock


def _clear(path: str) -> None:
    """Removes the socket file of a killed broker. Fails if a program still answers there, or if the file is not a socket."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(
                errno.EEXIST, "a file that is not a socket already exists there; remove it or choose another path"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # do not block on a full backlog
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, "address already in use")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is already in use; stop the other program or choose another with --listen"
    if error.errno == errno.EACCES:
        return "permission denied"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have this address"
    if error.errno == errno.ENOENT:
        return "the directory does not exist"
    return remedy(error)
