"""A program that sends a broker's beacon on loopback, but does not have the broker's key."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from tests.server.nearby import LOOPBACK

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\x01" + bytes(31)
HELLO_SIZE = 202  # the octets of the frame with CURVE's HELLO
DENIAL = b"\x04\x0a\x05ERROR\x03400"
EVERY = 0.05  # seconds between two beacons


class Impostor:
    """Answers a HELLO with ERROR 400, or stays silent. ``connections`` are those that it has accepted."""

    def __init__(self, beacon_port: int, denies: bool) -> None:
        self.denies = denies
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._place = (LOOPBACK, beacon_port)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept), threading.Thread(target=self._shout)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for opened in (self._listener, *self.connections):
            opened.close()

    def _shout(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            out.bind(("127.0.0.1", 0))
            while not self._over.wait(EVERY):
                out.sendto(b"SHALOM %d" % self._listener.getsockname()[1], self._place)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if self.denies:
                with contextlib.suppress(OSError):
                    self._deny(connection)

    def _deny(self, connection: socket.socket) -> None:
        connection.sendall(GREETING)
        missing = len(GREETING) + HELLO_SIZE
        while missing > 0 and (data := connection.recv(missing)):
            missing -= len(data)
        connection.sendall(DENIAL)
