"""Runs a command on a machine that is made slow: ``python -m tests.stress --stop 3 -- make test``.

A test says what happens, not how fast. Each flag takes away one thing that a test could rely on without knowing:

* ``--core``: the command and all it starts share one core;
* ``--nice``: everything else comes first;
* ``--busy 4``: four processes that compute for ever run beside it;
* ``--stop 3``: every few seconds all its processes stand still (SIGSTOP) for up to three seconds.

Failed tests are not repeated here (tests/stalls.py), so that each failure is seen. The exit status is that of the command.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description="Run a command on a machine made slow.")
    parser.add_argument("--core", action="store_true", help="the command runs on one core")
    parser.add_argument("--nice", action="store_true", help="the command runs at the lowest priority (nice 19)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="N busy processes run beside the command")
    parser.add_argument(
        "--stop", type=float, default=0.0, metavar="SECONDS", help="stop it again and again for up to that"
    )
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="mean time between stops (5)")
    parser.add_argument("--seed", type=int, default=1, help="of the times of the stops")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(words)


def descendants(root: int) -> dict[int, str]:
    """``root`` and every process below it, with their states as ``ps`` shows them."""
    children: dict[int, list[int]] = defaultdict(list)
    states: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has just ended
            children[int(parent)].append(int(entry.name))
            states[int(entry.name)] = state
    found = [root]
    for process in found:
        found += children[process]
    return {process: states[process] for process in found if process in states}


def running(root: int) -> list[int]:
    """The same without those that somebody has stopped: a test may have stopped its broker."""
    return [process for process, state in descendants(root).items() if state != "T"]


def send(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def stop_for(root: int, seconds: float) -> None:
    """Processes that start while the others are stopped are stopped too: the second look finds them."""
    stopped: list[int] = []
    while new := [each for each in running(root) if each not in stopped]:
        send(new, signal.SIGSTOP)
        stopped += new
    try:
        time.sleep(seconds)
    finally:
        send(list(reversed(stopped)), signal.SIGCONT)


def main(words: Sequence[str]) -> int:
    options = parse(words)
    draw = random.Random(options.seed)
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.busy)]

    def prepare() -> None:
        if options.core:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        if options.nice:
            os.nice(19)

    stops = 0
    try:
        command = subprocess.Popen(options.command, preexec_fn=prepare, env={**os.environ, "STALLED_RUNS": "1"})
        while True:
            try:
                pause = draw.expovariate(1 / options.every) if options.stop else None
                status = command.wait(pause)
                break
            except subprocess.TimeoutExpired:
                stop_for(command.pid, draw.uniform(0.1, options.stop))
                stops += 1
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"==> ended with {status}, stopped {stops} times", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
