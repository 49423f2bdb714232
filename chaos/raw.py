"""ZMTP and SP as raw bytes, for peers that no library could be."""

import asyncio
import json
from typing import Any, Self

from polydomo.wire import frames

SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
NULL = b"NULL".ljust(20, b"\0") + bytes(32)
SP_REQ = b"\x00SP\x00\x00\x30\x00\x00"  # "0x00 'S' 'P' 0x00", the protocol (REQ is 48), reserved


def greeting(socket_type: bytes) -> bytes:
    """A complete ZMTP 3.1 handshake of the NULL mechanism, from the peer's side."""
    body = b"\x05READY\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return SIGNATURE + b"\x03\x01" + NULL + bytes((4, len(body))) + body


class Peer:
    """A ZMTP connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, address: tuple[str, int], socket_type: bytes = b"DEALER", timeout: float = 5.0) -> Self:
        """Raises OSError; TimeoutError and EOFError are converted to it."""
        try:
            async with asyncio.timeout(timeout):
                peer = cls(*await asyncio.open_connection(*address))
                peer.writer.write(greeting(socket_type))
                await peer.reader.readexactly(64)
                _, size = await peer.reader.readexactly(2)
                await peer.reader.readexactly(size)
                return peer
        except EOFError:
            raise ConnectionResetError("closed during the handshake") from None

    def send(self, *parts: bytes) -> None:
        self.writer.write(frames.join(list(parts)))

    async def receive(self) -> list[bytes]:
        found: list[bytes] = []
        try:
            while True:
                flags = (await self.reader.readexactly(1))[0]
                size = int.from_bytes(await self.reader.readexactly(8 if flags & 2 else 1), "big")
                found.append(await self.reader.readexactly(size))
                if not flags & 1:
                    return found
        except EOFError:
            raise ConnectionResetError("closed") from None

    async def ask(self, what: str, timeout: float = 5.0) -> Any:
        """Calls ``polydomo.<what>`` at the broker."""
        self.send(b"", b"MDPC01", b"polydomo." + what.encode())
        async with asyncio.timeout(timeout):
            return json.loads((await self.receive())[3])

    def close(self) -> None:
        self.writer.transport.abort()


async def call(address: tuple[str, int], service: bytes, body: bytes, timeout: float = 5.0) -> list[bytes]:
    """One MDP/0.1 call. Raises OSError."""
    peer = await Peer.dial(address, timeout=timeout)
    try:
        peer.send(b"", b"MDPC01", service, body)
        async with asyncio.timeout(timeout):
            return (await peer.receive())[3:]
    finally:
        peer.close()


async def ask(address: tuple[str, int], what: str, timeout: float = 5.0) -> Any:
    peer = await Peer.dial(address, timeout=timeout)
    try:
        return await peer.ask(what, timeout)
    finally:
        peer.close()
