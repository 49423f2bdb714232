"""Flows on real processes that are killed: ``python -m chaos.flows --flows 100 --nodes 1000 --store sqlite``.

Clients start random graphs of numbers. Each node adds its number to the results of the nodes that it needs; some fail at the first
attempt, and some answer with more nodes. Brokers, workers, clients and the database are killed with SIGKILL and restarted meanwhile. At the
end, each flow must be done, each of its nodes must have one outcome, and each result must be the one that the graph gives.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from typing import Any

from chaos.killing import PATIENCE, Scene
from polydomo import AsyncClient, Flow, PolydomoError

MODULUS = 1_000_003
UNLUCKY = 53  # every 53rd node fails at its first attempt
GROWS = 41  # every 41st node answers with more nodes
NEEDS = 3  # nodes that a node may need


def graph(number: int, nodes: int) -> list[list[int]]:
    """The nodes that each node needs."""
    dice = random.Random(number)
    return [sorted(dice.sample(range(max(0, n - 50), n), min(n, dice.randrange(NEEDS + 1)))) for n in range(nodes)]


def results(needs: list[list[int]]) -> list[int]:
    """What each node must give."""
    found: list[int] = []
    for n, needed in enumerate(needs):
        found.append((n + sum(found[one] for one in needed)) % MODULUS)
    return found


def flow(number: int, nodes: int) -> Flow:
    made = Flow(f"chaos-{number}")
    added: list[Any] = []
    for n, needed in enumerate(graph(number, nodes)):
        added.append(made.call("add", str(n), [added[one] for one in needed], name=f"n{n}"))
    return made


def worker(url: str) -> None:
    """A worker process: adds numbers."""
    from polydomo import CallFailed, Worker

    made = Worker(url, concurrency=8, name=f"chaos-{os.getpid()}")

    @made.service("add")
    def add(call: Any) -> Any:
        numbers = [int(frame) for frame in call.frames if frame]
        if call.attempt == 1 and numbers[0] % UNLUCKY == 1:
            raise CallFailed("unlucky", "on the first attempt")
        if numbers[0] % GROWS == 1:
            more = Flow("more")
            parts = more.map("sum", [str(part) for part in numbers])
            more.call("sum", parts)
            return call.then(more)
        return str(sum(numbers) % MODULUS)

    @made.service("sum")
    def sum_of(call: Any) -> str:
        return str(sum(int(frame) for frame in call.frames if frame) % MODULUS)

    made.run()


async def client(url: str, first: int, flows: int, nodes: int) -> None:
    """A client process: starts its flows, again if it was killed (the key makes it the same run), and waits for their ends."""
    async with AsyncClient(url, timeout=PATIENCE, connect_timeout=PATIENCE) as made:
        for number in range(first, first + flows):
            run = await patiently(lambda: made.start(flow(number, nodes), key=str(number)))  # noqa: B023
            await patiently(lambda: run.wait(PATIENCE))  # noqa: B023


async def patiently(attempt: Any) -> Any:
    """Repeats it while brokers change."""
    begun = time.monotonic()
    while True:
        try:
            return await attempt()
        except PolydomoError:
            if time.monotonic() - begun > PATIENCE:
                raise
            await asyncio.sleep(0.2)


async def outcomes(url: str, flows: int, nodes: int) -> Counter[str]:
    """Checks every node of every flow."""
    found: Counter[str] = Counter()
    async with AsyncClient(url, timeout=PATIENCE, connect_timeout=PATIENCE) as made:
        for number in range(flows):
            run = await made.start(flow(number, nodes), key=str(number))
            state = await run.wait(PATIENCE)
            found[f"flows {state}"] += 1
            ended: Counter[str] = Counter()
            async for step in run.watch():
                ended[step.node] += 1
            found["nodes with several outcomes"] += sum(1 for count in ended.values() if count > 1)
            expected = results(graph(number, nodes))
            given = await run.results()
            for n, right in enumerate(expected):
                got = given.get(f"n{n}")
                found["right" if got is not None and got.text == str(right) else "wrong"] += 1
    return found


def run(
    flows: int,
    nodes: int,
    store: str,
    brokers: int,
    seed: int,
    pause: float,
    clients: int = 2,
    workers: int = 2,
    rounds: int = 0,
    most: int = 0,
) -> Counter[str]:
    """Runs the test and returns what it found. ``rounds``: the minimum number of kills of brokers; ``most``: the
    maximum, if it is not 0."""
    begun = time.monotonic()
    with Scene(store, brokers, seed) as scene:
        hands = [scene.launch(f"worker{n}", "chaos.flows", "--worker", scene.url) for n in range(workers)]
        share = flows // clients
        starting = [
            scene.launch(f"client{n}", "chaos.flows", "--client", scene.url,
                "--first", str(n * share), "--flows", str(share), "--nodes", str(nodes),
            )
            for n in range(clients)
        ]  # fmt: skip
        scene.kill_until_ended(hands, starting, pause, rounds, most)
        found = asyncio.run(outcomes(scene.url, share * clients, nodes))
        for kind, number in scene.kills.items():
            found[f"kills of {kind}"] = number
        found["seconds"] = round(time.monotonic() - begun)
        if not holds(found, share * clients, nodes):
            scene.show_logs()
        return found


def holds(found: Counter[str], flows: int, nodes: int) -> bool:
    return (
        found["flows done"] == flows
        and found["right"] == flows * nodes
        and not found["wrong"]
        and not found["nodes with several outcomes"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill everything while flows run.")
    parser.add_argument("--flows", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two kills")
    parser.add_argument("--rounds", type=int, default=0, help="minimum number of kills of brokers")
    parser.add_argument("--worker")
    parser.add_argument("--client")
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return 0
    if given.client:
        asyncio.run(client(given.client, given.first, given.flows, given.nodes))
        return 0
    found = run(given.flows, given.nodes, given.store, given.brokers, given.seed, given.pause, rounds=given.rounds)
    for name, number in found.items():
        print(f"{name}: {number:,}")
    return 0 if holds(found, given.flows // 2 * 2, given.nodes) else 1


if __name__ == "__main__":
    sys.exit(main())
