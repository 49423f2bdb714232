"""The connections of the load: clients and workers of each wire protocol, on raw sockets."""

import asyncio
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.load_dialogs import Dialog
from polydomo.keys import read_pair, read_public
from polydomo.wire import cbor
from polydomo.wire.security.curve import CurveClient
from polydomo.wire.security.mechanism import command, parse_command, properties
from polydomo.wire.zmtp.extensions import PROPERTY

if TYPE_CHECKING:
    from bench.load import Load

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32)
CURVE_GREETING = GREETING.replace(b"NULL" + bytes(1), b"CURVE")
KEYS = Path(os.environ.get("BENCH_KEYS", "."))
READY = command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b"")]))
READY_EXTENDED = command(
    b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b""), (PROPERTY, b"credit=1")])
)


class Peer(asyncio.Protocol):
    """One connection of the load."""

    def __init__(self, load: "Load", worker: bool) -> None:
        self.load = load
        self.worker = worker
        self.sent = 0
        self.got = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.opening())

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        taken, out = self.take(data)
        self.rest = data[taken:]
        if not self.worker and self.load.running:
            out += self.fill()
        if out:
            self.transport.write(out)

    def fill(self) -> bytes:
        """As many requests as the window allows."""
        count = min(self.load.window - (self.sent - self.got), self.load.share - self.sent)
        out = b"".join(self.request(self.sent + i) for i in range(count))
        self.sent += max(0, count)
        return out

    def replied(self, data: bytes, end: int) -> None:
        """A reply whose body ends at ``end``."""
        self.got += 1
        if self.load.on_reply is None:
            self.load.count()
        else:
            self.load.on_reply(data[end - len(self.load.body) : end])

    def opening(self) -> bytes:
        raise NotImplementedError

    def take(self, data: bytes) -> tuple[int, bytes]:
        """Reads complete messages; returns how many bytes they have, and the answers to them."""
        raise NotImplementedError

    def request(self, number: int) -> bytes:
        raise NotImplementedError

    def beat(self) -> bytes:
        return b""


class ZmtpPeer(Peer):
    def __init__(self, load: "Load", worker: bool, dialog: Dialog) -> None:
        super().__init__(load, worker)
        self.dialog = dialog
        self.open = False

    def opening(self) -> bytes:
        return GREETING + (READY_EXTENDED if self.load.credit > 1 else READY)

    def request(self, number: int) -> bytes:
        return self.dialog.request(number, self.load.body)

    def beat(self) -> bytes:
        return self.dialog.beat

    def take(self, data: bytes) -> tuple[int, bytes]:
        at = 0
        out: list[bytes] = []
        if not self.open:
            if len(data) < 66 or len(data) < 66 + data[65]:
                return 0, b""
            at = 66 + data[65]
            self.open = True
            self.load.opened()
            if self.worker:
                out.append(self.dialog.hello + self.dialog.ask(self.load.credit))
        start = at
        size = len(data)
        while at + 2 <= size:
            flags = data[at]
            if flags & 2:
                if at + 9 > size:
                    break
                end = at + 9 + int.from_bytes(data[at + 1 : at + 9], "big")
            else:
                end = at + 2 + data[at + 1]
            if end > size:
                break
            at = end
            if flags & 1:
                continue
            if self.worker:
                out.append(self.dialog.answer(data[start:end]))
            else:
                self.replied(data, end)
            start = end
        return start, b"".join(out)


class Sealing:
    """The transport of a CURVE connection: encrypts what a peer writes."""

    def __init__(self, transport: asyncio.Transport, mechanism: CurveClient) -> None:
        self.close = transport.close
        self._transport = transport
        self._mechanism = mechanism

    def write(self, data: bytes) -> None:
        if data:
            self._transport.writelines(self._mechanism.encode([data]))


class CurvePeer(ZmtpPeer):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.raw = cast(asyncio.Transport, transport)
        keys = read_pair(KEYS / "client.key_secret", "key")
        server_key = read_public(str(KEYS / "server.key"), "server_key")
        self.mechanism = CurveClient(keys, server_key, os.urandom, b"DEALER")
        self.greeted = False
        self.raw.write(CURVE_GREETING)

    def data_received(self, data: bytes) -> None:
        if not self.open:
            data = self.shake(self.rest + data)
        if self.open:
            super().data_received(self.mechanism.decode(data))

    def shake(self, data: bytes) -> bytes:
        if not self.greeted and len(data) >= 64:
            self.greeted = True
            data = data[64:]
            self.raw.write(self.mechanism.begin())
        while self.greeted and not self.mechanism.done and len(data) >= 9:
            start, size = (9, int.from_bytes(data[1:9], "big")) if data[0] & 2 else (2, data[1])
            if len(data) < start + size:
                break
            self.raw.write(self.mechanism.command(*parse_command(data[start : start + size])))
            data = data[start + size :]
        self.rest = data
        if not self.mechanism.done:
            return b""
        self.rest = b""
        self.transport = cast(asyncio.Transport, Sealing(self.raw, self.mechanism))
        self.open = True
        self.load.opened()
        if self.worker:
            self.transport.write(self.dialog.hello)
        return data


class MemoPeer(Peer):
    """memo01 over SP. A worker polls with a new request id each time."""

    def __init__(self, load: "Load", worker: bool) -> None:
        super().__init__(load, worker)
        self.open = False
        self.rid = 1 << 31

    def opening(self) -> bytes:
        return b"\x00SP\x00\x00\x30\x00\x00"

    def say(self, header: list[cbor.Item], payload: bytes = b"") -> bytes:
        self.rid += 1
        content = struct.pack(">I", self.rid) + cbor.encode(header) + payload
        return struct.pack(">Q", len(content)) + content

    def request(self, number: int) -> bytes:
        return self.say(["memo01", 2, b"", "echo", 60_000], self.load.body)

    def take(self, data: bytes) -> tuple[int, bytes]:
        at = 0
        out: list[bytes] = []
        if not self.open:
            if len(data) < 8:
                return 0, b""
            at = 8
            self.open = True
            self.load.opened()
            if self.worker:
                out.append(self.say(["memo01", 1, b"", ["echo"]]))
        while at + 8 <= len(data):
            end = at + 8 + int.from_bytes(data[at : at + 8], "big")
            if end > len(data):
                break
            if not self.worker:
                self.replied(data, end)
            else:
                # header: 85 or 83, "memo01", type, id of 16 bytes; a JOB goes on with service and timeout
                kind, worker_id = data[at + 20], data[at + 22 : at + 38]
                if kind == 2:
                    after = at + 38 + 1 + (data[at + 38] & 31)
                    payload = after + (1, 2, 3, 5)[max(0, (data[after] & 31) - 23)]
                    out.append(self.say(["memo01", 3, worker_id], data[payload:end]))
                else:
                    out.append(self.say(["memo01", 4, worker_id]))
            at = end
        return at, b"".join(out)


class NatsPeer(Peer):
    def opening(self) -> bytes:
        self.inbox = b"I%d.%d" % (os.getpid(), self.load.next_number())  # there may be several generator processes
        subject = "SUB echo q 1" if self.worker else f"SUB {self.inbox.decode()}.* 1"
        self.load.opened()
        return f'CONNECT {{"verbose":false}}\r\n{subject}\r\n'.encode()

    def request(self, number: int) -> bytes:
        return b"PUB echo %b.%d %d\r\n%b\r\n" % (self.inbox, number, len(self.load.body), self.load.body)

    def take(self, data: bytes) -> tuple[int, bytes]:
        at = 0
        out: list[bytes] = []
        while (line := data.find(b"\r\n", at)) >= 0:
            if data.startswith(b"MSG ", at):
                words = data[at:line].split()
                end = line + 2 + int(words[-1]) + 2
                if end > len(data):
                    break
                if self.worker:
                    out.append(b"PUB %b %b\r\n%b" % (words[3], words[-1], data[line + 2 : end]))
                else:
                    self.replied(data, end - 2)
                at = end
            else:
                if data.startswith(b"PING", at):
                    out.append(b"PONG\r\n")
                at = line + 2
        return at, b"".join(out)


class GearmanPeer(Peer):
    def opening(self) -> bytes:
        self.load.opened()
        return self.packet(1, b"echo") + self.packet(9) if self.worker else b""

    def packet(self, kind: int, data: bytes = b"") -> bytes:
        return b"\x00REQ" + struct.pack(">II", kind, len(data)) + data

    def request(self, number: int) -> bytes:
        return self.packet(7, b"echo\x00\x00" + self.load.body)

    def take(self, data: bytes) -> tuple[int, bytes]:
        at = 0
        out: list[bytes] = []
        while at + 12 <= len(data):
            kind, size = struct.unpack_from(">II", data, at + 4)
            end = at + 12 + size
            if end > len(data):
                break
            if kind == 13 and not self.worker:
                self.replied(data, end)
            elif kind == 6:  # NOOP: there is work
                out.append(self.packet(9))
            elif kind == 10:  # NO_JOB
                out.append(self.packet(4))
            elif kind == 11:  # JOB_ASSIGN: handle, function, data
                handle, _, content = data[at + 12 : end].split(b"\x00", 2)
                out.append(self.packet(13, handle + b"\x00" + content) + self.packet(9))
            at = end
        return at, b"".join(out)


OTHERS: dict[str, type[Peer]] = {"memo": MemoPeer, "nats": NatsPeer, "gearman": GearmanPeer}
