"""A load of echo requests on raw sockets, for any protocol a broker may speak.

    python -m bench.load PROTOCOL PORT WORKERS CLIENTS REQUESTS WINDOW SIZE [CREDIT] [--hold]

PROTOCOL may end in ``+curve`` or ``+tls``; the keys and certificates are then in the directory that BENCH_KEYS names (``bench/curve.py``).
One process plays all workers and all clients; each client keeps WINDOW requests outstanding until it has sent its share of
REQUESTS. Workers of MDX and eMQP hold CREDIT requests at a time (1 unless given). It prints one JSON line: requests served, seconds,
requests/s, its own CPU seconds. The caller measures the broker. With ``--hold`` the workers go on until standard input ends, so that
several generators can share them: a request at a worker that closes would be lost where the broker does not requeue it.
"""

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections.abc import Callable

from bench.load_dialogs import DIALOGS
from bench.load_peers import KEYS, OTHERS, CurvePeer, Peer, ZmtpPeer
from polydomo.tls import client_context


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
        await asyncio.sleep(0.3)  # other brokers do not report when they have registered a worker
        return peers

    async def beating(self, workers: list[Peer]) -> None:
        while True:
            await asyncio.sleep(2.0)
            for peer in workers:
                if beat := peer.beat():
                    peer.transport.write(beat)

    async def run(self, seconds: float = 120.0, hold: bool = False) -> dict[str, float]:
        """With ``hold`` it prints its result, and its workers serve other generators until standard input ends."""
        workers = await self.connect(self.workers, True)
        clients = await self.connect(self.clients, False)
        beating = asyncio.create_task(self.beating(workers))
        self.running = True
        began = time.monotonic()
        for peer in clients:
            peer.transport.write(peer.fill())
        await asyncio.wait_for(self.done.wait(), seconds)
        took = time.monotonic() - began
        served = self.share * self.clients
        figures = {
            "requests": served,
            "seconds": round(took, 3),
            "rate": round(served / took),
            "cpu": round(time.process_time(), 3),
        }
        print(json.dumps(figures), flush=True)
        if hold:
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        beating.cancel()
        for peer in [*clients, *workers]:
            peer.transport.close()
        return figures


def main() -> None:
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    hold = "--hold" in sys.argv
    protocol, *numbers = [word for word in sys.argv[1:] if word != "--hold"]
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(protocol, [int(number) for number in numbers], hold))


async def run(protocol: str, numbers: list[int], hold: bool = False) -> dict[str, float]:
    return await Load(protocol, *numbers).run(hold=hold)


if __name__ == "__main__":
    main()
