"""CURVE by hand over a blocking socket, for peers that do what no honest one does."""

import os
import socket

from polydomo.keys import read_pair, read_public
from polydomo.wire.security.curve import CurveClient
from polydomo.wire.security.mechanism import parse_command
from tests.server.secured import PATIENCE, Place

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\x00") + bytes(32)


class RawCurve:
    """One connection; ``sent`` is everything that was sent on it."""

    def __init__(self, url: str, place: Place, name: str = "alice", minor: int = 1) -> None:
        self.greeting = GREETING[:11] + bytes((minor,)) + GREETING[12:]
        host, port = url.removeprefix("tcp://").split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        keys = read_pair(place.file(f"{name}.key_secret"), "key")
        self.mechanism = CurveClient(keys, read_public(place.file("server.key"), "server"), os.urandom, b"DEALER")
        self.sent = b""

    def __enter__(self) -> "RawCurve":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.sent += data
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("closed")
            data += more
        return data

    def read_command(self) -> tuple[bytes, bytes]:
        head = self.read(2)
        size = head[1] if not head[0] & 2 else int.from_bytes(head[1:] + self.read(7), "big")
        return parse_command(self.read(size))

    def hello(self) -> None:
        self.send(self.greeting)
        self.read(64)
        self.send(self.mechanism.begin())

    def initiate(self) -> bytes:
        """Reads WELCOME; returns INITIATE without sending it."""
        return self.mechanism.command(*self.read_command())

    def shake(self) -> None:
        self.hello()
        self.send(self.initiate())
        self.mechanism.command(*self.read_command())

    def closed(self) -> bool:
        """Whether the broker closes the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True
