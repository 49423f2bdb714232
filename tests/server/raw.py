"""A peer that writes its bytes itself: for what libzmq would never send."""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

from polydomo.wire import frames
from tests.cli.shell import PATIENCE

SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
NULL = b"NULL".ljust(20, b"\0") + bytes(32)


_numbers = itertools.count(1)


def own_host() -> str:
    """A loopback address that no other peer of this test process uses.

    The broker's log is limited by line and host; so every peer has its own lines, and they can be told from all others.
    """
    number = next(_numbers)
    host = f"127.77.{number >> 8}.{number & 255}"
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return "127.0.0.1"  # a system whose loopback has just the one
    return host


def ready(socket_type: bytes) -> bytes:
    """The READY command of the NULL mechanism."""
    body = b"\x05READY\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return bytes((4, len(body))) + body


class Raw:
    """A plain TCP connection. ``shake`` makes it one of ZMTP's."""

    def __init__(self, address: tuple[str, int], buffer: int = 0, host: str = "") -> None:
        self.host = host or ("::1" if ":" in address[0] else own_host())
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.socket.bind((self.host, 0))
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(address)

    def shake(self, socket_type: bytes = b"DEALER", minor: int = 1) -> None:
        """ZMTP 3.0 or 3.1, to the end of the handshake."""
        self.write(SIGNATURE + bytes((3, minor)) + NULL + ready(socket_type))
        greeting = self.read(64)
        assert greeting[:10] == SIGNATURE and greeting[10] == 3
        flags, size = self.read(2)
        assert flags == 4 and self.read(size).startswith(b"\x05READY")

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *parts: bytes) -> None:
        self.write(frames.join(list(parts)))

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            assert more, f"closed after {bytes(found)!r}"
            found += more
        return bytes(found)

    def receive(self) -> list[bytes]:
        """The next message."""
        found: list[bytes] = []
        while True:
            flags = self.read(1)[0]
            size = int.from_bytes(self.read(8 if flags & 2 else 1), "big")
            found.append(self.read(size))
            if not flags & 1:
                return found

    def call(self, service: bytes, *body: bytes) -> list[bytes]:
        """One MDP/0.1 call on a DEALER; nothing else may come before its answer."""
        self.send(b"", b"MDPC01", service, *body)
        empty, header, name, *reply = self.receive()
        assert (empty, header, name) == (b"", b"MDPC01", service)
        return reply

    def ask(self, what: str) -> Any:
        """``polydomo.<what>``"""
        return json.loads(self.call(b"polydomo." + what.encode())[0])

    def closed(self) -> bytes:
        """Waits until the broker has closed the connection; returns the bytes received before."""
        found = bytearray()
        with contextlib.suppress(ConnectionError):
            while more := self.socket.recv(65536):
                found += more
        return bytes(found)

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def raw(address: tuple[str, int], buffer: int = 0) -> Iterator[Raw]:
    peer = Raw(address, buffer)
    try:
        yield peer
    finally:
        peer.close()


@contextlib.contextmanager
def dealer(address: tuple[str, int], minor: int = 1) -> Iterator[Raw]:
    """A DEALER, past its handshake."""
    with raw(address) as peer:
        peer.shake(minor=minor)
        yield peer
