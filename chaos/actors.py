"""Clients and workers, each a separate process: ``python -m chaos.actors client mdx URL ...``, started by the stage.

Every call has a unique id in its body, and a client knows the expected reply byte for byte. An actor records each call that is submitted,
executed or ended at once. SIGTERM stops an actor gracefully: a client submits nothing more and waits for its open calls.
"""

import argparse
import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator

from chaos import foreign_peers, web
from chaos.calls import CHAIN, ECHO, EVERYTHING, FAR, POISON, SLOW, SLOWEST, STREAM, Caller, Options, named, pieces
from chaos.duplicate_replies import watched
from chaos.record import Record
from chaos.security import proof
from polydomo import AsyncClient, AsyncWorker, Call, CallError, Client
from polydomo.protocols import registry

POOL_CALLS = 100  # of a process of the pool, after which it is replaced

# --- clients of the library -------------------------------------------------------------------------------------------------


def library_client(options: Options, protocol: str) -> None:
    asyncio.run(_library_client(Caller(options, EVERYTHING, retries=2), protocol))


async def _library_client(caller: Caller, protocol: str) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, caller.stopping.set)
    options = caller.options

    async def lane(client: AsyncClient) -> None:
        while not caller.stopping.is_set():
            plan = caller.next()
            began = loop.time()
            try:
                result = await client.call(plan.service, plan.body, timeout=options.timeout, retries=plan.attempts - 1)
                outcome = caller.record.judge(plan.call, result.body, plan.expected)
            except Exception as error:
                outcome = caller.failed(error)
            caller.record.ended(plan.call, outcome, loop.time() - began)
            await asyncio.sleep(caller.pause())

    url, security = proof(options.url, security_of(options))
    async with AsyncClient(
        url, protocol, connect_timeout=2.0, max_connections=options.lanes, security=security
    ) as client:
        watch(client, options)
        await asyncio.gather(*(lane(client) for _ in range(options.lanes)))


def security_of(options: Options) -> str:
    """``curve``, ``tls``, or "" of an actor, by its name."""
    kind = options.name.partition(".")[0].partition("-")[2]
    return kind if kind in ("curve", "tls") else ""


def watch(client: AsyncClient, options: Options) -> None:
    client._pool.make_end = watched(client._pool.make_end, options.record, options.name)


def blocking_client(options: Options) -> None:
    """The blocking client of the library, shared by threads."""
    caller = Caller(options, EVERYTHING, retries=2)
    signal.signal(signal.SIGTERM, lambda *_: caller.stopping.set())

    def lane() -> None:
        while not caller.stopping.is_set():
            plan = caller.next()
            began = time.monotonic()
            try:
                result = client.call(plan.service, plan.body, timeout=options.timeout, retries=plan.attempts - 1)
                outcome = caller.record.judge(plan.call, result.body, plan.expected)
            except CallError as error:
                outcome = caller.failed(error)
            caller.record.ended(plan.call, outcome, time.monotonic() - began)
            caller.stopping.wait(caller.pause())

    with Client(options.url, connect_timeout=2.0) as client:
        watch(client._client, options)
        threads = [threading.Thread(target=lane) for _ in range(options.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # signals are handled only between waits
                thread.join(0.2)


# --- workers of the library -------------------------------------------------------------------------------------------------


def library_worker(options: Options, protocol: str, processes: bool = False) -> None:
    asyncio.run(_library_worker(options, protocol, processes))


async def _library_worker(options: Options, protocol: str, processes: bool) -> None:
    url, security = proof(options.url, security_of(options))
    worker = AsyncWorker(
        url,
        protocol,
        security=security,
        concurrency=1 if processes else options.lanes,
        processes=options.lanes if processes else 0,
        max_calls=POOL_CALLS if processes else 0,
        beat=options.beat,
        grace=options.timeout,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    dice = random.Random(options.seed)

    @worker.service(ECHO)
    async def echo(call: Call) -> bytes:
        options.record.executing(named(call.body))
        return call.body

    @worker.service(SLOW)
    async def slow(call: Call) -> bytes:
        options.record.executing(named(call.body))
        await asyncio.sleep(dice.random() * SLOWEST)
        return call.body

    @worker.service(STREAM)
    def stream(call: Call) -> Generator[bytes, None, bytes]:
        name = named(call.body)
        options.record.executing(name)
        *parts, end = pieces(name)
        for part in parts:
            time.sleep(dice.random() * 0.02)
            yield part
        return end

    @worker.service(POISON)
    async def poison(call: Call) -> bytes:
        options.record.executing(named(call.body))
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    if protocol == "dcp":

        @worker.service(CHAIN)
        async def chain(call: Call) -> object:
            return call.forward(ECHO, call.body)

    await worker.run()


def far_worker(options: Options) -> None:
    """A worker at the far broker."""
    asyncio.run(_far_worker(options))


async def _far_worker(options: Options) -> None:
    worker = AsyncWorker(options.url, concurrency=options.lanes, beat=options.beat, grace=options.timeout)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)

    @worker.service(FAR)
    async def far(call: Call) -> bytes:
        options.record.executing(named(call.body))
        return call.body

    await worker.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["client", "worker", "catalog", "crowd"])
    parser.add_argument("kind")
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("record")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--timeout", type=float, default=4.0)
    parser.add_argument("--beat", type=float, default=0.5)
    words = parser.parse_args()
    options = Options(
        words.url, words.name, Record(words.record), words.seed, words.lanes, words.rate, words.timeout, words.beat
    )
    runs: dict[tuple[str, str], Callable[[Options], None]] = {
        ("client", "blocking"): blocking_client,
        ("client", "pyzmq-mdp1"): foreign_peers.mdp1_client,
        ("client", "pyzmq-mdp2"): foreign_peers.mdp2_client,
        ("client", "pynng-memo"): foreign_peers.memo_client,
        ("client", "http"): web.http_client,
        ("client", "websocket"): web.websocket_client,
        ("client", "pyzmq-curve"): foreign_peers.mdp1_client,
        ("worker", "http"): web.http_worker,
        ("worker", "websocket"): web.websocket_worker,
        ("worker", "pyzmq-curve"): foreign_peers.mdp1_worker,
        ("worker", "far"): far_worker,
        ("worker", "pool"): lambda options: library_worker(options, "dcp", processes=True),
        ("worker", "pyzmq-mdp1"): foreign_peers.mdp1_worker,
        ("worker", "pyzmq-mdp2"): foreign_peers.mdp2_worker,
        ("worker", "pynng-memo"): foreign_peers.memo_worker,
        ("catalog", "dbp"): foreign_peers.catalog,
        ("crowd", "idle"): foreign_peers.crowd,
    }
    for protocol in registry.names():
        runs["client", protocol] = lambda options, protocol=protocol: library_client(options, protocol)  # type: ignore[misc]
        runs["worker", protocol] = lambda options, protocol=protocol: library_worker(options, protocol)  # type: ignore[misc]
    for security in ("curve", "tls"):
        runs["client", security] = lambda options: library_client(options, "mdx")
        runs["worker", security] = lambda options: library_worker(options, "mdx")
    runs[words.role, words.kind](options)
    options.record.quit()


if __name__ == "__main__":
    main()
