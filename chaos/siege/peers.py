"""Hostile peers: plain sockets, and messages that no library would send like this."""

import contextlib
import json
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Self

from polydomo.protocols.memo import messages
from polydomo.wire.frames import join

SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
NULL = b"NULL".ljust(20, b"\0") + bytes(32)
SP_REQ = b"\x00SP\x00\x00\x30\x00\x00"
CONNECT_TIME = 30.0  # seconds; the broker may be busy with the attack, and the machine with other things
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE
NOW = struct.pack("=f", 1.0e9)  # any value works for DBP


def greeting(socket_type: bytes) -> bytes:
    """A complete ZMTP 3.1 handshake of the NULL mechanism, from the peer's side."""
    body = b"\x05READY\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return SIGNATURE + b"\x03\x01" + NULL + bytes((4, len(body))) + body


class Foe:
    """One connection. ``buffer`` limits how much the kernel buffers for it."""

    def __init__(self, port: int, host: str = "127.0.0.1", buffer: int = 0) -> None:
        self.socket: socket.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        if host != "127.0.0.1":
            self.socket.bind((host, 0))
        self.socket.settimeout(CONNECT_TIME)
        self.socket.connect(("127.0.0.1", port))

    @classmethod
    def zmtp(cls, port: int, socket_type: bytes = b"DEALER", host: str = "127.0.0.1", buffer: int = 0) -> Self:
        foe = cls(port, host, buffer)
        foe.socket.sendall(greeting(socket_type))
        foe.read(64)
        foe.read(foe.read(2)[1])
        return foe

    @classmethod
    def web(cls, port: int, tls: bool = False, buffer: int = 0) -> Self:
        """For HTTP, inside TLS if the broker serves it."""
        foe = cls(port, buffer=buffer)
        if tls:
            foe.socket = TLS.wrap_socket(foe.socket, server_hostname="localhost")
        return foe

    @classmethod
    def websocket(cls, port: int, tls: bool = False, buffer: int = 0) -> Self:
        foe = cls.web(port, tls, buffer)
        foe.socket.sendall(
            http_head(
                "GET /v1/ws",
                "Upgrade: websocket",
                "Connection: Upgrade",
                f"Sec-WebSocket-Key: {'A' * 22}==",
                "Sec-WebSocket-Version: 13",
            )
        )
        foe.read_head()
        return foe

    @classmethod
    def sp(cls, port: int) -> Self:
        foe = cls(port)
        foe.socket.sendall(SP_REQ)
        foe.read(8)
        return foe

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self.socket.recv(min(size - len(found), 1 << 20))
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            found += more
        return bytes(found)

    def read_head(self) -> bytes:
        """The head of an HTTP response."""
        found = b""
        while not found.endswith(b"\r\n\r\n"):
            found += self.read(1)
        return found

    def exchange(self, request: bytes) -> "tuple[int, bytes]":
        """Sends an HTTP request and returns the status and the body, or the head if there is no body."""
        self.socket.sendall(request)
        head = self.read_head()
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return int(head.split(b" ")[1]), self.read(int(length)) if length.strip(b" 0") else head

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(join(list(parts)))

    def receive(self) -> list[bytes]:
        """The next ZMTP message; commands are skipped."""
        found: list[bytes] = []
        while True:
            flags = self.read(1)[0]
            size = int.from_bytes(self.read(8 if flags & 2 else 1), "big")
            content = self.read(size)
            if flags & 4:
                continue
            found.append(content)
            if not flags & 1:
                return found

    def receive_sp(self) -> bytes:
        return self.read(int.from_bytes(self.read(8), "big"))

    def close(self) -> None:
        self.socket.close()


def flood(foes: Sequence[Foe], data: Iterable[bytes], seconds: float, reads: bool = False) -> int:
    """Sends ``data`` over all connections as fast as the broker reads, for some seconds. With ``reads``, answers are read, until the
    time is over. Returns the number of bytes sent."""
    end = time.monotonic() + seconds
    sent = 0
    pieces = [memoryview(piece) for piece in data]
    place = dict.fromkeys(foes, (0, 0))
    with selectors.DefaultSelector() as selector:
        for foe in foes:
            foe.socket.setblocking(False)
            selector.register(foe.socket, selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0), foe)
        while selector.get_map() and time.monotonic() < end:
            for key, events in selector.select(0.05):
                foe = key.data
                piece, offset = place[foe]
                try:
                    if events & selectors.EVENT_READ and not foe.socket.recv(1 << 18):
                        raise ConnectionResetError
                    if not events & selectors.EVENT_WRITE:
                        continue
                    count = foe.socket.send(pieces[piece][offset : offset + (1 << 18)])
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except OSError:  # the broker has disconnected it
                    selector.unregister(foe.socket)
                    continue
                sent += count
                offset += count
                if offset == len(pieces[piece]):
                    piece, offset = piece + 1, 0
                if piece == len(pieces) and reads:
                    selector.modify(foe.socket, selectors.EVENT_READ, foe)
                elif piece == len(pieces):
                    selector.unregister(foe.socket)
                else:
                    place[foe] = piece, offset
    for foe in foes:
        with contextlib.suppress(OSError):
            foe.socket.settimeout(CONNECT_TIME)
    return sent


def http_head(start: str, *headers: str) -> bytes:
    """The head of an HTTP request, such as ``http_head("GET /healthz")``."""
    return "\r\n".join([f"{start} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def http_request(start: str, body: bytes, *headers: str) -> bytes:
    return http_head(start, f"Content-Length: {len(body)}", *headers) + body


def websocket_frame(text: bytes, final: bool = True, opcode: int = 1) -> bytes:
    """A masked frame; the mask is zero, so that the content stays as it is."""
    size = len(text)
    length = (
        bytes((128 | size,))
        if size < 126
        else b"\xfe" + size.to_bytes(2, "big")
        if size < 65536
        else b"\xff" + size.to_bytes(8, "big")
    )
    return bytes((opcode | (128 if final else 0),)) + length + bytes(4) + text


def dbp(command: bytes, body: bytes = b"") -> bytes:
    return join([b"", command, NOW, body])


def command(name: bytes, data: bytes) -> bytes:
    """A ZMTP command, such as SUBSCRIBE."""
    body = bytes((len(name),)) + name + data
    return bytes((4, len(body))) + body if len(body) < 256 else b"\x06" + len(body).to_bytes(8, "big") + body


def long_frame(size: int, more: bool = False) -> bytes:
    """The head of a ZMTP frame."""
    return bytes((3 if more else 2,)) + size.to_bytes(8, "big")


def sp_message(number: int, body: bytes) -> bytes:
    return (4 + len(body)).to_bytes(8, "big") + (number | 1 << 31).to_bytes(4, "big") + body


def names(count: int, start: int = 0) -> list[bytes]:
    return [b"s%05d" % number for number in range(start, start + count)]


def memo_ready(number: int, services: list[bytes]) -> bytes:
    return sp_message(number, messages.ready(services))


def offer_services(port: int, count: int) -> list[Foe]:
    """Registers many services: a memo01 worker offers up to 1,000 of them."""
    foes = []
    for start in range(0, count, 1000):
        foe = Foe.sp(port)
        foe.socket.sendall(memo_ready(1, names(min(1000, count - start), start)))
        foes.append(foe)
    return foes


def fill_catalog(port: int, count: int, size: int) -> None:
    """Registrations without heartbeats; they stay in the catalog."""
    for number in range(count):
        foe = Foe.zmtp(port)
        info = {"name": f"entry-{number:04d}", "more": "x" * (size - 60)}
        foe.socket.sendall(dbp(b"UwU", json.dumps(info).encode()))
        assert foe.receive()[1] == b"OwO"
        foe.close()


def fill_values(port: int, count: int, size: int) -> None:
    """Last values of many topics."""
    foe = Foe.zmtp(port, b"PUB")
    for number in range(count):
        foe.send(b"a%04d" % number, b"x" * size)
    foe.close()
