"""A load whose requests all cross from one process of a broker to another: clients at process 0, workers at process 1.

    python -m bench.crossing PORT WORKERS CLIENTS REQUESTS WINDOW SIZE

The kernel chooses the process of each connection. The broker lists which process each peer came to, and peers at the wrong one connect
again. ``bench/processes.py`` runs this and reads the CPU time of the processes.
"""

import asyncio
import json
import sys
import time

from bench.load import Load
from bench.load_peers import Peer
from polydomo.client.aio import AsyncClient
from polydomo.limits import PROCESS_WORKERS

PATIENCE = 120.0  # seconds


class Pinned:
    """Connects peers to a chosen process."""

    def __init__(self, load: Load, client: AsyncClient) -> None:
        self._load = load
        self._client = client

    async def connect(self, count: int, worker: bool, process: int) -> "list[Peer]":
        found: list[Peer] = []
        while len(found) < count:
            tried = await self._load.connect(count - len(found), worker)
            if not worker:
                await self._ask_once(tried)  # the broker lists a client from its first message on
            places = await self._places(worker)
            for peer in tried:
                port = peer.transport.get_extra_info("sockname")[1]
                if places.get(port) == process:
                    found.append(peer)
                else:
                    peer.transport.close()
        return found

    async def _ask_once(self, peers: "list[Peer]") -> None:
        left = len(peers)
        answered = asyncio.Event()

        def replied(_: bytes) -> None:
            nonlocal left
            left -= 1
            if not left:
                answered.set()

        self._load.on_reply = replied
        for peer in peers:
            peer.transport.write(peer.request(0))
        await asyncio.wait_for(answered.wait(), PATIENCE)
        self._load.on_reply = None
        for peer in peers:
            peer.got = 0

    async def _places(self, worker: bool) -> "dict[int, int]":
        """The process of each peer, by the port of its connection."""
        reply = await self._client.call("polydomo.workers" if worker else "polydomo.clients")
        rows = json.loads(reply.text)
        name = "worker" if worker else "client"
        return {int(row["peer"].rpartition(":")[2]): int(row[name][1:]) // PROCESS_WORKERS for row in rows}


async def run(port: int, workers: int, clients: int, requests: int, window: int, size: int) -> "dict[str, float]":
    load = Load("mdx", port, workers, clients, requests, window, size)
    async with AsyncClient(f"tcp://127.0.0.1:{port}") as client:
        pinned = Pinned(load, client)
        crew = await pinned.connect(workers, True, 1)
        beating = asyncio.create_task(load.beating(crew))
        peers = await pinned.connect(clients, False, 0)
    load.running = True
    print("ready", flush=True)
    sys.stdin.readline()  # the caller reads the CPU time first
    began = time.monotonic()
    for peer in peers:
        peer.transport.write(peer.fill())
    await asyncio.wait_for(load.done.wait(), PATIENCE)
    took = time.monotonic() - began
    beating.cancel()
    return {"requests": load.share * clients, "rate": round(load.share * clients / took)}


def main() -> None:
    print(json.dumps(asyncio.run(run(*map(int, sys.argv[1:])))), flush=True)


if __name__ == "__main__":
    main()
