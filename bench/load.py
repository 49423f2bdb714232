"""A load of echo requests on raw sockets, for any protocol a broker may speak.

    python bench/load.py PROTOCOL PORT WORKERS CLIENTS REQUESTS WINDOW SIZE [CREDIT]

PROTOCOL may end in ``+curve`` or ``+tls``; the keys and certificates are then in the directory that BENCH_KEYS names (``bench/curve.py``).
One process plays all workers and all clients; each client keeps WINDOW requests outstanding until it has sent its share of
REQUESTS. Workers of MDX and eMQP hold CREDIT requests at a time (1 unless given). It prints one JSON line: requests served, seconds,
requests/s, its own CPU seconds. What the broker spent is for the caller to read.
"""

import asyncio
import contextlib
import json
import os
import ssl
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from polydomo.keys import read_pair, read_public
from polydomo.tls import client_context
from polydomo.wire import cbor
from polydomo.wire.curve import CurveClient
from polydomo.wire.extensions import PROPERTY
from polydomo.wire.frames import join, split
from polydomo.wire.mechanism import command, parse_command, properties

Frames = list[bytes]

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32)
CURVE_GREETING = GREETING.replace(b"NULL" + bytes(1), b"CURVE")
KEYS = Path(os.environ.get("BENCH_KEYS", "."))
READY = command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b"")]))
READY_EXTENDED = command(
    b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b""), (PROPERTY, b"credit=1")])
)
DCP = b"DGBX\x01"
EMQP = b"eMQP/1.0"


class Dialog:
    """What a client and a worker of one protocol say; the wire is the caller's."""

    hello = b""  # a worker's first bytes after the handshake
    beat = b""  # what a worker says now and then

    def ask(self, credit: int) -> bytes:
        """A worker asks for so many requests at a time; it has asked for one already."""
        return b""

    def request(self, number: int, body: bytes) -> bytes:
        raise NotImplementedError

    def answer(self, frames: Frames) -> bytes:
        """A worker's answer to a message; b"" to none."""
        raise NotImplementedError

    def is_reply(self, frames: Frames) -> bool:
        return True


class Mdp1(Dialog):
    hello = join([b"", b"MDPW01", b"\x01", b"echo"])
    beat = join([b"", b"MDPW01", b"\x04"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", b"MDPC01", b"echo", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"", b"MDPW01", b"\x03", *frames[3:]]) if frames[2] == b"\x02" else b""


class Mdp2(Dialog):
    hello = join([b"MDPW02", b"\x01", b"echo"])
    beat = join([b"MDPW02", b"\x05"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"MDPC02", b"\x01", b"echo", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"MDPW02", b"\x04", *frames[2:]]) if frames[1] == b"\x02" else b""


class Mdx(Dialog):
    hello = join([b"MDXW01", b"\x01", b"echo"])
    beat = join([b"MDXW01", b"PING"])

    def ask(self, credit: int) -> bytes:
        return join([b"MDXW01", b"CREDIT", b"%d" % credit, b"%d" % credit]) if credit > 1 else b""

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"MDXC01", b"\x01", b"echo", b"%d" % number, body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"MDXW01", b"\x04", *frames[2:]]) if frames[1] == b"\x02" else b""


class Dcp(Dialog):
    hello = join([b"", DCP, b"\x01", b"echo"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", DCP, b"\x04", b"echo", b"", b"%d" % number, b"", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"", DCP, b"\x05", *frames[4:]]) if frames[2] == b"\x04" else b""


class Emqp(Dialog):
    hello = join([b"", EMQP, b"INFORM", b"i", b"echo", b"worker"]) + join([b"", EMQP, b"READY", b"r"])
    beat = join([b"", EMQP, b"HEARTBEAT", b"h", b"0"])

    def ask(self, credit: int) -> bytes:
        return join([b"", EMQP, b"READY", b"r"]) * (credit - 1)

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", EMQP, b"REQUEST", b"%d" % number, b"echo", b"reply-requested", body])

    def answer(self, frames: Frames) -> bytes:
        if frames[2] != b"REQUEST":
            return b""
        return join([b"", EMQP, b"REPLY", b"n", frames[6], frames[3]]) + join([b"", EMQP, b"READY", b"r"])


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
        """Requests, as many as the window allows."""
        count = min(self.load.window - (self.sent - self.got), self.load.share - self.sent)
        out = b"".join(self.request(self.sent + i) for i in range(count))
        self.sent += max(0, count)
        return out

    def replied(self, data: bytes, end: int) -> None:
        """A reply whose body ends there."""
        self.got += 1
        if self.load.on_reply is None:
            self.load.count()
        else:
            self.load.on_reply(data[end - len(self.load.body) : end])

    def opening(self) -> bytes:
        raise NotImplementedError

    def take(self, data: bytes) -> tuple[int, bytes]:
        """Takes whole messages; returns how many bytes they were, and what to say to them."""
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
                out.append(self.dialog.answer(split(data[start:end])))
            else:
                self.replied(data, end)
            start = end
        return start, b"".join(out)


class Sealing:
    """The transport of a CURVE connection, for a peer that knows nothing of CURVE."""

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
    """memo01 over SP: a worker polls under one request id after the other."""

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
        self.inbox = b"I%d.%d" % (os.getpid(), self.load.next_number())  # several processes may play this load
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


DIALOGS: dict[str, type[Dialog]] = {"mdp1": Mdp1, "mdp2": Mdp2, "mdx": Mdx, "dcp": Dcp, "emqp": Emqp}
OTHERS: dict[str, type[Peer]] = {"memo": MemoPeer, "nats": NatsPeer, "gearman": GearmanPeer}


class Load:
    """The whole run."""

    def __init__(
        self,
        protocol: str,
        port: int,
        workers: int,
        clients: int,
        requests: int,
        window: int,
        size: int,
        credit: int = 1,
    ) -> None:
        self.credit = credit
        self.protocol, _, security = protocol.partition("+")
        self.curve = security == "curve"
        self.tls: ssl.SSLContext | None = None
        if security == "tls":
            self.tls = client_context(str(KEYS / "ca.pem"), str(KEYS / "client.pem"))
            self.tls.check_hostname = False
        self.port = port
        self.workers = workers
        self.clients = clients
        self.window = window
        self.share = max(1, requests // clients)
        self.body = b"x" * size
        self.running = False
        self.on_reply: Callable[[bytes], None] | None = None  # is given the body of each reply, in an open loop
        self.done = asyncio.Event()
        self.ready = asyncio.Event()
        self._left = self.share * clients
        self._waiting = 0
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def opened(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.ready.set()

    def count(self) -> None:
        self._left -= 1
        if not self._left:
            self.done.set()

    def make(self, worker: bool) -> Peer:
        if self.protocol in OTHERS:
            return OTHERS[self.protocol](self, worker)
        kind = CurvePeer if self.curve else ZmtpPeer
        return kind(self, worker, DIALOGS[self.protocol]())

    async def connect(self, count: int, worker: bool) -> list[Peer]:
        loop = asyncio.get_running_loop()
        self._waiting = count
        self.ready.clear()
        peers = [
            (await loop.create_connection(lambda: self.make(worker), "127.0.0.1", self.port, ssl=self.tls))[1]
            for _ in range(count)
        ]
        await asyncio.wait_for(self.ready.wait(), 10)
        await asyncio.sleep(0.3)  # a broker of another make does not say when it has taken a worker in
        return peers

    async def beating(self, workers: list[Peer]) -> None:
        while True:
            await asyncio.sleep(2.0)
            for peer in workers:
                if beat := peer.beat():
                    peer.transport.write(beat)

    async def run(self, seconds: float = 120.0) -> dict[str, float]:
        workers = await self.connect(self.workers, True)
        clients = await self.connect(self.clients, False)
        beating = asyncio.create_task(self.beating(workers))
        self.running = True
        began = time.monotonic()
        for peer in clients:
            peer.transport.write(peer.fill())
        await asyncio.wait_for(self.done.wait(), seconds)
        took = time.monotonic() - began
        beating.cancel()
        for peer in [*clients, *workers]:
            peer.transport.close()
        served = self.share * self.clients
        return {
            "requests": served,
            "seconds": round(took, 3),
            "rate": round(served / took),
            "cpu": round(time.process_time(), 3),
        }


def main() -> None:
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    protocol, *numbers = sys.argv[1:]
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(run(protocol, [int(number) for number in numbers]))))


async def run(protocol: str, numbers: list[int]) -> dict[str, float]:
    return await Load(protocol, *numbers).run()


if __name__ == "__main__":
    main()
