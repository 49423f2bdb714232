"""Latency at a fixed rate of requests, ours beside NATS and gearmand, in one run.

    python -m bench.open_loop                       10,000 requests/s of 64 bytes for 3 s, 9 rounds each
    python -m bench.open_loop --rate 2000 --svg latency.svg
    python -m bench.open_loop --processes 2         ours with two processes as well

An open loop: requests are due at fixed times (``polydomo.cli.bench.pace``), whether replies have come or not, and the latency of each
counts from the time at which it was due. So a broker that stalls is charged for every request that was due meanwhile (no coordinated
omission).
The generator is the same for all (``bench/load.py``): one process plays 8 clients and 32 workers that echo. Every request carries its
number, so replies may come in any order. Rounds alternate between the brokers. Each figure is the median over the rounds, so that a round
during which the machine was busy with something else does not decide; the plots show the requests of all rounds together.
On a busy machine the generator itself waits for a core; its delays are in the figures of all brokers alike.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import shlex
import subprocess
import tempfile
import time
from array import array
from itertools import chain
from pathlib import Path
from statistics import median

from bench.compare import OURS, cpu, end, free_port, peers, wait_for
from bench.load import Load
from polydomo.cli.bench.pace import Pacer
from polydomo.cli.bench.plot import duration, quantile, svg_plot, text_plot

PARTS = (0.5, 0.9, 0.99, 0.999, 1.0)
NUMBER = 8  # bytes of the body that hold the number of the request
PATIENCE = 30.0  # seconds for the last replies


class OpenLoop:
    """One round with one broker."""

    def __init__(self, protocol: str, port: int, rate: float, seconds: float, size: int) -> None:
        self.load = Load(protocol, port, 32, 8, 1, 1, max(NUMBER, size))
        self.load.on_reply = self._replied
        self.rate = rate
        self.seconds = seconds
        self.due: array[float] = array("d")  # when each request was due
        self.latencies: array[float] = array("d")
        self._left = 0
        self._all = asyncio.Event()

    def _replied(self, body: bytes) -> None:
        number = int.from_bytes(body[:NUMBER], "big")
        self.latencies.append(time.perf_counter() - self.due[number])
        if len(self.latencies) == self._left:
            self._all.set()

    async def run(self) -> "array[float]":
        load = self.load
        workers = await load.connect(load.workers, True)
        clients = await load.connect(load.clients, False)
        beating = asyncio.create_task(load.beating(workers))
        rest = load.body[NUMBER:]
        pending: list[list[bytes]] = [[] for _ in clients]

        def send(when: float, count: int) -> None:
            first = len(self.due)
            for number in range(first, first + count):
                self.due.append(when)
                load.body = number.to_bytes(NUMBER, "big") + rest
                turn = number % len(clients)
                pending[turn].append(clients[turn].request(number))
            for peer, messages in zip(clients, pending, strict=True):
                if messages:
                    peer.transport.write(b"".join(messages))
                    messages.clear()

        begin = time.perf_counter() + 0.2
        self._left = await Pacer(self.rate, begin, begin + self.seconds, send).run()
        if len(self.latencies) < self._left:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all.wait(), PATIENCE)
        beating.cancel()
        for peer in [*clients, *workers]:
            peer.transport.close()
        if len(self.latencies) < self._left:
            raise SystemExit(f"{self._left - len(self.latencies)} requests of {load.protocol} had no reply")
        return self.latencies


def play(loop: OpenLoop) -> "array[float]":
    """Latencies in seconds. The generator runs on uvloop and collects no garbage: its pauses would count as the broker's."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(loop.run())
    finally:
        gc.enable()


def measure(command: str, protocol: str, asked: argparse.Namespace) -> "tuple[array[float], float]":
    """Latencies in seconds, and the broker's CPU microseconds per request."""
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        words = shlex.split(command.format(port=port, data=data))
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            time.sleep(1.0)
            before = cpu(process.pid)
            found = play(OpenLoop(protocol, port, asked.rate, asked.seconds, asked.size))
            return found, (cpu(process.pid) - before) * 1e6 / len(found)
        finally:
            end(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10_000.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--protocol", nargs="*", default=["mdx", "mdp1"], choices=["mdx", "mdp1", "mdp2", "memo"], help="of ours"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    cases = [(f"polydomo, {protocol}", OURS, protocol) for protocol in asked.protocol]
    if asked.processes > 1:
        ours = f"{OURS} --processes {asked.processes}"
        cases += [(f"polydomo x {asked.processes}, {protocol}", ours, protocol) for protocol in asked.protocol]
    cases += [case for case in peers() if case[2] in ("nats", "gearman")]
    found: list[list[array[float]]] = [[] for _ in cases]
    costs: list[list[float]] = [[] for _ in cases]
    for _ in range(asked.rounds):
        for number, (_, command, protocol) in enumerate(cases):
            latencies, cost = measure(command, protocol, asked)
            found[number].append(array("d", sorted(latencies)))
            costs[number].append(cost)
    rows = {
        case[0]: ([median(quantile(one, part) for one in rounds) for part in PARTS], median(spent))
        for case, rounds, spent in zip(cases, found, costs, strict=True)
    }
    rounds = f"{asked.rounds} rounds of {asked.seconds:g} s"
    print(f"{asked.rate:,.0f} requests/s of {asked.size} bytes, {rounds}, load average {os.getloadavg()[0]:.1f}")
    print(
        f"{'broker':<22}" + "".join(f"{name:>11}" for name in ("p50", "p90", "p99", "p99.9", "max")) + f"{'CPU us':>9}"
    )
    for name, (figures, cost) in rows.items():
        print(f"{name:<22}" + "".join(f"{duration(figure):>11}" for figure in figures) + f"{cost:>9.1f}")
    together = [(case[0], sorted(chain.from_iterable(rounds))) for case, rounds in zip(cases, found, strict=True)]
    for name, values in together:
        print("\n".join(["", *text_plot(name, values, 50)]))
    if asked.svg:
        asked.svg.write_text(svg_plot(f"Latency at {asked.rate:,.0f} requests/s", together))
    if asked.json:
        brokers = {
            name: {"us": [round(figure * 1e6) for figure in figures], "cpu_us": round(cost, 2)}
            for name, (figures, cost) in rows.items()
        }
        asked.json.write_text(json.dumps({"rate": asked.rate, "parts": PARTS, "brokers": brokers}, indent=1))


if __name__ == "__main__":
    main()
