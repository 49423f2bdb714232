"""The longest turns of the broker's loop under a fixed rate of requests, and what happened in them.

    python -m bench.pauses                          10,000 requests/s for 10 s, MDX
    python -m bench.pauses --rate 5000 --protocol mdp1 --journal off

Runs a broker in a process of its own and the generator of ``bench/open_loop.py`` in this one. The broker notes for each turn how long it
took and how much CPU time its thread and the other threads used meanwhile; garbage collections and the journal's work are named. Where
CPU time is much less than the turn, the operating system ran something else.
"""

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench.compare import end, free_port, wait_for
from bench.open_loop import OpenLoop, play
from polydomo.cli.bench.plot import duration, quantile

SHOWN = 12  # turns
REPORT = "PAUSES_REPORT"  # environment variable: the file that the broker writes at its end


class Watch:
    """Notes what happens in the broker's process."""

    def __init__(self) -> None:
        self.turns: list[tuple[float, float, float, list[str]]] = []  # seconds, CPU of the loop, CPU of others, causes
        self.counts: dict[str, int] = {}
        self._causes: list[str] = []
        self._began = (0.0, 0.0, 0.0)

    def begin(self) -> None:
        self._began = time.perf_counter(), time.thread_time(), time.process_time()

    def finish(self) -> None:
        wall, own, all_threads = self._began
        if wall:
            took, mine = time.perf_counter() - wall, time.thread_time() - own
            others = time.process_time() - all_threads - mine
            self.turns.append((took, mine, others, self._causes))
            if len(self.turns) > 50 * SHOWN:
                self.turns = sorted(self.turns, reverse=True)[:SHOWN]
        self._causes = []
        self._began = (0.0, 0.0, 0.0)

    def note(self, cause: str) -> None:
        self._causes.append(cause)
        self.counts[cause] = self.counts.get(cause, 0) + 1

    def collecting(self, phase: str, info: "dict[str, int]") -> None:
        if phase == "stop":
            self.note(f"garbage collection of generation {info['generation']}")


def broker(words: "list[str]") -> None:
    """``polydomo up`` with a watch."""
    from polydomo.broker.guard.memory import MemoryAccount
    from polydomo.broker.observe.monitor import Monitor
    from polydomo.cli.main import app
    from polydomo.journal.files.writer import Writer
    from polydomo.journal.recording.recorder import JournalRecorder
    from polydomo.server.server import BrokerServer
    from polydomo.wire.link import Turns

    watch = Watch()
    wake, flush = BrokerServer.wake, BrokerServer.flush

    def begin(self: BrokerServer) -> None:
        if not self.awake:
            watch.begin()
        wake(self)

    def finish(self: BrokerServer) -> None:
        flush(self)
        watch.finish()

    def named(name: str, do: Any) -> Any:
        def run(*given: Any) -> Any:
            watch.note(name)
            return do(*given)

        return run

    BrokerServer.wake = begin  # type: ignore[method-assign,assignment]
    BrokerServer.flush = finish  # type: ignore[method-assign]
    Writer._work = named("the journal's thread takes rows", Writer._work)  # type: ignore[method-assign]
    Writer._close = named("the journal's thread closes a segment", Writer._close)  # type: ignore[method-assign]
    for owner, method, name in (  # seen only in the interpreted form: compiled modules call each other directly
        (Monitor, "tick", "figures of the last second"),
        (Monitor, "fold", "latencies of the last second"),
        (MemoryAccount, "end_turn", "memory is measured"),
        (JournalRecorder, "hand_over", "rows go to the journal's thread"),
        (BrokerServer, "_sweep", "the sweep of connections"),
        (Turns, "next_turn", "connections that waited for their turn"),
    ):
        setattr(owner, method, named(name, getattr(owner, method)))
    gc.callbacks.append(watch.collecting)
    sys.argv = ["polydomo", "up", *words]
    try:
        app(prog_name="polydomo")
    finally:
        rows = [list(turn) for turn in sorted(watch.turns, reverse=True)[:SHOWN]]
        with open(os.environ[REPORT], "w") as file:
            json.dump({"turns": rows, "counts": watch.counts}, file)


def main() -> None:
    if sys.argv[1:2] == ["broker"]:
        broker(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=10_000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--protocol", default="mdx")
    parser.add_argument("--journal", default="requests", choices=["requests", "messages", "off"])
    asked = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        report = f"{data}/report.json"
        words = ["--listen", f"tcp://127.0.0.1:{port}", "--data", f"{data}/d", "--log-level", "error"]
        command = [sys.executable, "-m", "bench.pauses", "broker", *words, "--journal", asked.journal]
        process = subprocess.Popen(command, env={**os.environ, REPORT: report})
        try:
            wait_for(port, process)
            time.sleep(1.0)
            found = play(OpenLoop(asked.protocol, port, asked.rate, asked.seconds, 64))
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            with open(report) as file:
                told = json.load(file)
        finally:
            end(process)
    values = sorted(found)
    parts = ", ".join(f"p{part * 100:g} {duration(quantile(values, part))}" for part in (0.5, 0.99, 0.999, 1.0))
    print(f"latency of {len(values):,} requests: {parts}")
    print(f"{'turn':>10}{'its CPU':>10}{'others':>10}  what happened")
    for took, mine, others, causes in told["turns"]:
        names = ", ".join(dict.fromkeys(causes)) or "-"
        print(f"{duration(took):>10}{duration(mine):>10}{duration(max(0.0, others)):>10}  {names}")
    for name, count in sorted(told["counts"].items()):
        print(f"{count:>8,} times: {name}")


if __name__ == "__main__":
    main()
