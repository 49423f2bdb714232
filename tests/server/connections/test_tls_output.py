"""Output inside TLS: a large message is encrypted in steps, and what has been encrypted is not kept."""

import asyncio
from pathlib import Path
from typing import cast

from polydomo.limits import STEP_BYTES
from polydomo.server.connections.connection import Connection
from polydomo.server.host import Host
from polydomo.wire.frames import Body
from tests.certificates import Authority
from tests.test_tls import carry, pair


class Wire:
    """A transport that keeps what is written, and how many pieces were left to write then."""

    def __init__(self, pieces: "list[Body]") -> None:
        self.pieces = pieces
        self.left: list[int] = []
        self.data = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.left.append(len(self.pieces))
        self.data += data


def test_pieces_are_dropped_once_they_are_encrypted(tmp_path: Path) -> None:
    Authority(tmp_path).certificate("server", "DNS:localhost")
    server, client = pair(tmp_path)
    carry(server, client)
    pieces: list[Body] = [b"head", *(bytes([number]) * (STEP_BYTES + number) for number in range(5)), b"end"]
    whole = b"".join(pieces)
    connection = Connection(cast(Host, None), False)
    connection.tls = server
    wire = Wire(pieces)
    connection.transport = cast(asyncio.Transport, wire)
    connection.write(pieces)
    assert client.receive(wire.data) == whole
    assert wire.left == sorted(wire.left, reverse=True) and (wire.left[0], wire.left[-1]) == (6, 0)
